//! Takes the steps of batches that one process at a time takes, and removes old state.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::WorkerConfig;
use super::validation::{ValidBatch, validate};
use crate::limits::Limits;
use crate::output::{MissingResponse, error_line};
use crate::store::{
    BatchRow, BatchStatus, LineKey, LineUpdate, ResultKind, StewardTask, StewardTurn, Store,
    StoreResult,
};

/// Pause while no batch has a step to take.
const IDLE_PAUSE: Duration = Duration::from_millis(300);
/// Pause after the database failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Interval of the removal of old state.
const CLEAN_INTERVAL: Duration = Duration::from_secs(600);
/// Lines that get their error in one transaction.
const LINES_MAX: u32 = 500;
/// Lease of a batch, in milliseconds. A process that validates renews it with each page of the input.
const LEASE_MS: i64 = 30_000;
/// Time before a batch that waits for lines in flight is looked at again, in milliseconds.
const REVISIT_MS: i64 = 500;
/// Files or batches that one removal takes at most.
const REMOVED_MAX: u32 = 100;

pub(super) struct Steward {
    store: Store,
    name: String,
    limits: Limits,
    only: Option<String>,
    /// Owner of the batch of the last step.
    last_owner: String,
}

impl Steward {
    pub(super) fn new(store: Store, name: String, config: &WorkerConfig) -> Self {
        Self {
            store,
            name,
            limits: config.limits.clone(),
            only: config.only.clone(),
            last_owner: String::new(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        // Nothing is removed at the start: the clock may be wrong.
        let mut cleaned_at = Instant::now();
        while !stop.is_cancelled() {
            let pause = match self.step().await {
                Ok(true) => continue,
                Ok(false) => IDLE_PAUSE,
                Err(error) => {
                    self.store.note(&error);
                    tracing::warn!(%error, "no batch can be validated or ended");
                    FAILURE_PAUSE
                }
            };
            if cleaned_at.elapsed() >= CLEAN_INTERVAL && self.store.is_time_confirmed() {
                cleaned_at = Instant::now();
                if let Err(error) = self.clean().await {
                    tracing::warn!(%error, "old files and batches cannot be removed");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Takes one step of one batch. Returns whether there was one.
    async fn step(&mut self) -> StoreResult<bool> {
        let turn = StewardTurn {
            name: &self.name,
            last_owner: &self.last_owner,
        };
        let task = self
            .store
            .claim_steward_task(&turn, self.only.as_deref(), LEASE_MS)
            .await?;
        let Some(task) = task else { return Ok(false) };
        self.last_owner.clone_from(&task.batch().owner);
        match &task {
            StewardTask::Validate(batch) => self.validate(batch).await?,
            StewardTask::Finish(batch) => self.finish(batch).await?,
        }
        Ok(true)
    }

    async fn validate(&self, batch: &BatchRow) -> StoreResult<()> {
        match validate(&self.store, batch, (&self.name, LEASE_MS)).await? {
            Ok(ValidBatch { model, lines }) => {
                tracing::info!(batch = batch.id, model, lines, "the batch is valid");
                self.store.start_batch(&batch.id, &model, lines).await
            }
            Err(errors) => {
                tracing::info!(batch = batch.id, "the batch has mistakes");
                self.store.fail_batch(&batch.id, &errors).await
            }
        }
    }

    /// Gives every line that is left its error, and ends the batch as soon as no line is in flight.
    async fn finish(&self, batch: &BatchRow) -> StoreResult<()> {
        if batch.status == BatchStatus::InProgress {
            self.store.begin_finish(batch).await?;
            // Read again: the batch has a new state, or was cancelled.
            return self.release(batch, 0).await;
        }
        let reason = match batch.status {
            BatchStatus::Cancelling => MissingResponse::Cancelled,
            _ => MissingResponse::Expired,
        };
        loop {
            let lines = self.store.unfinished_lines(&batch.id, LINES_MAX).await?;
            if lines.is_empty() {
                break;
            }
            let updates: Vec<(LineKey, LineUpdate)> = lines
                .into_iter()
                .map(|line| {
                    let text = error_line(&batch.id, line.number, &line.custom_id, &reason);
                    let kind = ResultKind::Unfinished;
                    let key = (batch.id.clone(), line.number);
                    (key, LineUpdate::Result { kind, text })
                })
                .collect();
            self.store.write_updates(&self.name, &updates).await?;
            self.store
                .hold_batch(&self.name, &batch.id, LEASE_MS)
                .await?;
        }
        if self.store.finish_batch(batch).await? {
            tracing::info!(batch = batch.id, "the batch has ended");
            return Ok(());
        }
        self.release(batch, REVISIT_MS).await
    }

    async fn release(&self, batch: &BatchRow, after_ms: i64) -> StoreResult<()> {
        let held = self.store.hold_batch(&self.name, &batch.id, after_ms).await;
        held.map(|_| ())
    }

    async fn clean(&self) -> StoreResult<()> {
        for file in self.store.expired_files(REMOVED_MAX).await? {
            self.store.delete_file(&file).await?;
        }
        let retention_ms = i64::try_from(self.limits.retention_s).unwrap_or(i64::MAX);
        let before = self
            .store
            .now()
            .saturating_sub(retention_ms.saturating_mul(1_000));
        self.store.remove_old_batches(before, REMOVED_MAX).await?;
        self.store.remove_old_workers(before).await
    }
}

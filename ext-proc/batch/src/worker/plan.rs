//! The plan of a worker: batches in the order of their deadlines, each within the windows of its model.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;

use super::WorkerConfig;
use crate::pace::{BatchDemand, Feedback, Priority, SendWindow, SpareRate, UnixMs, promoted_lines};
use crate::store::{BatchRow, Claim, Store, StoreResult};

/// Most lines of one claim.
const CLAIM_LINES_MAX: usize = 64;
/// Pause before another claim of a batch that had no free line, in milliseconds.
const EMPTY_PAUSE_MS: i64 = 200;
/// Pause before another claim after the database failed, in milliseconds.
const FAILURE_PAUSE_MS: i64 = 1_000;
/// Interval at which a worker reports the capacity that it measures, in milliseconds.
const REPORT_INTERVAL_MS: i64 = 5_000;
/// Requests that the gate holds for a model before a worker sends no more non-interactive ones. A few keep the gate from
/// running dry between two looks at it.
const HELD_MAX: u64 = 16;
/// Most batches that a worker works on at once.
const BATCHES_MAX: u32 = 1_000;

/// The next claim.
#[derive(Clone, Debug)]
pub(super) struct WantedLines {
    pub(super) batch: String,
    pub(super) priority: Priority,
    pub(super) count: usize,
}

/// Numbers of lines in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    by_batch: BTreeMap<(String, Priority), usize>,
    total: usize,
}

impl InFlight {
    pub(super) fn add(&mut self, batch: &str, priority: Priority) {
        let key = (batch.to_owned(), priority);
        *self.by_batch.entry(key).or_default() += 1;
        self.total += 1;
    }

    pub(super) fn remove(&mut self, batch: &str, priority: Priority) {
        let key = (batch.to_owned(), priority);
        if let Some(count) = self.by_batch.get_mut(&key) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.by_batch.remove(&key);
            }
        }
    }

    /// Number of lines of a batch with a priority.
    fn of_batch(&self, batch: &str, priority: Priority) -> usize {
        let key = (batch.to_owned(), priority);
        self.by_batch.get(&key).copied().unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.total
    }
}

/// A batch whose lines are being sent.
#[derive(Debug)]
struct ActiveBatch {
    row: BatchRow,
    /// Lines that this worker sends as interactive requests.
    promoted: u64,
    /// Time before which the batch has no free line.
    empty_until: UnixMs,
}

/// The spare capacity for one model.
#[derive(Debug, Default)]
struct ModelRate {
    rate: SpareRate,
    /// Non-interactive requests that ended since the last plan.
    ended: u32,
    reported_at: Option<UnixMs>,
    /// Lines per second of all workers.
    spare_per_s: Option<f64>,
    workers: u64,
}

/// The batches, windows and rates of a worker.
#[derive(Debug)]
pub(super) struct Plan {
    batches: Vec<ActiveBatch>,
    windows: BTreeMap<(String, Priority), SendWindow>,
    rates: BTreeMap<String, ModelRate>,
    holds: watch::Receiver<BTreeMap<String, u64>>,
    paused_until: UnixMs,
    concurrency_max: usize,
    only: Option<String>,
}

impl Plan {
    pub(super) fn new(
        config: &WorkerConfig,
        holds: watch::Receiver<BTreeMap<String, u64>>,
    ) -> Self {
        Self {
            batches: Vec::new(),
            windows: BTreeMap::new(),
            rates: BTreeMap::new(),
            holds,
            paused_until: UnixMs::MIN,
            concurrency_max: config.concurrency_max,
            only: config.only.clone(),
        }
    }

    /// Reads the active batches, and decides which of their lines are promoted.
    pub(super) async fn refresh(
        &mut self,
        store: &Store,
        worker: &str,
        in_flight: &InFlight,
    ) -> StoreResult<()> {
        let rows = store.active_batches(BATCHES_MAX).await?;
        let rows = rows
            .into_iter()
            .filter(|row| self.only.as_ref().is_none_or(|only| *only == row.id));
        let mut empty: BTreeMap<String, UnixMs> = self
            .batches
            .drain(..)
            .map(|batch| (batch.row.id, batch.empty_until))
            .collect();
        self.batches = rows
            .map(|row| ActiveBatch {
                empty_until: empty.remove(&row.id).unwrap_or(UnixMs::MIN),
                promoted: 0,
                row,
            })
            .collect();
        let now = store.now();
        self.forget_models();
        self.observe(now);
        self.report(store, worker, now).await?;
        self.promote(now, in_flight);
        Ok(())
    }

    /// Forgets models without a batch and without a line in flight.
    fn forget_models(&mut self) {
        let batches = &self.batches;
        let is_active = |model: &str| batches.iter().any(|batch| batch.row.model == model);
        self.rates.retain(|model, _| is_active(model));
        self.windows
            .retain(|(model, _), window| is_active(model) || window.in_flight() > 0);
        for batch in batches {
            if !self.rates.contains_key(&batch.row.model) {
                let model = batch.row.model.clone();
                self.rates.insert(model, ModelRate::default());
            }
        }
    }

    fn observe(&mut self, now: UnixMs) {
        for (model, rate) in &mut self.rates {
            let ended = std::mem::take(&mut rate.ended);
            let has_work = self
                .batches
                .iter()
                .any(|batch| batch.row.model == *model && batch.row.remaining() > 0);
            rate.rate.observe(now, ended, has_work);
        }
    }

    /// Reports the rate of each model, and reads the sum over all workers.
    async fn report(&mut self, store: &Store, worker: &str, now: UnixMs) -> StoreResult<()> {
        for (model, rate) in &mut self.rates {
            let is_due = |at: UnixMs| now.saturating_sub(at) >= REPORT_INTERVAL_MS;
            if !rate.reported_at.is_none_or(is_due) {
                continue;
            }
            let capacity = store
                .report_spare_rate(worker, model, rate.rate.per_s())
                .await?;
            rate.reported_at = Some(now);
            rate.spare_per_s = capacity.per_s;
            rate.workers = capacity.workers.max(1);
        }
        Ok(())
    }

    fn promote(&mut self, now: UnixMs, in_flight: &InFlight) {
        for (model, rate) in &self.rates {
            let of_model: Vec<&mut ActiveBatch> = self
                .batches
                .iter_mut()
                .filter(|batch| batch.row.model == *model)
                .collect();
            let demands: Vec<BatchDemand> = of_model
                .iter()
                .map(|batch| BatchDemand {
                    created_at: batch.row.created_at,
                    expires_at: batch.row.expires_at,
                    remaining: batch.row.remaining(),
                })
                .collect();
            let promoted = promoted_lines(now, &demands, rate.spare_per_s);
            for (batch, lines) in of_model.into_iter().zip(promoted) {
                // Each worker promotes its share, but all workers promote a whole batch.
                let is_whole = lines >= batch.row.remaining();
                batch.promoted = match is_whole {
                    true => lines,
                    false => lines.div_ceil(rate.workers.max(1)),
                };
                if batch.promoted > 0
                    && in_flight.of_batch(&batch.row.id, Priority::Interactive) == 0
                {
                    tracing::debug!(batch = batch.row.id, lines, "lines are promoted");
                }
            }
        }
    }

    /// The next claim, if any line may be sent.
    pub(super) fn next_claim(&mut self, now: UnixMs, in_flight: &InFlight) -> Option<WantedLines> {
        if now < self.paused_until {
            return None;
        }
        let free = self.concurrency_max.saturating_sub(in_flight.len());
        for batch in &self.batches {
            if now < batch.empty_until || now >= batch.row.expires_at {
                continue;
            }
            for priority in [Priority::Interactive, Priority::NonInteractive] {
                let window = self.windows.get(&(batch.row.model.clone(), priority));
                let window = match window {
                    Some(window) => window.free(now),
                    None => SendWindow::new(self.concurrency_max).free(now),
                };
                let quota = self.quota(batch, priority, in_flight);
                let count = free.min(window).min(CLAIM_LINES_MAX);
                let count = count.min(usize::try_from(quota).unwrap_or(usize::MAX));
                if count > 0 {
                    return Some(WantedLines {
                        batch: batch.row.id.clone(),
                        priority,
                        count,
                    });
                }
            }
        }
        None
    }

    /// Lines of a batch that may be sent with a priority.
    fn quota(&self, batch: &ActiveBatch, priority: Priority, in_flight: &InFlight) -> u64 {
        let open = batch.row.remaining();
        match priority {
            Priority::Interactive => batch
                .promoted
                .saturating_sub(in_flight.of_batch(&batch.row.id, Priority::Interactive) as u64),
            Priority::NonInteractive => {
                let holds = self.holds.borrow();
                let is_full = holds
                    .get(&batch.row.model)
                    .is_some_and(|held| *held >= HELD_MAX);
                match is_full {
                    true => 0,
                    false => open.saturating_sub(batch.promoted),
                }
            }
        }
    }

    /// The claim of these lines.
    pub(super) fn claim<'a>(
        &'a self,
        wanted: &WantedLines,
        worker: &'a str,
        lease: Duration,
    ) -> Option<Claim<'a>> {
        let batch = self.batch(&wanted.batch)?;
        Some(Claim {
            worker,
            batch: &batch.id,
            input_file: &batch.input_file_id,
            priority: wanted.priority,
            lease_ms: i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
            count: wanted.count,
        })
    }

    /// Learns how many lines a claim brought.
    pub(super) fn claimed(&mut self, now: UnixMs, wanted: &WantedLines, count: usize) {
        if count >= wanted.count {
            return;
        }
        let batch = self
            .batches
            .iter_mut()
            .find(|batch| batch.row.id == wanted.batch);
        if let Some(batch) = batch {
            batch.empty_until = now.saturating_add(EMPTY_PAUSE_MS);
        }
    }

    pub(super) fn pause_claims(&mut self, now: UnixMs) {
        self.paused_until = now.saturating_add(FAILURE_PAUSE_MS);
    }

    pub(super) fn batch(&self, id: &str) -> Option<&BatchRow> {
        let batch = self.batches.iter().find(|batch| batch.row.id == id);
        batch.map(|batch| &batch.row)
    }

    /// The window of a model and a priority.
    pub(super) fn window(&mut self, model: &str, priority: Priority) -> &mut SendWindow {
        let size_max = self.concurrency_max;
        let window = self.windows.entry((model.to_owned(), priority));
        window.or_insert_with(|| SendWindow::new(size_max))
    }

    /// Learns from the answer to a line. Returns whether the gateway has served other requests lately.
    pub(super) fn learn(
        &mut self,
        (model, priority): (&str, Priority),
        (now, sent_at): (UnixMs, UnixMs),
        feedback: Option<Feedback>,
    ) -> bool {
        if feedback == Some(Feedback::Served)
            && priority == Priority::NonInteractive
            && let Some(rate) = self.rates.get_mut(model)
        {
            rate.ended = rate.ended.saturating_add(1);
        }
        let window = self.window(model, priority);
        if let Some(feedback) = feedback {
            window.learn(now, sent_at, feedback);
        }
        window.has_served_lately(now)
    }
}

//! The spare capacity for each model, which the worker measures and shares with the other workers.

use std::collections::{BTreeMap, BTreeSet};

use crate::pace::{SpareRate, SteadyMs};
use crate::store::{Store, StoreResult};

/// Interval at which a worker reports the capacity that it measures, in milliseconds.
const REPORT_INTERVAL_MS: i64 = 5_000;

/// The spare capacity for one model.
#[derive(Debug, Default)]
pub(super) struct ModelRate {
    rate: SpareRate,
    /// Non-interactive requests that ended since the last plan.
    ended: u32,
    reported_at: Option<SteadyMs>,
    /// Lines per second of all workers.
    pub(super) spare_per_s: Option<f64>,
    /// Number of workers.
    pub(super) workers: u64,
}

/// The spare capacity for each model with a batch.
#[derive(Debug, Default)]
pub(super) struct Rates {
    by_model: BTreeMap<String, ModelRate>,
}

impl Rates {
    /// Keeps the rates of these models, and forgets all others.
    pub(super) fn keep(&mut self, models: &BTreeSet<&str>) {
        self.by_model
            .retain(|model, _| models.contains(model.as_str()));
        for model in models {
            if !self.by_model.contains_key(*model) {
                self.by_model
                    .insert((*model).to_owned(), ModelRate::default());
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &ModelRate)> {
        self.by_model.iter()
    }

    /// Counts a non-interactive request that ended.
    pub(super) fn ended(&mut self, model: &str) {
        if let Some(rate) = self.by_model.get_mut(model) {
            rate.ended = rate.ended.saturating_add(1);
        }
    }

    pub(super) fn observe(&mut self, now: SteadyMs, has_work: impl Fn(&str) -> bool) {
        for (model, rate) in &mut self.by_model {
            let ended = std::mem::take(&mut rate.ended);
            rate.rate.observe(now, ended, has_work(model));
        }
    }

    /// Reports the rate of each model, and reads the sum over all workers.
    pub(super) async fn report(
        &mut self,
        store: &Store,
        worker: &str,
        now: SteadyMs,
    ) -> StoreResult<()> {
        for (model, rate) in &mut self.by_model {
            let is_due = |at: SteadyMs| now.saturating_sub(at) >= REPORT_INTERVAL_MS;
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
}

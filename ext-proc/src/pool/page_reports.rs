//! The last reports of replicas' pages that the routing core does not need: lists and clients show them.

use std::collections::BTreeMap;

use isotherm_router::{EngineCounters, ReplicaId};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::Pool;
use crate::probe::ListedModels;

/// The reports of all replicas.
#[derive(Debug, Default)]
pub(super) struct PageReports(Mutex<Reports>);

#[derive(Debug, Default)]
struct Reports {
    replicas: BTreeMap<ReplicaId, ReplicaReport>,
    counted: CountedTokens,
}

#[derive(Debug, Default)]
struct ReplicaReport {
    running: Option<u32>,
    /// Prompt tokens that the engine looked up in its cache, and prompt tokens that it found there.
    cache: Option<(f64, f64)>,
    /// The members of its model's entry in the list of models.
    card: Option<Map<String, Value>>,
}

/// Prompt tokens by the counters of engines, while the pool had their replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CountedTokens {
    /// Prompt tokens that engines looked up in their caches.
    pub(crate) prompt: f64,
    /// Prompt tokens that engines found there.
    pub(crate) cached: f64,
}

impl PageReports {
    pub(super) fn remove(&self, replica: ReplicaId) {
        self.0.lock().replicas.remove(&replica);
    }

    pub(super) fn on_counters(&self, replica: ReplicaId, counters: &EngineCounters) {
        let now = counters.cache_queries.zip(counters.cache_hits);
        let mut reports = self.0.lock();
        let report = reports.replicas.entry(replica).or_default();
        let before = std::mem::replace(&mut report.cache, now);
        // The counters of a new process begin at 0.
        if let (Some((queries, hits)), Some((queries_before, hits_before))) = (now, before)
            && queries >= queries_before
            && hits >= hits_before
        {
            reports.counted.prompt += queries - queries_before;
            reports.counted.cached += hits - hits_before;
        }
    }
}

impl Pool {
    /// Reports how many requests the page of a replica shows in its batch.
    pub(crate) fn running_reported(&self, replica: ReplicaId, running: Option<u32>) {
        self.if_member(replica, |report| report.running = running);
    }

    /// Reports the list of models of a replica.
    pub(crate) fn models_listed(&self, replica: ReplicaId, listed: ListedModels) {
        self.adapters_listed(replica, listed.adapters);
        self.if_member(replica, |report| report.card = Some(listed.card));
    }

    /// Requests in the batch of a replica, as its last page showed them. The load report of a response lacks them.
    pub(crate) fn running_of(&self, replica: ReplicaId) -> Option<u32> {
        self.page_reports.0.lock().replicas.get(&replica)?.running
    }

    /// Prompt tokens by the counters of engines.
    pub(crate) fn counted_tokens(&self) -> CountedTokens {
        self.page_reports.0.lock().counted
    }

    /// The members of the model's entry on which all replicas agree that list one.
    pub fn model_card(&self) -> Map<String, Value> {
        let reports = self.page_reports.0.lock();
        let mut cards = reports.replicas.values().filter_map(|it| it.card.as_ref());
        let mut common = cards.next().cloned().unwrap_or_default();
        for card in cards {
            common.retain(|name, value| card.get(name) == Some(value));
        }
        common
    }

    fn if_member(&self, replica: ReplicaId, change: impl FnOnce(&mut ReplicaReport)) {
        let state = self.state.lock();
        if state.membership.addr_of(replica).is_some() {
            let mut reports = self.page_reports.0.lock();
            change(reports.replicas.entry(replica).or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_begin_anew_add_nothing() {
        let reports = PageReports::default();
        let counters = |queries: f64, hits: f64| EngineCounters {
            cache_queries: Some(queries),
            cache_hits: Some(hits),
            ..EngineCounters::default()
        };
        for (queries, hits) in [
            (1_000.0, 600.0),
            (1_100.0, 650.0),
            (50.0, 0.0),
            (80.0, 10.0),
        ] {
            reports.on_counters(ReplicaId(1), &counters(queries, hits));
        }
        let counted = CountedTokens {
            prompt: 130.0,
            cached: 60.0,
        };
        assert_eq!(reports.0.lock().counted, counted);
    }
}

//! Figures of tiers, of the batch gate, and of the fairness between tenants.

use super::Router;
use crate::{FairnessStatus, Tier, TierStatus, Time};

impl Router {
    /// Figures of every workload tier, the fast one first.
    #[must_use]
    pub fn tiers(&self, now: Time) -> [TierStatus; 3] {
        let queue = &self.pool.queue;
        let oldest = queue.oldest();
        let of = |tier| TierStatus {
            tier,
            waiting: 0,
            oldest_wait: core::time::Duration::ZERO,
            arrived: 0,
            dispatched: 0,
            rejected: 0,
            within_slo: 0,
            past_slo: 0,
        };
        let normal = TierStatus {
            waiting: queue.len(),
            oldest_wait: oldest.map_or_else(Default::default, |(_, q)| now.since(q.arrived)),
            arrived: self.counters.arrived,
            dispatched: self.counters.decisions.values().sum(),
            rejected: self.counters.rejects.values().sum(),
            ..of(Tier::InteractiveNormal)
        };
        [of(Tier::InteractiveFast), normal, of(Tier::NonInteractive)]
    }

    /// Figures of the fairness between tenants; all zero in a pool without such rules.
    #[must_use]
    pub fn fairness_status(&self) -> FairnessStatus {
        FairnessStatus::default()
    }
}

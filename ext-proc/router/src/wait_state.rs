//! Waits of a request so far, and its objective for the time to first token.

use crate::Time;
use crate::pool_state::PoolState;
use crate::queue::{Band, QueuedRequest};

/// Objective of a request for its time to first token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Objective {
    /// Objective of the request, in seconds.
    pub(crate) slo_s: f64,
    /// Objective of the pool, in seconds: the scale of all costs of lateness.
    pub(crate) pool_slo_s: f64,
    /// Weight of a second of delay to the request; 0 for batch work that the gate holds.
    pub(crate) weight: f64,
}

impl Objective {
    /// The objective of a request without a tier, where the pool has this one.
    pub(crate) const fn of_pool(slo_s: f64) -> Self {
        Self {
            slo_s,
            pool_slo_s: slo_s,
            weight: 1.0,
        }
    }

    /// Weight of a second, next to a request with the objective of the pool.
    pub(crate) fn urgency(&self) -> f64 {
        if self.slo_s > 0.0 {
            self.weight * (self.pool_slo_s / self.slo_s)
        } else {
            self.weight
        }
    }
}

/// Waits of a request so far, and its objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WaitState {
    /// Time since the request entered its band, in seconds.
    pub(crate) waited_s: f64,
    /// Estimated time until the replica that is priced takes the request, in seconds: 0 for an available one.
    pub(crate) turn_s: f64,
    /// Time that the request has waited for a particular replica while others were free, in seconds.
    pub(crate) delayed_s: f64,
    pub(crate) objective: Objective,
}

impl WaitState {
    /// A request that has not waited.
    pub(crate) const fn new(objective: Objective) -> Self {
        Self {
            waited_s: 0.0,
            turn_s: 0.0,
            delayed_s: 0.0,
            objective,
        }
    }

    /// Time from the arrival to the dispatch, in seconds.
    pub(crate) fn until_dispatch_s(&self) -> f64 {
        self.waited_s + self.turn_s
    }

    /// Share of so many objectives that the waits so far leave: 1 on arrival, and 0 in the end.
    pub(crate) fn share_left(&self, objectives: f64) -> f64 {
        let within_s = objectives * self.objective.slo_s;
        if within_s > 0.0 {
            (1.0 - self.waited_s / within_s).max(0.0)
        } else {
            0.0
        }
    }
}

impl PoolState {
    /// The objective of a request without a tier.
    pub(crate) fn common_objective(&self) -> Objective {
        Objective::of_pool(self.config.ttft_slo.as_secs_f64())
    }

    /// Waits of a queued request, and its objective.
    pub(crate) fn timing(&self, queued: &QueuedRequest) -> WaitState {
        let since = |then: Time| self.now.since(then).as_secs_f64();
        WaitState {
            waited_s: since(queued.entered),
            turn_s: 0.0,
            delayed_s: queued.delayed_since.map_or(0.0, since),
            objective: self.objective(queued),
        }
    }

    fn objective(&self, queued: &QueuedRequest) -> Objective {
        let common = self.common_objective();
        let Some(tiers) = &self.config.tiers else {
            return common;
        };
        Objective {
            slo_s: queued.request.budget(tiers).as_secs_f64(),
            weight: match queued.band {
                Band::Waiting => tiers.interactive(queued.request.tier).weight,
                Band::Held => 0.0,
            },
            ..common
        }
    }
}

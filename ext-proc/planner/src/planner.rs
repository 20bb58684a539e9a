//! The planner: samples in, plan out.

use isotherm_router::Time;

use crate::{Plan, PlannerConfig, PlannerState, Sample};

/// Planner of the pools of one region.
#[derive(Clone, Debug)]
pub struct Planner {
    config: PlannerConfig,
}

impl Planner {
    /// A planner without history.
    #[must_use]
    pub fn new(config: PlannerConfig) -> Self {
        Self { config }
    }

    /// Changes the rules. Pools that stay keep their history.
    pub fn reconfigure(&mut self, config: PlannerConfig) {
        self.config = config;
    }

    /// Takes a sample.
    pub fn handle(&mut self, now: Time, sample: Sample) {
        let _ = (now, sample);
    }

    /// Plans every pool. The driver calls it every few seconds; the program is solved once in an interval.
    pub fn plan(&mut self, now: Time) -> Plan {
        let _ = now;
        Plan::default()
    }

    /// Holds the number of a pool's replicas until `until`; `None` ends the hold. Returns whether the pool exists.
    pub fn hold(&mut self, pool: &str, hold: Option<Hold>) -> bool {
        let _ = hold;
        self.config.pools.contains_key(pool)
    }

    /// What a restart must keep: history, forecasts, numbers.
    pub fn state(&self) -> PlannerState {
        PlannerState::default()
    }

    /// Restores what [`Self::state`] returned. Pools without rules are dropped, and so are values that are no numbers.
    pub fn restore(&mut self, state: PlannerState) {
        let _ = state;
    }
}

/// A number that an operator holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Number of replicas; the bounds of the configuration still hold.
    pub replicas: u32,
    /// End of the hold.
    pub until: Time,
}

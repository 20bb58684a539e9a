//! Published state of scaling.

use std::collections::BTreeMap;

use isotherm_planner::{PlanReason, PoolPlan, SolveMethod};

use crate::config::ScalingMode;

/// State after a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScalingStatus {
    /// State of each pool that has a section `scaling`, by its model.
    pub(crate) pools: BTreeMap<String, PoolScalingStatus>,
    /// Name of the region; empty without regions.
    pub(crate) region: String,
    /// Whether this service leads its siblings.
    pub(crate) is_leader: bool,
    /// Method of the last solution.
    pub(crate) method: Option<SolveMethod>,
    /// Time of the last plan, in seconds.
    pub(crate) plan_s: f64,
}

/// State of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PoolScalingStatus {
    /// Use of the number.
    pub(crate) mode: ScalingMode,
    /// The plan.
    pub(crate) plan: PoolPlan,
    /// Requests that wait.
    pub(crate) waiting: usize,
    /// Effective memory utilisation.
    pub(crate) utilisation: Option<f64>,
    /// Changes of the number since the start, by reason.
    pub(crate) decisions: BTreeMap<PlanReason, u64>,
}

impl PoolScalingStatus {
    /// The number, once the pool knows its replicas and its siblings.
    pub(crate) fn desired(&self) -> Option<u32> {
        (self.plan.epoch > 0).then_some(self.plan.desired)
    }
}

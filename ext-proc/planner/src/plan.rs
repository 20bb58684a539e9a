//! The decision of the planner: numbers of replicas, and replicas that drain, return or leave.

use core::time::Duration;
use std::collections::BTreeMap;

use strum::{AsRefStr, EnumIter, IntoStaticStr};

use crate::{ForecastModel, Hold, RegionRow};

/// Plan of all pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Plan of each pool, by its name.
    pub pools: BTreeMap<String, PoolPlan>,
    /// Method of the last solution; `None` before the first.
    pub method: Option<SolveMethod>,
}

/// Plan of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolPlan {
    /// Number of replicas that the pool should have.
    pub desired: u32,
    /// Version of `desired`: rises by one with each change. At zero the pool knows none of its replicas yet, and `desired` means
    /// nothing.
    pub epoch: u64,
    /// Reason of the last change.
    pub reason: PlanReason,
    /// Replicas that serve.
    pub ready: u32,
    /// Replicas that start.
    pub starting: u32,
    /// Replicas beyond `desired`.
    pub surplus: u32,
    /// Number of replicas by the program; `None` without a valid plan.
    pub target: Option<u32>,
    /// Demand of the last five minutes, in full replicas: the demand over what one replica may carry.
    pub demand_replicas: Option<f64>,
    /// Forecast of each model, in full replicas.
    pub forecasts: BTreeMap<ForecastModel, Forecast>,
    /// Model that the plan uses.
    pub model: Option<ForecastModel>,
    /// Demand of the last complete window over its forecast.
    pub forecast_error: Option<f64>,
    /// Start-up time that the plan assumes.
    pub startup: Duration,
    /// Replicas that must drain now.
    pub drain: Vec<String>,
    /// Draining replicas that must serve again.
    pub undrain: Vec<String>,
    /// Replicas that drain because of the plan, those of `drain` included: what siblings adopt.
    pub drained: Vec<String>,
    /// Drained replicas that the pool may donate, as spot capacity.
    pub donate: Vec<String>,
    /// Ready replicas in the order in which the planner gives them up: the coldest first.
    pub removal_order: Vec<String>,
    /// Demand that the plan cannot meet within its bounds, in full replicas.
    pub unmet: f64,
    /// Hold of an operator.
    pub hold: Option<Hold>,
    /// Row of this region in the program, for peer regions.
    pub row: RegionRow,
}

/// Forecast of the peak of a window, in full replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// The model's value.
    pub point: f64,
    /// The value that covers the configured share of the windows.
    pub upper: f64,
}

/// Reason of a change of the number of replicas.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    IntoStaticStr,
    EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum PlanReason {
    /// The pool begins with the replicas that it has.
    #[default]
    Initial,
    /// The plan needs more replicas, or fewer.
    Plan,
    /// The forecast demand comes within one start-up time.
    Lead,
    /// The utilisation crossed a threshold.
    Utilisation,
    /// The demand is far from its forecast at the end of the interval.
    Gap,
    /// The demand exceeds the upper forecast.
    AboveForecast,
    /// More work waits than the replicas finish within one start-up time.
    Waiting,
    /// A request waits, and the pool has no replica.
    FromZero,
    /// The bounds of the configuration.
    Bounds,
    /// A sibling's plan.
    Adopted,
    /// An operator holds the number.
    Hold,
}

/// Method that found a solution.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, IntoStaticStr, EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum SolveMethod {
    /// The closed form, which is optimal where no GPUs are shared.
    ClosedForm,
    /// The integer program.
    Integer,
    /// The closed form, cut to the shared GPUs: the integer program has no solution, or none in time.
    Cut,
}

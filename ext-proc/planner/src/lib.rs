//! The planning core of Isotherm: how many replicas each pool needs, and which ones leave.
//!
//! [`Planner`] follows SageServe (Jaiswal et al., 2025): forecast the demand of the next interval (section 6.3), solve an integer
//! program for the number of replicas (section 5), and follow it at a pace (section 6.4). It is *sans I/O* like the
//! [`Router`](isotherm_router::Router): time and samples come in as arguments, [`Planner::plan`] returns numbers and names. The
//! service and the simulator are two drivers of the same calls.
//!
//! The driver
//!
//! 1. sums up finished and rejected requests with [`DemandSums`], and hands in a [`Sample::Demand`] for each minute of each pool,
//!    with zeros if there were none: a minute without a report is missing, not zero;
//! 2. hands in a [`Sample::Replicas`] for each pool every few seconds;
//! 3. calls [`Planner::plan`] after it, and carries out [`PoolPlan::desired`], [`PoolPlan::drain`], [`PoolPlan::undrain`] and
//!    [`PoolPlan::donate`]. The planner learns from the next samples whether that happened.
//!
//! [`Time`](isotherm_router::Time) has an origin that does not change across restarts, since the season and the saved state
//! refer to it: the Unix epoch in the service, zero in the simulator.
//!
//! Differences from the paper, with the reasons in `docs/decisions/0135-planner.md`: demand is measured work instead of tokens; a forecast is
//! multiplied by the factor that covered the past windows; the default pace begins a start-up time ahead.

mod capacity;
mod config;
mod demand;
mod forecast;
mod history;
mod outlook;
mod pace;
mod plan;
mod planner;
mod pool;
mod regions;
mod removal;
mod sample;
mod solve;
mod startup;
mod state;
mod steps;
mod target;
mod watch;

pub use config::{
    CostRules, ForecastModel, ForecastRules, GapRules, Pace, PlannerConfig, PoolRules,
    ReplicaBounds, STARTUP_PRESUMED, Signal, UtilisationRules,
};
pub use demand::{DemandSums, FinishedRequest, WorkModel};
pub use forecast::arima::Arima;
pub use plan::{Forecast, Plan, PlanReason, PoolPlan, SolveMethod};
pub use planner::Planner;
pub use sample::{
    AdoptedPlan, DemandSample, Hold, PeerSample, RegionRow, ReplicaSample, ReplicaState,
    ReplicasSample, Sample,
};
pub use solve::{Cell, Program, Solution};
pub use state::PlannerState;

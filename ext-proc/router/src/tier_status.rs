//! Figures of tiers and of the batch gate. Counters start at zero with the router.

use core::time::Duration;
use std::collections::BTreeMap;

use strum::{AsRefStr, EnumIter, IntoStaticStr};

use crate::Tier;

/// Figures of one workload tier. All requests of a pool without tiers count as [`Tier::InteractiveNormal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStatus {
    /// The tier, as requests name it. A promoted batch request counts under [`Tier::NonInteractive`].
    pub tier: Tier,
    /// Requests that wait.
    pub waiting: usize,
    /// Wait of the oldest waiting request.
    pub oldest_wait: Duration,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests dispatched to replicas.
    pub dispatched: u64,
    /// Rejected requests.
    pub rejected: u64,
    /// Requests whose first token came within their budget.
    pub within_slo: u64,
    /// Requests whose first token came later.
    pub past_slo: u64,
}

/// Figures of the batch gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchStatus {
    /// Effective memory utilisation of the pool, with what was sent since the last probes; `None` where the engines do not tell it.
    pub utilisation: Option<f64>,
    /// Batch requests that the next signal would release.
    pub credit: u32,
    /// Held requests.
    pub held: usize,
    /// Wait of the oldest held request.
    pub oldest_wait: Duration,
    /// Requests that the gate let go, by reason.
    pub released: BTreeMap<ReleaseReason, u64>,
}

/// The reason for which the gate let a batch request go.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, EnumIter, IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum ReleaseReason {
    /// The utilisation was below the higher threshold.
    BelowHigh,
    /// The utilisation was below the lower threshold.
    BelowLow,
    /// The deadline is near: the request was promoted.
    Promoted,
}

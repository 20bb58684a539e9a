//! Status of the regions, for operators and metrics.

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, IntoStaticStr};

/// State of another region.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    IntoStaticStr,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RegionState {
    /// The region has not been heard since the start.
    NeverHeard,
    /// The region is heard and has a gateway.
    Up,
    /// The region is heard and reports that it has no gateway.
    NoGateway,
    /// The region is no longer heard.
    Lost,
    /// The region runs and must not be used.
    Refused,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionsCounters {
    /// Accepted heartbeats.
    pub heartbeats: u64,
    /// Rejected heartbeats: late, repeated, or of another ping.
    pub heartbeats_rejected: u64,
    /// Losses of peers.
    pub regions_lost: u64,
}

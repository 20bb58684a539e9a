//! Status of the regions, for operators and metrics.

use core::time::Duration;
use std::sync::Arc;

use strum::{AsRefStr, IntoStaticStr};

use super::message::RegionName;
use isotherm_router::PeerId;
use serde::{Deserialize, Serialize};

/// Status of another region, as one service hears it.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRegionStatus {
    /// Id of the region.
    pub id: PeerId,
    /// Name of the region.
    pub name: RegionName,
    /// State of the region.
    pub state: RegionState,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
    /// Time since the ping of the last accepted heartbeat.
    pub heartbeat_age: Option<Duration>,
    /// Version of the region's software.
    pub version: Option<Arc<str>>,
}

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
    /// Rejected heartbeats: late, repeated, never asked for, or of another link.
    pub heartbeats_rejected: u64,
    /// Losses of peers.
    pub regions_lost: u64,
}

//! Status of the regions as this service sees them, for operators and metrics.

use std::time::SystemTime;

use isotherm_regions::LeaseCounters;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, IntoStaticStr};

/// Status of all regions.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionsStatus {
    /// Name of this region.
    pub name: String,
    /// Whether an Envoy of this region is connected, to this service or to a sibling that is heard.
    pub has_gateway: bool,
    /// The lease of this region's replicas; absent without a store.
    pub lease: Option<LeaseState>,
    /// Other regions, in order of name.
    pub peers: Vec<PeerState>,
    /// Other services of this region, in order of address.
    pub siblings: Vec<SiblingState>,
    /// Counters since the start.
    pub counters: RegionsCounters,
    /// Counters of leases since the start.
    pub lease_counters: LeaseCounters,
    /// Time of expiry of this region's certificate, if known; absent without TLS.
    pub certificate_expires: Option<SystemTime>,
}

/// Counters since the start, by the names of their metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionsCounters {
    /// Heartbeats of other regions, each newer than the one before.
    pub heartbeats: u64,
    /// Times that the link to another region went down, or its heartbeats stayed away.
    pub regions_lost: u64,
    /// Inbound connections and requests rejected.
    pub peer_handshakes_rejected: u64,
    /// Addresses of leased replicas outside their configured networks.
    pub peer_addresses_rejected: u64,
    /// Reloads of the certificate.
    pub certificate_loads: u64,
    /// Rejected reloads, after which the previous files stay in use.
    pub certificate_failures: u64,
    /// Messages with placements sent to siblings. A message counts once per sibling.
    pub sharing_sent: u64,
    /// Messages with placements received from siblings.
    pub sharing_received: u64,
    /// Messages with placements dropped because the link was down or slow.
    pub sharing_dropped: u64,
}

/// State of another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, IntoStaticStr, Serialize, Deserialize)]
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

/// The lease of a region's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    /// Region that holds the lease and decides about the replicas; absent while no region does.
    pub holder: Option<String>,
    /// Revision of the holder, which grows with each change.
    pub revision: u64,
    /// Time since the last list of the store; absent before the first.
    pub store_age_ms: Option<u64>,
}

/// Origin of a region's name and address.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, AsRefStr, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PeerSource {
    /// The configuration names the region.
    #[default]
    Configuration,
    /// The store names the region.
    Store,
}

/// Status of another region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerState {
    /// Name of the region.
    pub name: String,
    /// Envoy cluster that leads to the region.
    pub cluster: String,
    /// Address of the region's service.
    pub address: String,
    /// State of the link.
    #[serde(flatten)]
    pub link: LinkState,
    /// State of the region.
    pub state: RegionState,
    /// Origin of the region's name and address.
    pub source: PeerSource,
    /// The lease of its replicas; absent without a store.
    pub lease: Option<LeaseState>,
    /// Smoothed round trip.
    pub round_trip_ms: Option<f64>,
    /// Time since the ping of the last heartbeat.
    pub heartbeat_age_ms: Option<u64>,
    /// Version of the region's software.
    pub version: Option<String>,
    /// Replicas in the region's record; zero without a store.
    pub replicas: usize,
    /// Replicas of the region in this service's pools.
    pub leased: usize,
}

/// Status of a sibling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiblingState {
    /// Address of the sibling.
    pub address: String,
    /// State of the link.
    #[serde(flatten)]
    pub link: LinkState,
    /// Smoothed round trip.
    pub round_trip_ms: Option<f64>,
    /// Time since the ping of the last heartbeat.
    pub heartbeat_age_ms: Option<u64>,
    /// Queued requests in all pools by the last heartbeat; zero when it is too old.
    pub queue: u32,
}

/// State of a link to another service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, AsRefStr, IntoStaticStr)]
#[serde(rename_all = "snake_case", tag = "link", content = "link_error")]
#[strum(serialize_all = "snake_case")]
pub enum LinkState {
    /// The link has not been up since the start.
    Dialling,
    /// The link is up.
    Up,
    /// The link is down, with a reason such as "connection refused". The service keeps dialling.
    Unreachable(String),
    /// The far end runs and must not be used, with a reason such as "its certificate is not for eu.isotherm".
    Refused(String),
}

impl LinkState {
    /// Returns the reason why the link is down.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Dialling | Self::Up => None,
            Self::Unreachable(reason) | Self::Refused(reason) => Some(reason),
        }
    }
}

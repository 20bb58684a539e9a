//! The JSON of `/api/regions`.

use serde::{Deserialize, Serialize};

/// `GET /api/regions`: the regions, as this service sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionsView {
    /// This region's name; absent where the service knows no other regions.
    pub name: Option<String>,
    /// Whether an Envoy of this region is connected.
    pub gateway: bool,
    /// Who may adopt this region's replicas, first choice first.
    pub successors: Vec<String>,
    /// The pools of this region, as this service sees them; others are told the queues of all its services together.
    pub pools: Vec<RegionPoolView>,
    /// The other regions.
    pub peers: Vec<PeerView>,
    /// The other services of this region.
    pub siblings: Vec<SiblingView>,
}

/// What a region says of one of its pools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionPoolView {
    /// Its model.
    pub pool: String,
    /// Replicas that take another request now.
    pub available: u32,
    /// Replicas in all.
    pub replicas: u32,
    /// Requests that they could start at once; absent where nothing bounds it.
    pub free_capacity: Option<u32>,
    /// Requests that wait.
    pub queue: u32,
    /// How many requests a second it would finish when full; zero while that is not known.
    pub drain_per_s: f32,
}

/// Another region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerView {
    /// Its name.
    pub name: String,
    /// The Envoy cluster that leads to it.
    pub cluster: String,
    /// Where its service listens.
    pub address: String,
    /// The link to it: `up`, `dialling`, `unreachable` or `refused`.
    pub link: String,
    /// Why the link is not up.
    pub why: Option<String>,
    /// State of the region: `up`, `no_gateway`, `never_heard`, `lost`, `refused`, `dead` or `declared_lost`.
    pub state: String,
    /// While it is down: why its replicas are not adopted here.
    pub blocked: Option<String>,
    /// Round trip.
    pub round_trip_ms: Option<f64>,
    /// How long ago its last heartbeat was asked for.
    pub heartbeat_age_ms: Option<u64>,
    /// The version of its software.
    pub version: Option<String>,
    /// How many replicas it has, by its record.
    pub replicas: usize,
    /// How many of them are in this service's pools.
    pub adopted: usize,
    /// Other regions that say they hold its replicas.
    pub held_by: Vec<String>,
    /// Its pools, as far as this region has them too.
    pub pools: Vec<PeerPoolView>,
}

/// Another region's pool of a model, as this one sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerPoolView {
    /// The model.
    pub pool: String,
    /// Whether requests are forwarded there: `available`, or why not.
    pub availability: String,
    /// What it said of this pool last.
    pub said: Option<RegionPoolView>,
    /// Requests sent there since the start.
    pub forwarded: u64,
    /// Of these, those that came back.
    pub returned: u64,
    /// Requests sent there and not finished.
    pub in_flight: u32,
    /// How many of its replicas of this model are adopted here.
    pub adopted: usize,
}

/// Another service of this region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiblingView {
    /// Where it listens.
    pub address: String,
    /// The link to it: `up`, `dialling`, `unreachable` or `refused`.
    pub link: String,
    /// Why the link is not up.
    pub why: Option<String>,
    /// Round trip.
    pub round_trip_ms: Option<f64>,
    /// How long ago its last heartbeat was asked for.
    pub heartbeat_age_ms: Option<u64>,
    /// Requests that wait there.
    pub queue: u32,
}

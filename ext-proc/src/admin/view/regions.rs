//! The JSON of `/api/regions`.

use serde::{Deserialize, Serialize};

/// `GET /api/regions`: the regions, as this service sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionsView {
    /// This region's name; absent where the service knows no other regions.
    pub name: Option<String>,
    /// Whether an Envoy of this region is connected.
    pub gateway: bool,
    /// Regions that may adopt this region's replicas, first choice first.
    pub successors: Vec<String>,
    /// The pools of this region, as this service sees them; others are told the queues of all its services together.
    pub pools: Vec<RegionPoolView>,
    /// Peers.
    pub peers: Vec<PeerView>,
    /// Siblings.
    pub siblings: Vec<SiblingView>,
}

/// State of one pool, as its region reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionPoolView {
    /// Model.
    pub pool: String,
    /// Replicas that take another request now.
    pub available: u32,
    /// Replicas in all.
    pub replicas: u32,
    /// Requests that they could start at once; absent where nothing bounds it.
    pub free_capacity: Option<u32>,
    /// Requests that wait.
    pub queue: u32,
    /// Requests per second that the full pool finishes; zero while unknown.
    pub drain_per_s: f32,
}

/// Another region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerView {
    /// Name.
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
    /// Age of the last heartbeat.
    pub heartbeat_age_ms: Option<u64>,
    /// The version of its software.
    pub version: Option<String>,
    /// Number of replicas in its record.
    pub replicas: usize,
    /// Number of these replicas in this service's pools.
    pub adopted: usize,
    /// Other regions that say they hold its replicas.
    pub held_by: Vec<String>,
    /// Pools that both regions have.
    pub pools: Vec<PeerPoolView>,
}

/// Another region's pool of a model, as this one sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerPoolView {
    /// The model.
    pub pool: String,
    /// Whether requests are forwarded there: `available`, or why not.
    pub availability: String,
    /// Last report of this pool.
    pub said: Option<RegionPoolView>,
    /// Requests sent there since the start.
    pub forwarded: u64,
    /// Number of forwarded requests that returned.
    pub returned: u64,
    /// Requests sent there and not finished.
    pub in_flight: u32,
    /// Number of its replicas of this model that are adopted here.
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
    /// Age of the last heartbeat.
    pub heartbeat_age_ms: Option<u64>,
    /// Requests that wait there.
    pub queue: u32,
}

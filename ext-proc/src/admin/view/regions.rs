//! The JSON of `/api/regions`.

use serde::{Deserialize, Serialize};

use crate::regions::{LeaseState, PeerState, SiblingState};

/// `GET /api/regions`: the regions, as this service sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RegionsView {
    /// This region's name; absent if the configuration has no section `region`.
    pub name: Option<String>,
    pub has_gateway: bool,
    /// The lease of this region's replicas; absent without a store.
    pub lease: Option<LeaseState>,
    /// Pools of this region, as this service sees them. Peers receive the queues of all services of the region together.
    pub pools: Vec<RegionPoolView>,
    pub peers: Vec<PeerView>,
    pub siblings: Vec<SiblingState>,
}

/// The load of a region's pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RegionPoolView {
    pub pool: String,
    /// Replicas that accept another request now.
    pub available: u32,
    pub replicas: u32,
    /// Requests that the replicas could start at once; absent if unlimited.
    pub free_capacity: Option<u32>,
    pub queue: u32,
    /// Requests per second that the pool finishes when it is full; zero if unknown.
    pub drain_per_s: f32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerView {
    #[serde(flatten)]
    pub region: PeerState,
    /// Pools of models that this region has as well.
    pub pools: Vec<PeerPoolView>,
}

/// Another region's pool of a model, as this service sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerPoolView {
    pub pool: String,
    /// Whether the service forwards requests there: `available`, or the reason why not.
    pub availability: String,
    /// Last report of the region about the pool.
    pub report: Option<RegionPoolView>,
    /// Requests forwarded there since the start.
    pub forwarded: u64,
    /// Forwarded requests that came back.
    pub returned: u64,
    /// Requests forwarded there and not finished.
    pub in_flight: u32,
    /// Replicas of that pool whose lease this region holds.
    pub leased: usize,
}

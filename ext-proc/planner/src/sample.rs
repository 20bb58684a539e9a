//! Samples for the planner: the demand of a minute, the state of the replicas, the rows of peer regions.

use serde::{Deserialize, Serialize};

use isotherm_router::Time;

use crate::DemandSums;

/// A report to the planner.
#[derive(Clone, Debug, PartialEq)]
pub enum Sample {
    /// Demand of one pool in one minute.
    Demand(String, DemandSample),
    /// State of a pool's replicas, every few seconds.
    Replicas(String, ReplicasSample),
    /// Rows of a peer region.
    Peer(PeerSample),
    /// A forecast from outside, for [`ForecastModel::Supplied`](crate::ForecastModel::Supplied): the peak of the coming
    /// window, in the unit of the signal.
    Forecast(String, f64),
    /// The plan of the sibling that leads, which this planner adopts.
    Adopted(String, AdoptedPlan),
}

/// Demand of one pool in one minute, as one service measured it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemandSample {
    /// Start of the minute. The planner rounds it down to a full minute.
    pub minute: Time,
    /// Service that reports. Reports of several services add up; a second report of the same service replaces its first.
    pub reporter: String,
    /// Interactive and promoted requests.
    pub interactive: DemandSums,
    /// Non-interactive requests.
    pub batch: DemandSums,
    /// Work of the interactive requests that waited at the end of the minute, in seconds of one replica.
    pub waiting_s: f64,
}

/// State of a pool's replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicasSample {
    /// Every replica that the pool knows.
    pub replicas: Vec<ReplicaSample>,
    /// Effective memory utilisation of the replicas that are ready, as a share; `None` if unknown.
    pub utilisation: Option<f64>,
    /// Work that waits, in seconds of one replica.
    pub waiting_s: f64,
    /// Requests that wait.
    pub waiting: u32,
    /// Mean capacity of a replica's KV cache, in tokens; `None` if unknown.
    pub kv_tokens: Option<f64>,
}

/// State of one replica.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSample {
    /// Stable name: the address.
    pub name: String,
    /// State.
    pub state: ReplicaState,
    /// Work to recompute the prefixes that were used in the last ten minutes and that only this replica holds, in seconds.
    pub warmth_s: f64,
    /// Requests dispatched and not finished.
    pub outstanding: u32,
}

/// State of a replica, as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplicaState {
    /// Known, without a good probe yet.
    Starting,
    /// Serves requests.
    Ready,
    /// Finishes its requests and gets no new ones.
    Draining,
}

/// Rows of a peer region, one for each of its pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerSample {
    /// Region.
    pub region: String,
    /// Row of each pool, by the pool's name.
    pub rows: Vec<(String, RegionRow)>,
}

/// One region's part of the program for one pool: what regions exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionRow {
    /// Replicas that the region has ordered (the paper's n).
    pub replicas: u32,
    /// Forecast of the region's peak demand (ρ).
    pub demand: f64,
    /// Demand that one replica serves (θ).
    pub capacity: f64,
    /// The fewest replicas.
    pub min: u32,
    /// The most replicas.
    pub max: u32,
}

/// A plan that another service made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdoptedPlan {
    /// Number of replicas.
    pub desired: u32,
    /// Version of the number.
    pub epoch: u64,
    /// Replicas that drain because of the plan.
    pub drained: Vec<String>,
    /// Hold of an operator, which outlasts the service that took it.
    pub hold: Option<Hold>,
}

/// A number that an operator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hold {
    /// Number of replicas; the bounds of the configuration still apply.
    pub replicas: u32,
    /// End of the hold.
    pub until: Time,
}

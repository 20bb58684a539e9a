//! Demand and numbers of replicas, as services tell each other.

use std::sync::Arc;

use isotherm_planner::{AdoptedPlan, DemandSums, RegionRow};

/// Demand and numbers of replicas of one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingShare {
    /// Start of the sender, in nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// A number that is new with each start of the sender.
    pub incarnation: u64,
    /// The sender's pools.
    pub pools: Vec<PoolShare>,
}

/// Demand and number of replicas of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolShare {
    /// Model of the pool.
    pub model: Arc<str>,
    /// The last complete minute, in minutes since the Unix epoch; zero before the first.
    pub minute: u64,
    /// Demand of interactive requests in the minute.
    pub interactive: DemandSums,
    /// Demand of non-interactive requests in the minute.
    pub batch: DemandSums,
    /// Work of the requests that waited at the end of the minute, in seconds of one replica.
    pub waiting_s: f64,
    /// Number of replicas that the sender plans.
    pub plan: AdoptedPlan,
    /// The region's row of the program.
    pub row: RegionRow,
}

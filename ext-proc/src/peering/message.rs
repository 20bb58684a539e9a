//! The messages between services, and their form on the wire: CBOR (RFC 8949).
//!
//! A service posts each message to `/isotherm/peering/v2` of another service. The response to a ping is a heartbeat; the response
//! to any other message is empty. `Host` names the region that is called (`eu.isotherm`). A status of the 4xx class has the
//! reason as its text. The certificates identify both services; without TLS a header names the caller.
//!
//! A service ignores fields that it does not know, and reads an absent field with a default as zero. A field therefore keeps
//! its name and its meaning, and a new one has a default. Anything else needs a new path.

use std::sync::Arc;

use isotherm_planner::{AdoptedPlan, DemandSums, RegionRow};
use isotherm_regions::Heartbeat;
use serde::{Deserialize, Serialize};

use crate::pool::SharedPlacement;

/// Path of every request, with the version of the protocol.
pub const PATH: &str = "/isotherm/peering/v2";
/// Header with the caller's region, which counts without TLS only.
pub const REGION_HEADER: &str = "x-isotherm-region";
/// Header with a number that is new with each start of the caller.
pub(super) const INCARNATION_HEADER: &str = "x-isotherm-incarnation";

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A request for a heartbeat.
    Ping,
    /// The response to a ping.
    Heartbeat(Heartbeat),
    /// Placements of a sibling since its last message, each with the model of its pool.
    Placements(Vec<(Arc<str>, SharedPlacement)>),
    /// Demand and numbers of replicas. Siblings read all of it, services of other regions only the rows.
    Scaling(Arc<ScalingShare>),
}

/// Demand and numbers of replicas of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScalingShare {
    /// Start of the sender, in nanoseconds since the Unix epoch. Among siblings the one that started first leads.
    pub started_unix_ns: u64,
    /// A number that is new with each start of the sender.
    pub incarnation: u64,
    /// The sender's pools.
    pub pools: Vec<PoolShare>,
}

/// Demand and number of replicas of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolShare {
    /// Model of the pool. It has no default: pools of no bytes would make a short message a long list.
    pub model: Arc<str>,
    /// The last complete minute, in minutes since the Unix epoch; zero before the first.
    #[serde(default)]
    pub minute: u64,
    /// Demand of interactive requests in the minute.
    #[serde(default)]
    pub interactive: DemandSums,
    /// Demand of non-interactive requests in the minute.
    #[serde(default)]
    pub batch: DemandSums,
    /// Work of the requests that waited at the end of the minute, in seconds of one replica.
    #[serde(default)]
    pub waiting_s: f64,
    /// Number of replicas that the sender plans.
    #[serde(default)]
    pub plan: AdoptedPlan,
    /// The region's row of the program.
    #[serde(default)]
    pub row: RegionRow,
}

//! Peers as a pool's router knows them: their reports and their status.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, IntoStaticStr};

use crate::Time;

/// Id of a peer: its place in the service's configuration, the same in all pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u16);

/// Report of a region about one of its pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerReport {
    /// Replicas that can start another request.
    pub available: u32,
    /// Replicas in all.
    pub replicas: u32,
    /// Requests that the replicas could start at once, summed; `u32::MAX` for an unbounded pool.
    #[serde(rename = "free")]
    pub free_capacity: u32,
    /// Queued requests.
    pub queue: u32,
    /// Requests per second that leave the queue of the fully loaded pool; zero while unknown.
    pub drain_per_s: f32,
    /// Cost of a prompt there; `None` from a policy without costs, and while no replica is available.
    pub prompt_cost: Option<PromptCost>,
    /// Effective memory utilisation: share of the memory for KV caches in use, with what was sent since the last probes. `None` from engines
    /// that do not tell it.
    pub utilisation: Option<f32>,
    /// Capacity of all KV caches in tokens; 0 where the engines do not tell it.
    #[serde(rename = "kv_tokens")]
    pub kv_capacity_tokens: u64,
    /// Batch requests that the pool would start now.
    pub batch_credit: u32,
    /// Held batch requests, which `queue` includes.
    pub batch_queue: u32,
}

/// Cost of a prompt of which no replica of a pool holds a part, in parts that another region adds its own wait and SLO to. A
/// prompt of n tokens has its first token after `first_token_s + prompt_token_s x n`, and costs other requests
/// `others_s + others_token_s x n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f32; 4]", into = "[f32; 4]")]
pub struct PromptCost {
    /// Time to the first token of an empty prompt, in seconds.
    pub first_token_s: f32,
    /// Time to compute a prompt token, in seconds.
    pub prompt_token_s: f32,
    /// Cost of an empty prompt and its answer to other requests and to the answer itself, in seconds.
    pub others_s: f32,
    /// Cost of each prompt token to other requests, in seconds.
    pub others_token_s: f32,
}

impl From<[f32; 4]> for PromptCost {
    fn from([first_token_s, prompt_token_s, others_s, others_token_s]: [f32; 4]) -> Self {
        Self {
            first_token_s,
            prompt_token_s,
            others_s,
            others_token_s,
        }
    }
}

impl From<PromptCost> for [f32; 4] {
    fn from(cost: PromptCost) -> Self {
        cost.parts()
    }
}

impl PromptCost {
    /// Every part, in the order of their declaration.
    #[must_use]
    pub const fn parts(&self) -> [f32; 4] {
        [
            self.first_token_s,
            self.prompt_token_s,
            self.others_s,
            self.others_token_s,
        ]
    }

    /// The cost of so many prompts at once on one replica.
    pub(crate) fn times(self, prompts: f32) -> Self {
        Self {
            first_token_s: self.first_token_s,
            prompt_token_s: self.prompt_token_s * prompts,
            others_s: self.others_s * prompts,
            others_token_s: self.others_token_s * prompts,
        }
    }
}

/// Status of a peer in one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerStatus {
    /// Id of the peer.
    pub id: PeerId,
    /// Name of the peer.
    pub name: String,
    /// Whether requests are forwarded to the peer, or why not.
    pub availability: PeerAvailability,
    /// Last report.
    pub report: Option<PeerReport>,
    /// Time at which the last report was asked for.
    pub as_of: Option<Time>,
    /// Round trip, as measured with the last report.
    pub round_trip: Option<Duration>,
    /// Requests forwarded since `as_of` by this service and its siblings, which the report does not count.
    pub forwarded_since: u32,
    /// Forwarded requests that have not finished.
    pub outstanding: u32,
    /// Prompt bytes that the index over peers holds for the peer.
    pub prefix_bytes: u64,
    /// Requests forwarded since the start.
    pub forwarded: u64,
    /// Forwarded requests that returned.
    pub returned: u64,
}

/// Whether requests are forwarded to a peer, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PeerAvailability {
    /// Requests are forwarded.
    Available,
    /// No report of this pool has arrived yet.
    NeverHeard,
    /// The link to the peer is down, or the peer has no such pool.
    Lost,
    /// The last report is too old.
    Stale,
    /// The circuit breaker is open: the last requests failed or returned.
    Failing,
    /// A request returned; the next report decides.
    Refused,
    /// No replica of the peer can start another request.
    NoReplica,
    /// The window of the last report is used up.
    Paced,
    /// The queue is too long, counting the requests forwarded since the last report.
    LongQueue,
}

//! Status for operators: the replicas, and the explanation of a decision.

use core::time::Duration;

use strum::{AsRefStr, EnumIter, IntoStaticStr};

use crate::{
    AdapterState, AdapterStatus, Load, PeerAvailability, PeerId, Reason, ReplicaId, Role, Time,
};

/// Status of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaStatus {
    /// Identity.
    pub id: ReplicaId,
    /// Stable name.
    pub name: String,
    /// The part of a request that the replica serves.
    pub role: Role,
    /// Requests dispatched and not finished; of a prefill replica, prompts.
    pub outstanding: u32,
    /// Requests of other services at the replica, by what siblings told and gauges showed.
    pub of_others: u32,
    /// Load of the last good probe, if it showed one.
    pub load: Option<Load>,
    /// Time when the last good probe was sent.
    pub probed: Option<Time>,
    /// Whether that probe showed a load. Without one, the pool counts the replica's outstanding requests.
    pub has_metrics: bool,
    /// Whether the counters of its metrics page are those of several processes in turn, so that they tell nothing.
    pub has_several_processes: bool,
    /// Requests that the replica admits before its next probe; `None` where the push rule does not bound it.
    pub headroom: Option<u32>,
    /// Length of the prompts that the index holds for the replica, in bytes.
    pub prefix_bytes: u64,
    /// Whether the replica is available, or why not.
    pub availability: Availability,
    /// Whether the replica drains.
    pub draining: bool,
    /// Adapters of the replica, if it ever told of one.
    pub adapters: Option<AdapterStatus>,
}

/// Whether a replica is available, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Availability {
    /// Available.
    Available,
    /// The replica drains.
    Draining,
    /// The replica was never probed.
    NeverProbed,
    /// The last probe failed.
    ProbeFailed,
    /// The last good probe is stale.
    Stale,
    /// The circuit breaker is open: recent requests failed.
    Failing,
    /// The circuit breaker is open: the replica accepts requests, and nothing comes back.
    Hung,
    /// The last probe shows a pending request.
    Pending,
    /// The requests since the last probe use up the admission headroom.
    NoHeadroom,
    /// The fixed limit of outstanding requests is reached.
    Full,
}

/// Where a learned quantity comes from, best source first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    IntoStaticStr,
    EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum Source {
    /// Usage of answers: token counts of single requests.
    Usage,
    /// Counters of the engine's metrics page.
    Counters,
    /// Times to first token, with presumed token counts.
    FirstTokens,
    /// Durations of answers, with presumed parts: the time to first token of a whole answer, or the tokens of a stream.
    Answers,
    /// Nothing: a constant.
    #[default]
    Presumed,
}

/// Source of each quantity that a pool learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Time to compute a prompt.
    pub prompt_speed: Source,
    /// Time to write an answer.
    pub decode_speed: Source,
    /// Prompt bytes in a token.
    pub token_length: Source,
    /// Prompt tokens that engines find in their caches.
    pub cache_hits: Source,
    /// Tokens of an answer.
    pub answer_length: Source,
}

/// Learned quantities of a pool, with their sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolEstimates {
    /// Source of each quantity.
    pub signals: Signals,
    /// Time to the first token of a prompt without uncached tokens, in seconds.
    pub first_token_s: f64,
    /// Time to compute a prompt token, in seconds.
    pub prompt_token_s: f64,
    /// Time to write an output token for the only request of a replica, in seconds.
    pub output_token_s: f64,
    /// Time of a decode step, without the part that grows with the batch, in seconds.
    pub decode_step_s: f64,
    /// Further time of a decode step for each request in the batch, in seconds.
    pub decode_request_s: f64,
    /// Prompt bytes in a token.
    pub bytes_per_token: f64,
    /// Mean answer length, in tokens.
    pub output_tokens: f64,
}

/// Explanation of the decision for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Replicas that may serve the request, in order of name.
    pub candidates: Vec<Candidate>,
    /// Peers that the request may be forwarded to, in order of name.
    pub peers: Vec<PeerCandidate>,
    /// Decision that would be made now.
    pub choice: Choice,
}

/// A peer as a candidate for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerCandidate {
    /// Identity.
    pub peer: PeerId,
    /// Name.
    pub name: String,
    /// Length of the prompt that the index over peers holds for the peer, in bytes.
    pub matched_bytes: u32,
    /// Whether the peer is available, or why not.
    pub availability: PeerAvailability,
    /// Estimated time to first token there, if the peer reported.
    pub estimated_ttft: Option<Duration>,
}

/// A replica as a candidate for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Identity.
    pub replica: ReplicaId,
    /// Stable name.
    pub name: String,
    /// The part of a request that the replica serves.
    pub role: Role,
    /// Length of the prompt that the index holds for the replica, in bytes.
    pub matched_bytes: u32,
    /// Requests dispatched and not finished.
    pub outstanding: u32,
    /// Pending requests at its last probe.
    pub pending: Option<u32>,
    /// Whether the replica is available, or why not.
    pub availability: Availability,
    /// State of the request's adapter on the replica.
    pub adapter: Option<AdapterState>,
    /// Score by the policy: more is better, comparable within one explanation and one kind of replica only. Of a prefill
    /// replica, minus the estimated seconds until it has computed the prompt.
    pub score: f64,
}

/// The decision that would be made for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Dispatch to a replica.
    Dispatch {
        /// Selected replica.
        replica: ReplicaId,
        /// The prefill replica that computes the prompt, if one does.
        prefiller: Option<ReplicaId>,
        /// Reason of the selection.
        reason: Reason,
    },
    /// Forward to a peer.
    Forward {
        /// Selected peer.
        peer: PeerId,
        /// Reason of the selection.
        reason: Reason,
    },
    /// Wait in the queue.
    Wait {
        /// Preferred replica, if the policy names one.
        replica: Option<ReplicaId>,
        /// Requests in front of it.
        ahead: usize,
    },
    /// Reject.
    Reject {
        /// Reason of the rejection.
        reason: crate::RejectReason,
    },
}

/// Figures of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantStatus {
    /// The tenant; `None` for all tenants without an entry of their own.
    pub id: Option<crate::TenantId>,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests dispatched to replicas and not finished.
    pub in_flight: usize,
    /// Tokens of both: prompts and expected answers, by estimate.
    pub tokens: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests rejected because of a bound of the tenant.
    pub refused: u64,
    /// Prompt tokens of answers, as engines report them.
    pub prompt_tokens: u64,
    /// Cached tokens of the same prompts.
    pub cached_tokens: u64,
}

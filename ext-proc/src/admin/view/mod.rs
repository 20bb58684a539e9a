//! The JSON of the admin interface: the server writes it, the command line reads it.

mod regions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use regions::{PeerPoolView, PeerView, RegionPoolView, RegionsView, SiblingView};

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorView,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorView {
    /// For programs, such as `unknown_pool`.
    pub code: String,
    /// For people: what is wrong and what to do.
    pub message: String,
}

/// `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Whether the service can route.
    pub ready: bool,
    /// Why not.
    pub why: Option<String>,
}

/// `POST /api/reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadResponse {
    /// Whether anything is different now.
    pub changed: bool,
    /// Changed options that only a restart applies.
    pub restart_needed_for: Vec<String>,
}

/// `POST /api/replicas`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewReplica {
    /// The pool's model; may be absent where there is one pool.
    pub pool: Option<String>,
    /// `ip:port`.
    pub address: String,
}

/// `POST /api/recording`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRecording {
    /// The pool's model; may be absent where there is one pool.
    pub pool: Option<String>,
    /// Requests to record at most.
    pub requests: u64,
    /// For how long requests are recorded at most, in seconds.
    pub seconds: u64,
}

/// A pool, as `GET /api/pools` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolView {
    /// Model.
    pub pool: String,
    /// Other names of the same model.
    pub aliases: Vec<String>,
    /// Envoy cluster.
    pub cluster: String,
    /// How replicas are chosen.
    pub policy: String,
    /// When a replica may get one more request.
    pub push: String,
    /// Number of replicas.
    pub replicas: usize,
    /// Number of available replicas.
    pub available_replicas: usize,
    /// Requests that wait here.
    pub queue_length: usize,
    /// Wait of the oldest waiting request.
    pub oldest_wait_ms: u64,
    /// Requests dispatched and not finished.
    pub in_flight: usize,
    /// Distinct prefixes in the index.
    pub index_nodes: usize,
    /// Memory of the index.
    pub index_bytes: usize,
    /// Counters since the start.
    pub counters: CountersView,
}

/// Counters of a pool since the start of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersView {
    /// Requests that arrived.
    pub arrived: u64,
    /// Number of requests that waited.
    pub queued: u64,
    /// Requests dispatched, by reason.
    pub decisions: BTreeMap<String, u64>,
    /// Requests refused, by reason.
    pub rejects: BTreeMap<String, u64>,
    /// Responses that ended well.
    pub finished_ok: u64,
    /// Responses that ended badly.
    pub finished_failed: u64,
    /// Prompt tokens of the requests whose engine said what it found in its cache.
    pub measured_prompt_tokens: u64,
    /// Cached tokens of these requests, as engines measured them.
    pub measured_cached_tokens: u64,
    /// Cached tokens of these requests, as the index predicted them.
    pub predicted_cached_tokens: u64,
}

/// A replica, as `GET /api/replicas` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// The model of its pool.
    pub pool: String,
    /// `ip:port`.
    pub address: String,
    /// Whether it takes another request: `available`, or why not.
    pub availability: String,
    /// Whether it is being drained.
    pub draining: bool,
    /// The region that it belongs to, where this one only looks after it.
    #[serde(default)]
    pub adopted_from: Option<String>,
    /// Requests sent to it and not finished.
    pub outstanding: u32,
    /// Requests in its own queue at its last probe.
    pub pending: Option<u32>,
    /// Requests in its batch at its last probe.
    pub running: Option<u32>,
    /// Requests that the replica admits before its next probe; absent where nothing bounds it.
    pub headroom: Option<u32>,
    /// Share of its KV cache in use, from 0 to 1.
    pub kv_usage: Option<f32>,
    /// Capacity of its KV cache.
    pub kv_capacity_tokens: Option<u64>,
    /// Age of its last good probe.
    pub probe_age_ms: Option<u64>,
}

/// `POST /api/explain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The request's path, such as `/v1/chat/completions`.
    pub path: String,
    /// Request headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Request body: text, or a JSON value, whose order of members and
    /// white space count as written.
    #[serde(default)]
    pub body: Option<Box<RawValue>>,
    /// The filter's configuration, as Envoy gives it to the filter; its defaults when absent.
    #[serde(default)]
    pub filter: Option<Box<RawValue>>,
}

/// The answer to `POST /api/explain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainResponse {
    /// Result of the filter.
    pub request: RequestView,
    /// Decision that would be made now.
    pub outcome: OutcomeView,
    /// The model of the pool that it belongs to.
    pub pool: Option<String>,
    /// The pool's policy.
    pub policy: Option<String>,
    /// Every replica that may serve it, best score first.
    pub candidates: Vec<CandidateView>,
    /// Every region that it may be forwarded to.
    #[serde(default)]
    pub regions: Vec<RegionCandidateView>,
}

/// Result of the filter for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestView {
    /// Model.
    pub model: Option<String>,
    /// Session key, as headers carry it.
    pub session: Option<String>,
    /// Workload tier.
    pub tier: Option<String>,
    /// The length of its rendered prompt.
    pub prompt_bytes: u32,
    /// The estimated length of its prompt.
    pub prompt_tokens: u32,
    /// Number of blocks of the fingerprint.
    pub blocks: usize,
    /// Why its prompt could not be read, or not to its end.
    pub problem: Option<String>,
}

/// The decision that would be made for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum OutcomeView {
    /// Dispatch to a replica at once.
    Dispatch {
        /// Where to.
        replica: String,
        /// Why there.
        reason: String,
    },
    /// Forward to another region at once.
    Forward {
        /// Where to.
        region: String,
        /// Why there.
        reason: String,
    },
    /// Wait in the queue.
    Wait {
        /// For this replica, where the policy names one.
        replica: Option<String>,
        /// Requests in front of it.
        ahead: usize,
    },
    /// Reject.
    Reject {
        /// Why.
        reason: String,
    },
    /// No pool decides: it is answered, or passed on, without one.
    NoPool {
        /// Effect on the request.
        what: String,
    },
}

/// A replica, as it looks to the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateView {
    /// `ip:port`.
    pub replica: String,
    /// Score by the policy; more is better.
    pub score: f64,
    /// Length of the prompt that the index holds for the replica, in bytes.
    pub matched_bytes: u32,
    /// Matched share of the prompt, from 0 to 1.
    pub matched_share: f64,
    /// Requests sent to it and not finished.
    pub outstanding: u32,
    /// Requests in its own queue at its last probe.
    pub pending: Option<u32>,
    /// Whether it takes another request: `available`, or why not.
    pub availability: String,
}

/// Another region, as it looks to the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionCandidateView {
    /// Name.
    pub region: String,
    /// Length of the prompt that the index over peers holds for the peer, in bytes.
    pub matched_bytes: u32,
    /// Matched share of the prompt, from 0 to 1.
    pub matched_share: f64,
    /// Estimated time to first token there, without the prefill.
    pub estimated_ttft_ms: Option<u64>,
    /// Whether it takes requests of this region: `available`, or why not.
    pub availability: String,
}

//! The JSON of the admin interface: the service writes it, and the command line reads it.

mod history;
mod regions;
mod scaling;
mod tiers;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(crate) use history::{PoolHistoryView, SampleView};
pub(crate) use regions::{PeerPoolView, PeerView, RegionPoolView, RegionsView};
pub(crate) use scaling::{ForecastView, NewHold, PoolScalingView, ScalingView};
pub(crate) use tiers::{BatchView, PoolTenantsView, TenantView, TierView};

/// `POST /api/replicas`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReplica {
    /// Model of the pool; may be absent if there is one pool.
    pub pool: Option<String>,
    pub address: String,
    /// `both`, `prefill` or `decode`; `both` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// `POST /api/recording`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRecording {
    /// Model of the pool; may be absent if there is one pool.
    pub pool: Option<String>,
    pub requests: u64,
    /// Longest duration of the recording, in seconds.
    pub seconds: u64,
}

/// An entry of `GET /api/pools`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolView {
    pub pool: String,
    pub aliases: Vec<String>,
    pub cluster: String,
    pub policy: String,
    /// Pushing mode: when a replica may get one more request.
    pub push: String,
    pub replicas: usize,
    /// Whether the sources have reported the replicas.
    #[serde(default)]
    pub has_synced: bool,
    /// Reason why the sources of the replicas cannot be followed now.
    #[serde(default)]
    pub source_problem: Option<String>,
    pub available_replicas: usize,
    pub queue_length: usize,
    pub oldest_wait_ms: u64,
    pub in_flight: usize,
    pub index_nodes: usize,
    pub index_bytes: usize,
    pub counters: CountersView,
    /// Tiers, the most urgent first; none in a pool without them.
    #[serde(default)]
    pub tiers: Vec<TierView>,
    #[serde(default)]
    pub learned: LearnedView,
}

/// Quantities that a pool has learned of its engines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LearnedView {
    /// Time in which a replica computes a prompt token.
    pub prompt_token_s: f64,
    /// Time to first token of a prompt without uncached tokens.
    pub first_token_s: f64,
    /// Time in which a replica writes an output token of its only request.
    pub output_token_s: f64,
    /// Prompt bytes in a token.
    pub bytes_per_token: f64,
    /// Mean length of an answer.
    pub output_tokens: f64,
    /// Source of each quantity: `usage`, `counters`, `first_tokens`, `answers` or `presumed`.
    pub sources: BTreeMap<String, String>,
}

/// Counters of a pool since the start of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountersView {
    /// Requests that need a replica.
    pub arrived: u64,
    pub queued: u64,
    pub decisions: BTreeMap<String, u64>,
    pub rejects: BTreeMap<String, u64>,
    pub finished_ok: u64,
    pub finished_failed: u64,
    /// Requests that Envoy sent elsewhere than to their selected replica, at the first attempt.
    #[serde(default)]
    pub overridden: u64,
    /// Requests that a timeout of Envoy ended.
    #[serde(default)]
    pub timed_out: u64,
    /// Prompt tokens of requests whose engine reports its cache hits.
    pub measured_prompt_tokens: u64,
    /// Prompt tokens that engines found in their caches, over the same requests.
    pub measured_cached_tokens: u64,
    /// Prompt tokens that the prefix index predicted to be cached, over the same requests.
    pub predicted_cached_tokens: u64,
    /// Prompt tokens that engines looked up in their caches, by their counters.
    #[serde(default)]
    pub counted_prompt_tokens: u64,
    /// Prompt tokens that engines found there, by their counters.
    #[serde(default)]
    pub counted_cached_tokens: u64,
}

/// An entry of `GET /api/replicas`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplicaView {
    pub pool: String,
    pub address: String,
    /// The part of a request that the replica serves: `both`, `prefill` or `decode`.
    #[serde(default)]
    pub role: String,
    /// Whether the replica accepts another request: `available`, or the reason why not.
    pub availability: String,
    pub draining: bool,
    /// Home region of a leased replica.
    #[serde(default)]
    pub owner: Option<String>,
    /// Requests sent to the replica and not finished.
    pub outstanding: u32,
    /// Requests in the replica's own queue at its last probe.
    pub pending: Option<u32>,
    /// Requests in the replica's batch at its last probe.
    pub running: Option<u32>,
    /// Admission headroom: further requests before the next probe; absent if unlimited.
    pub headroom: Option<u32>,
    /// Share of the KV cache in use, from 0 to 1.
    pub kv_usage: Option<f32>,
    pub kv_capacity_tokens: Option<u64>,
    pub probe_age_ms: Option<u64>,
    /// Whether the replica answers probes without metrics, so that its outstanding requests decide.
    #[serde(default)]
    pub without_metrics: bool,
    /// Whether several processes answer at the address in turn, so that their counters tell nothing.
    #[serde(default)]
    pub several_processes: bool,
    /// Adapters of the replica, if it told of any.
    #[serde(default)]
    pub adapters: Option<AdaptersView>,
    /// Failure of the replica; absent where it does not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureView>,
}

/// Since when a replica fails, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailureView {
    /// Start of the failure, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Why, in a sentence.
    pub reason: String,
}

/// Adapters of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdaptersView {
    /// Adapters that the replica can serve; absent if it does not list them.
    pub listed: Option<Vec<String>>,
    /// Adapters that the replica is believed to hold, least recently used first.
    pub loaded: Vec<String>,
    /// Adapters whose requests wait for a slot.
    pub waiting: Vec<String>,
    /// Adapters that the replica serves at a time, if it reports that.
    pub slots: Option<u32>,
}

/// An entry of `GET /api/decisions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecisionView {
    /// Time of the decision, in milliseconds since 1970.
    pub time_unix_ms: u64,
    /// `x-request-id`, if Envoy has sent it.
    pub id: Option<String>,
    pub pool: String,
    /// Number of the request in its pool.
    pub request: u64,
    /// The replica or the region that gets the request; absent if it was rejected.
    pub target: Option<String>,
    pub reason: String,
    /// Share of the prompt that the prefix index has for the target, from 0 to 1.
    pub matched_share: f64,
    pub queued_ms: f64,
    /// Region that forwarded the request.
    pub origin: Option<String>,
    /// Tenant that sent the request, if it has a name.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Tier of the request, in a pool with tiers.
    #[serde(default)]
    pub tier: Option<String>,
    /// The response, once it has ended.
    pub response: Option<ResponseView>,
}

/// The end of a response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResponseView {
    pub status: u16,
    /// Time to the first byte.
    pub ttft_ms: Option<f64>,
    pub prompt_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    pub output_tokens: Option<u32>,
}

/// `POST /api/explain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    pub path: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body of the request: text, or a JSON value. A value keeps its spelling: the order of members and the form of
    /// numbers are part of a prompt.
    #[serde(default)]
    pub body: Option<Box<RawValue>>,
    /// Configuration of the filter, as Envoy gives it to the filter; absent for the filter's defaults.
    #[serde(default)]
    pub filter: Option<Box<RawValue>>,
    /// Name of the tenant, in place of the sources in `filter`.
    #[serde(default)]
    pub tenant: Option<String>,
}

/// Response to `POST /api/explain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExplainResponse {
    pub request: RequestView,
    /// Decision that the service would make now.
    pub outcome: OutcomeView,
    pub pool: Option<String>,
    pub policy: Option<String>,
    /// Quantities that the pool has learned of its engines.
    #[serde(default)]
    pub learned: Option<LearnedView>,
    /// Replicas that may serve the request, best score first.
    pub candidates: Vec<CandidateView>,
    /// Regions that the service may forward the request to.
    #[serde(default)]
    pub regions: Vec<RegionCandidateView>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestView {
    pub model: Option<String>,
    /// Session key, as headers carry it.
    pub session: Option<String>,
    /// Tenant, as headers carry it.
    #[serde(default)]
    pub tenant: Option<String>,
    pub tier: Option<String>,
    /// Budget for the first token, in milliseconds.
    #[serde(default)]
    pub ttft_ms: Option<u64>,
    /// Time left until the deadline, in milliseconds.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    pub prompt_bytes: u32,
    pub prompt_tokens: u32,
    pub blocks: usize,
    /// Reason why the filter could not read the whole prompt.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub(crate) enum OutcomeView {
    /// The service would dispatch the request to a replica at once.
    Dispatch {
        replica: String,
        /// The prefill replica that would compute the prompt, if one would.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prefiller: Option<String>,
        reason: String,
    },
    /// The service would forward the request to another region at once.
    Forward { region: String, reason: String },
    /// The request would wait in the queue.
    Wait {
        /// The replica that the policy prefers over an available one, if any.
        replica: Option<String>,
        ahead: usize,
    },
    /// The service would reject the request.
    Reject { reason: String },
    /// No pool decides: the service answers the request itself, or passes it on.
    NoPool {
        /// Description of what the service would do.
        what: String,
    },
}

/// A replica as a candidate for a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CandidateView {
    pub replica: String,
    /// The part of a request that the replica serves: `both`, `prefill` or `decode`.
    #[serde(default)]
    pub role: String,
    /// Score of the policy; higher is better, among replicas that compute prompts for others and among the others.
    pub score: f64,
    /// Prompt bytes that the prefix index has for the replica.
    pub matched_bytes: u32,
    /// Matched share of the prompt, from 0 to 1.
    pub matched_share: f64,
    /// Requests sent to the replica and not finished.
    pub outstanding: u32,
    /// Requests in the replica's own queue at its last probe.
    pub pending: Option<u32>,
    /// State of the request's adapter on the replica, if the request names one: `loaded`, `waiting`, `free_slot`, `evicts`, `full`.
    #[serde(default)]
    pub adapter: Option<String>,
    /// Whether the replica accepts another request: `available`, or the reason why not.
    pub availability: String,
}

/// Another region as a candidate for a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RegionCandidateView {
    pub region: String,
    /// Prompt bytes that were sent to the region before.
    pub matched_bytes: u32,
    /// Matched share of the prompt, from 0 to 1.
    pub matched_share: f64,
    /// Estimated time to first token from the region, without the prefill of the prompt.
    pub estimated_ttft_ms: Option<u64>,
    /// Whether the region accepts requests of this region: `available`, or the reason why not.
    pub availability: String,
}

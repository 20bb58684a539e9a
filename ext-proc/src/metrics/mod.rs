//! What operators watch. Every name begins with `isotherm_`.
//!
//! Figures that the routing cores keep anyway (decisions, queue, index, replicas) are read from them when somebody
//! scrapes ([`PoolCollector`]): nothing is counted twice, and a replica that left is gone from the page. Only what
//! the cores do not know is counted here.
//!
//! | name | type | labels | meaning |
//! | --- | --- | --- | --- |
//! | `isotherm_ext_proc_streams` | gauge | | requests that Envoy has open with this service now |
//! | `isotherm_decision_streams` | gauge | | open decision streams: one for each worker thread of an Envoy, and one for its main thread |
//! | `isotherm_requests_total` | counter | `result` | answers to request headers: `routed`, `forwarded`, `passed` (no pool is concerned, or the service stops), `not_found`, `bad_request`, `models`, `rejected`, `aborted` (the client left while it waited) |
//! | `isotherm_bad_headers_total` | counter | `header` | headers of the filter that could not be read |
//! | `isotherm_queue_wait_seconds` | histogram | `pool` | how long dispatched requests had waited here |
//! | `isotherm_ttft_seconds` | histogram | `pool` | from the decision to the first byte of a streamed answer |
//! | `isotherm_eds_streams` | gauge | | Envoys that follow the endpoints now |
//! | `isotherm_eds_pushes_total` | counter | | endpoint updates sent |
//! | `isotherm_eds_nacks_total` | counter | | endpoint updates that an Envoy refused |
//! | `isotherm_decisions_total` | counter | `pool`, `reason` | requests dispatched |
//! | `isotherm_rejects_total` | counter | `pool`, `reason` | requests refused |
//! | `isotherm_arrived_total` | counter | `pool` | requests that wanted a replica |
//! | `isotherm_queued_total` | counter | `pool` | of these, those that had to wait |
//! | `isotherm_aborted_total` | counter | `pool`, `phase` | clients that went away while `waiting` or `in_flight`; without the response filter every response ends as the latter, since Envoy then ends both in the same way |
//! | `isotherm_finished_total` | counter | `pool`, `result` | responses that ended `ok` (status 2xx) or `failed` |
//! | `isotherm_retried_elsewhere_total` | counter | `pool` | responses of another replica than the chosen one |
//! | `isotherm_predicted_cached_tokens_total` | counter | `pool` | prompt tokens that the index took for cached |
//! | `isotherm_measured_cached_tokens_total` | counter | `pool` | prompt tokens that engines found in their caches, same requests |
//! | `isotherm_prediction_error_tokens_total` | counter | `pool` | sum of the absolute differences of the two |
//! | `isotherm_measured_prompt_tokens_total` | counter | `pool` | prompt tokens, same requests |
//! | `isotherm_false_hits_total` | counter | `pool` | predicted hits that did not happen and corrected the index |
//! | `isotherm_queue_length` | gauge | `pool` | requests that wait now |
//! | `isotherm_queue_oldest_wait_seconds` | gauge | `pool` | how long the oldest of them has waited |
//! | `isotherm_in_flight` | gauge | `pool` | requests dispatched and not finished |
//! | `isotherm_available_replicas` | gauge | `pool` | replicas that would take a request now |
//! | `isotherm_index_nodes` | gauge | `pool` | distinct prefixes in the index |
//! | `isotherm_index_entries` | gauge | `pool` | pairs of prefix and replica in the index |
//! | `isotherm_index_bytes` | gauge | `pool` | memory of the index |
//! | `isotherm_index_evicted_total` | counter | `pool` | pairs forgotten for want of room |
//! | `isotherm_replica_outstanding` | gauge | `pool`, `replica` | requests sent to it and not finished |
//! | `isotherm_replica_pending` | gauge | `pool`, `replica` | requests in its own queue at its last probe |
//! | `isotherm_replica_running` | gauge | `pool`, `replica` | requests in its batch at its last probe |
//! | `isotherm_replica_kv_usage` | gauge | `pool`, `replica` | share of its KV cache in use, 0 to 1 |
//! | `isotherm_replica_probe_age_seconds` | gauge | `pool`, `replica` | age of its last good probe |
//! | `isotherm_replica_available` | gauge | `pool`, `replica`, `state` | 1 when it takes another request; `state` says why not (`failing`: its requests fail, whatever its probes say) |
//! | `isotherm_forwarded_total` | counter | `pool`, `region` | requests sent to another region |
//! | `isotherm_returned_total` | counter | `pool`, `region` | of these, those that came back: refused, or not served there |
//! | `isotherm_forwarded_in_flight` | gauge | `pool`, `region` | requests sent to another region and not finished |
//! | `isotherm_forwarded_prompt_tokens_total` | counter | `pool` | prompt tokens of forwarded requests whose engine told what it found in its cache |
//! | `isotherm_forwarded_cached_tokens_total` | counter | `pool` | what it found, same requests |
//! | `isotherm_forwarded_in_total` | counter | `pool` | requests of other regions |
//! | `isotherm_forwarded_in_refused_total` | counter | `pool` | of these, those that were sent back because the queue was too long |
//! | `isotherm_adopted_replicas` | gauge | `pool`, `region` | replicas of another region that this one looks after |
//! | `isotherm_peer_available` | gauge | `pool`, `region`, `state` | 1 when requests are forwarded there; `state` says why not |
//! | `isotherm_peer_available_replicas` | gauge | `pool`, `region` | replicas there that take another request, as it said last |
//! | `isotherm_peer_free_capacity` | gauge | `pool`, `region` | requests that it could start at once, as it said last |
//! | `isotherm_peer_queue_length` | gauge | `pool`, `region` | requests that wait there, as it said last |
//! | `isotherm_peer_index_bytes` | gauge | `pool` | memory of the index over other regions |
//! | `isotherm_placements_sent_total` | counter | `pool` | placements that the other services of this region were told |
//! | `isotherm_placements_received_total` | counter | `pool` | placements that they told |
//! | `isotherm_placements_unattached_total` | counter | `pool` | of these, those that continue a prefix which is not known here |
//! | `isotherm_placements_unknown_total` | counter | `pool` | placements that they told, with a replica or a region that is unknown here |
//! | `isotherm_placements_dropped_total` | counter | `pool` | placements that they were not told in time |
//! | `isotherm_region_link_up` | gauge | `region`, `state` | 1 when the link to another region is up; `state` is `up`, `dialling`, `unreachable` or `refused` |
//! | `isotherm_region_state` | gauge | `region`, `state` | 1 for the state of the region: `up`, `no_gateway`, `never_heard`, `lost`, `refused` (it lives and must not be used), `dead` or `declared_lost` |
//! | `isotherm_region_round_trip_seconds` | gauge | `region` | round trip to it |
//! | `isotherm_region_heartbeat_age_seconds` | gauge | `region` | how long ago its last heartbeat was asked for |
//! | `isotherm_region_gateway` | gauge | `region` | 1 while an Envoy of this region (the label) is connected |
//! | `isotherm_certificate_expires_seconds` | gauge | `region` | when this region's certificate expires, in seconds since 1970 |
//! | `isotherm_certificate_loads_total` | counter | | times that new files of certificates were loaded |
//! | `isotherm_certificate_failures_total` | counter | | times that new files were refused; the ones before stay in use until they expire |
//! | `isotherm_sibling_link_up` | gauge | `sibling`, `state` | 1 when the link to another service of this region is up |
//! | `isotherm_sibling_heartbeat_age_seconds` | gauge | `sibling` | how long ago its last heartbeat was asked for |
//! | `isotherm_peer_handshakes_rejected_total` | counter | | services that called and were turned away: no certificate or a wrong one, or nonsense |
//! | `isotherm_heartbeats_total` | counter | | heartbeats of other regions that were believed |
//! | `isotherm_heartbeats_refused_total` | counter | | heartbeats that were not: late, repeated, never asked for |
//! | `isotherm_records_refused_total` | counter | | records of other regions' replicas that were not believed |
//! | `isotherm_regions_lost_total` | counter | | times that a region was lost |
//! | `isotherm_adoptions_total` | counter | | times that this region adopted another one's replicas |
//! | `isotherm_adoption_conflicts_total` | counter | | times that another region held the same replicas: should stay zero |
//! | `isotherm_sharing_sent_total` | counter | | messages with placements to the other services of this region |
//! | `isotherm_sharing_received_total` | counter | | messages with placements from them |
//! | `isotherm_sharing_dropped_total` | counter | | messages with placements that were lost on a link that was down or behind |
//! | `isotherm_probe_duration_seconds` | histogram | `pool` | how long probes took, good and bad |
//! | `isotherm_probe_failures_total` | counter | `pool`, `reason` | probes that failed: `timeout`, `connection`, `status`, `too_large`, `page` |

mod fleet;
mod forwarding;
mod page;
pub(crate) mod probe;
mod regions;

use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

pub use fleet::PoolCollector;
pub use probe::ProbeMetrics;
pub use regions::RegionCollector;

/// What every name begins with.
pub const PREFIX: &str = "isotherm";

/// What the service counts by itself.
#[derive(Debug)]
pub struct Metrics {
    /// Requests that Envoy has open with this service.
    pub ext_proc_streams: Gauge,
    /// Lines that are open.
    pub decision_streams: Gauge,
    /// Envoys that follow the endpoints.
    pub eds_streams: Gauge,
    /// Endpoint updates sent.
    pub eds_pushes: Counter,
    /// Endpoint updates refused.
    pub eds_nacks: Counter,
    requests: Family<ResultLabel, Counter>,
    bad_headers: Family<HeaderLabel, Counter>,
    queue_wait: Family<PoolLabel, Histogram, fn() -> Histogram>,
    ttft: Family<PoolLabel, Histogram, fn() -> Histogram>,
    unknown_placements: Family<PoolLabel, Counter>,
}

/// How request headers were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestResult {
    /// A replica was chosen.
    Routed,
    /// Another region was chosen.
    Forwarded,
    /// Envoy goes on as if the service were not there.
    Passed,
    /// No pool serves the model.
    NotFound,
    /// The request names no model, and there are several.
    BadRequest,
    /// The list of models.
    Models,
    /// The queue refused it.
    Rejected,
    /// The client went away while it waited.
    Aborted,
}

impl RequestResult {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::Forwarded => "forwarded",
            Self::Passed => "passed",
            Self::NotFound => "not_found",
            Self::BadRequest => "bad_request",
            Self::Models => "models",
            Self::Rejected => "rejected",
            Self::Aborted => "aborted",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HeaderLabel {
    header: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

impl Metrics {
    /// The metrics, registered with a registry whose prefix is [`PREFIX`].
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            ext_proc_streams: Gauge::default(),
            decision_streams: Gauge::default(),
            eds_streams: Gauge::default(),
            eds_pushes: Counter::default(),
            eds_nacks: Counter::default(),
            requests: Family::default(),
            bad_headers: Family::default(),
            queue_wait: Family::new_with_constructor(wait_buckets),
            ttft: Family::new_with_constructor(ttft_buckets),
            unknown_placements: Family::default(),
        };
        registry.register(
            "ext_proc_streams",
            "Requests that Envoy has open with this service",
            metrics.ext_proc_streams.clone(),
        );
        registry.register(
            "decision_streams",
            "Open decision streams: one for each worker thread of an Envoy, and one for its main thread",
            metrics.decision_streams.clone(),
        );
        registry.register(
            "requests",
            "Answers to request headers",
            metrics.requests.clone(),
        );
        registry.register(
            "bad_headers",
            "Headers of the filter that could not be read",
            metrics.bad_headers.clone(),
        );
        registry.register(
            "queue_wait_seconds",
            "How long dispatched requests had waited",
            metrics.queue_wait.clone(),
        );
        registry.register(
            "ttft_seconds",
            "From the decision to the first byte of a streamed answer",
            metrics.ttft.clone(),
        );
        registry.register(
            "placements_unknown",
            "Shared placements with a replica or a region that is unknown here",
            metrics.unknown_placements.clone(),
        );
        registry.register(
            "eds_streams",
            "Envoys that follow the endpoints",
            metrics.eds_streams.clone(),
        );
        registry.register(
            "eds_pushes",
            "Endpoint updates sent",
            metrics.eds_pushes.clone(),
        );
        registry.register(
            "eds_nacks",
            "Endpoint updates that an Envoy refused",
            metrics.eds_nacks.clone(),
        );
        metrics
    }

    /// Counts an answer to request headers.
    pub fn count_request(&self, result: RequestResult) {
        let label = ResultLabel {
            result: result.as_str(),
        };
        self.requests.get_or_create(&label).inc();
    }

    /// Counts a header of the filter that could not be read.
    pub fn count_bad_header(&self, header: &'static str) {
        self.bad_headers
            .get_or_create(&HeaderLabel { header })
            .inc();
    }

    /// The histograms of one pool, so that nobody looks them up for each request.
    pub(crate) fn pool(&self, name: &str) -> PoolMetrics {
        let label = pool_label(name);
        PoolMetrics {
            queue_wait: self.queue_wait.get_or_create(&label).clone(),
            ttft: self.ttft.get_or_create(&label).clone(),
            unknown_placements: self.unknown_placements.get_or_create(&label).clone(),
        }
    }

    /// Takes a pool that is gone off the page.
    pub(crate) fn forget_pool(&self, name: &str) {
        let label = pool_label(name);
        self.queue_wait.remove(&label);
        self.ttft.remove(&label);
        self.unknown_placements.remove(&label);
    }
}

/// The histograms of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    queue_wait: Histogram,
    ttft: Histogram,
    unknown_placements: Counter,
}

impl PoolMetrics {
    /// A sibling shared a placement with a replica or a region that is unknown here.
    pub(crate) fn unknown_placement(&self) {
        self.unknown_placements.inc();
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.queue_wait.observe(time.as_secs_f64());
    }

    pub(crate) fn observe(&self, outcome: &Outcome) {
        if let Some(ttft_us) = outcome.first_token_us() {
            self.ttft
                .observe(Duration::from_micros(ttft_us).as_secs_f64());
        }
    }
}

fn pool_label(name: &str) -> PoolLabel {
    PoolLabel { pool: name.into() }
}

/// From 1 ms to 33 s: most requests do not wait at all, and none longer than the queue allows.
fn wait_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

/// From 4 ms to 131 s.
fn ttft_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.004, 2.0, 16))
}

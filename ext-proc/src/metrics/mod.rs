//! Metrics for operators. Every name begins with `isotherm_`; `docs/metrics.md` lists them, generated from the registry.
//!
//! Values that the routing cores keep anyway (decisions, queue, index, replicas) are read from them at each scrape
//! ([`PoolCollector`]). So nothing is counted twice, and a removed replica leaves the page. [`Metrics`] counts only what
//! the cores do not know.

mod page;
mod pools;
pub(crate) mod probe;
mod regions;
mod scaling;
#[cfg(test)]
mod tests;

use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};
use strum::IntoStaticStr;

pub use pools::PoolCollector;
pub use probe::ProbeMetrics;
pub use regions::RegionCollector;
pub use scaling::ScalingCollector;

/// The prefix of every name.
pub const PREFIX: &str = "isotherm";

/// Metrics that the service counts itself.
#[derive(Debug)]
pub struct Metrics {
    /// Open ext_proc streams: requests that Envoy has open with this service.
    pub ext_proc_streams: Gauge,
    /// Bytes of request bodies that the service holds.
    pub held_bytes: Gauge,
    /// Bytes of request bodies received.
    pub request_body_bytes: Counter,
    /// Bytes of response bodies received.
    pub response_body_bytes: Counter,
    /// Open decision streams.
    pub decision_streams: Gauge,
    /// Envoys that subscribe to endpoints.
    pub eds_streams: Gauge,
    /// Endpoint updates sent.
    pub eds_pushes: Counter,
    /// Endpoint updates rejected by an Envoy.
    pub eds_nacks: Counter,
    requests: Family<StaticLabel, Counter>,
    bad_headers: Family<StaticLabel, Counter>,
    queue_wait: HistogramFamily,
    ttft: HistogramFamily,
    unknown_placements: Family<PoolLabel, Counter>,
}

/// Creates metrics and registers them.
struct Registrar<'a>(&'a mut Registry);

impl Registrar<'_> {
    fn metric<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    /// Creates a family of histograms in seconds.
    fn seconds(&mut self, name: &str, help: &str, new: fn() -> Histogram) -> HistogramFamily {
        let family = HistogramFamily::new_with_constructor(new);
        self.0
            .register_with_unit(name, help, Unit::Seconds, family.clone());
        family
    }
}

/// A label whose values the service knows.
type StaticLabel = [(&'static str, &'static str); 1];
/// The label `pool`.
type PoolLabel = [(&'static str, String); 1];
type HistogramFamily = Family<PoolLabel, Histogram, fn() -> Histogram>;

/// The reply to request headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RequestResult {
    /// The service selected a replica.
    Routed,
    /// The service selected another region.
    Forwarded,
    /// Envoy continues as if the service did not exist.
    Passed,
    /// No pool serves the model.
    NotFound,
    /// The request names no model, and there are several.
    BadRequest,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The list of models.
    Models,
    /// The queue rejected the request.
    Rejected,
    /// The client disconnected while its request waited.
    Aborted,
}

impl Metrics {
    /// Registers the metrics with a registry whose prefix is [`PREFIX`].
    pub fn register(registry: &mut Registry) -> Self {
        let mut register = Registrar(registry);
        Self {
            ext_proc_streams: register.metric(
                "ext_proc_streams",
                "Requests that Envoy has open with this service",
            ),
            held_bytes: register.metric(
                "held_bytes",
                "Bytes of request bodies that the service holds until it has decided",
            ),
            request_body_bytes: register.metric(
                "request_body_bytes",
                "Bytes of request bodies that Envoy sent to this service; 0 where the filter keeps prompts in the proxy",
            ),
            response_body_bytes: register.metric(
                "response_body_bytes",
                "Bytes of response bodies that Envoy sent to this service",
            ),
            decision_streams: register.metric(
                "decision_streams",
                "Open decision streams: one for each worker thread of an Envoy, and one for its main thread",
            ),
            eds_streams: register.metric("eds_streams", "Envoys that subscribe to endpoints"),
            eds_pushes: register.metric("eds_pushes", "Endpoint updates sent"),
            eds_nacks: register.metric("eds_nacks", "Endpoint updates that an Envoy rejected"),
            requests: register.metric(
                "requests",
                "Requests by result: routed, forwarded, passed (no pool serves them, or the service stops), not_found, \
                 bad_request, models, rejected, aborted (the client disconnected while the request waited)",
            ),
            bad_headers: register.metric(
                "bad_headers",
                "Headers of the filter that could not be parsed",
            ),
            // From 1 ms to 33 s: most requests do not wait at all, and none longer than the queue allows.
            queue_wait: register.seconds(
                "queue_wait",
                "Time that dispatched requests waited in the queue",
                || Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            ),
            // From 4 ms to 131 s.
            ttft: register.seconds(
                "ttft",
                "Time from the decision to the first byte of a streamed response",
                || Histogram::new(exponential_buckets(0.004, 2.0, 16)),
            ),
            unknown_placements: register.metric(
                "placements_unknown",
                "Placements of siblings whose replica or region this service does not know",
            ),
        }
    }

    /// Counts a reply to request headers.
    pub fn count_request(&self, result: RequestResult) {
        let label = [("result", result.into())];
        self.requests.get_or_create(&label).inc();
    }

    /// Counts a header of the filter that could not be parsed.
    pub fn count_bad_header(&self, header: &'static str) {
        let label = [("header", header)];
        self.bad_headers.get_or_create(&label).inc();
    }

    /// Returns the metrics of one pool, so that no request looks them up.
    pub(crate) fn pool(&self, pool: &str) -> PoolMetrics {
        let label = [("pool", pool.to_owned())];
        PoolMetrics {
            queue_wait: self.queue_wait.get_or_create(&label).clone(),
            ttft: self.ttft.get_or_create(&label).clone(),
            unknown_placements: self.unknown_placements.get_or_create(&label).clone(),
        }
    }

    /// Removes the metrics of a pool.
    pub(crate) fn forget_pool(&self, pool: &str) {
        let label = [("pool", pool.to_owned())];
        self.queue_wait.remove(&label);
        self.ttft.remove(&label);
        self.unknown_placements.remove(&label);
    }
}

/// The metrics of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    queue_wait: Histogram,
    ttft: Histogram,
    unknown_placements: Counter,
}

impl PoolMetrics {
    /// Counts a sibling's placement whose replica or region this service does not know.
    pub(crate) fn count_unknown_placement(&self) {
        self.unknown_placements.inc();
    }

    /// Records the time that a dispatched request waited.
    pub(crate) fn observe_wait(&self, time: Duration) {
        self.queue_wait.observe(time.as_secs_f64());
    }

    /// Records the time to first byte of a streamed response.
    pub(crate) fn observe_outcome(&self, outcome: &Outcome) {
        if let Some(ttft_us) = outcome.first_token_us() {
            let ttft = Duration::from_micros(ttft_us);
            self.ttft.observe(ttft.as_secs_f64());
        }
    }
}

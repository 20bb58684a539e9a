//! Metrics for operators. Every name begins with `isotherm_`; `docs/metrics.md` lists them, generated from the registry.
//!
//! Values that the routing cores keep anyway (decisions, queue, index, replicas) are read from them at each scrape
//! ([`PoolCollector`]). So nothing is counted twice, and a removed replica leaves the page. [`Metrics`] counts only what
//! the cores do not know.

mod batch;
mod log;
mod page;
mod pools;
pub(crate) mod probe;
mod process;
mod regions;
mod reload;
mod requests;
mod scaling;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use strum::IntoStaticStr;

use requests::RequestMetrics;

pub(crate) use batch::BatchMetrics;
pub use pools::PoolCollector;
pub use probe::ProbeMetrics;
pub use process::ProcessCollector;
pub use regions::RegionCollector;
pub use reload::ReloadMetrics;
pub(crate) use requests::{PoolMetrics, PromptRead, RequestTimes};
pub use scaling::ScalingCollector;

/// The prefix of every name.
pub const PREFIX: &str = "isotherm";

/// Metrics that the service counts itself.
#[derive(Debug)]
pub struct Metrics {
    /// Requests that Envoy has open with this service.
    pub open_requests: Gauge,
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
    of_pools: RequestMetrics,
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
    fn seconds<L: EncodeLabelSet + Clone + Debug + Eq + Hash + Send + Sync + 'static>(
        &mut self,
        name: &str,
        help: &str,
        new: fn() -> Histogram,
    ) -> Family<L, Histogram, fn() -> Histogram> {
        let family = Family::new_with_constructor(new);
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
    /// The health of the service.
    Health,
    /// The queue rejected the request.
    Rejected,
    /// The client disconnected while its request waited.
    Aborted,
}

impl Metrics {
    /// Registers the metrics with a registry whose prefix is [`PREFIX`].
    pub fn register(registry: &mut Registry) -> Self {
        registry.register_collector(Box::new(log::LogCollector));
        registry.register(
            "build",
            "The version of the service",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let mut register = Registrar(registry);
        Self {
            open_requests: register.metric(
                "open_requests",
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
                "Requests by result: routed, forwarded, passed, not_found, bad_request, body_timeout, models, health, rejected, \
                 aborted. Passed: no pool serves them, or the service stops. Aborted: the client disconnected in the queue",
            ),
            bad_headers: register.metric("bad_headers", "Unreadable headers of the filter"),
            of_pools: RequestMetrics::register(&mut register),
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
        self.of_pools.pool(pool)
    }

    /// Removes the metrics of a pool.
    pub(crate) fn forget_pool(&self, pool: &str) {
        self.of_pools.forget(pool);
    }
}

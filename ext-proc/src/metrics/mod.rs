//! Metrics for operators. Every name begins with `isotherm_`; `docs/metrics.md` lists them, generated from the registry.
//!
//! Values that the routing cores keep anyway (decisions, queue, index, replicas) are read from them at each scrape
//! ([`PoolCollector`]). So nothing is counted twice, and a removed replica leaves the page. [`Metrics`] counts only what
//! the cores do not know.

mod log;
mod page;
mod pools;
pub(crate) mod probe;
mod regions;
mod scaling;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::Tier;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};
use strum::IntoStaticStr;

use crate::tier::{self, TIERS};
use page::escape;

pub use pools::PoolCollector;
pub use probe::ProbeMetrics;
pub use regions::RegionCollector;
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
    queue_wait: HistogramFamily,
    ttft: HistogramFamily,
    tier_queue_wait: TierHistogramFamily,
    tier_ttft: TierHistogramFamily,
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
/// The labels `pool` and `tier`.
type TierLabel = [(&'static str, String); 2];
type HistogramFamily = Family<PoolLabel, Histogram, fn() -> Histogram>;
type TierHistogramFamily = Family<TierLabel, Histogram, fn() -> Histogram>;

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
            queue_wait: register.seconds(
                "queue_wait",
                "Time that dispatched requests waited in the queue",
                wait_histogram,
            ),
            ttft: register.seconds(
                "ttft",
                "Time from the decision to the first byte of a streamed response",
                ttft_histogram,
            ),
            tier_queue_wait: register.seconds(
                "tier_queue_wait",
                "Time that dispatched requests of a tier waited in the queue",
                wait_histogram,
            ),
            tier_ttft: register.seconds(
                "tier_ttft",
                "Time from the decision to the first byte of a streamed response to a request of a tier",
                ttft_histogram,
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
        let pool = &*escape(pool);
        let label = [("pool", pool.to_owned())];
        PoolMetrics {
            queue_wait: self.queue_wait.get_or_create(&label).clone(),
            ttft: self.ttft.get_or_create(&label).clone(),
            unknown_placements: self.unknown_placements.get_or_create(&label).clone(),
            tier_queue_wait: self.tier_queue_wait.clone(),
            tier_ttft: self.tier_ttft.clone(),
            tiers: TIERS.map(|tier| tier_label(pool, tier)),
        }
    }

    /// Removes the metrics of a pool.
    pub(crate) fn forget_pool(&self, pool: &str) {
        let pool = &*escape(pool);
        let label = [("pool", pool.to_owned())];
        self.queue_wait.remove(&label);
        self.ttft.remove(&label);
        for label in TIERS.map(|tier| tier_label(pool, tier)) {
            self.tier_queue_wait.remove(&label);
            self.tier_ttft.remove(&label);
        }
        self.unknown_placements.remove(&label);
    }
}

/// A histogram from 1 ms to 33 s: most requests do not wait at all, and few of them longer.
fn wait_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

/// A histogram from 4 ms to 131 s.
fn ttft_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.004, 2.0, 16))
}

fn tier_label(pool: &str, tier: Tier) -> TierLabel {
    [
        ("pool", pool.to_owned()),
        ("tier", tier::name(tier).to_owned()),
    ]
}

/// The metrics of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    queue_wait: Histogram,
    ttft: Histogram,
    unknown_placements: Counter,
    tier_queue_wait: TierHistogramFamily,
    tier_ttft: TierHistogramFamily,
    /// Labels of the tiers, in their order.
    tiers: [TierLabel; 3],
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

    /// Records the time that a dispatched request of a tier waited.
    pub(crate) fn observe_tier_wait(&self, tier: Tier, time: Duration) {
        let label = self.label_of(tier);
        self.tier_queue_wait
            .get_or_create(label)
            .observe(time.as_secs_f64());
    }

    /// Records the time to first byte of a streamed response, to a request of a tier in a pool with tiers.
    pub(crate) fn observe_outcome(&self, outcome: &Outcome, tier: Option<Tier>) {
        if let Some(ttft_us) = outcome.first_token_us() {
            let ttft_s = Duration::from_micros(ttft_us).as_secs_f64();
            self.ttft.observe(ttft_s);
            if let Some(tier) = tier {
                self.tier_ttft
                    .get_or_create(self.label_of(tier))
                    .observe(ttft_s);
            }
        }
    }

    fn label_of(&self, tier: Tier) -> &TierLabel {
        let [fast, normal, batch] = &self.tiers;
        match tier {
            Tier::InteractiveFast => fast,
            Tier::InteractiveNormal => normal,
            Tier::NonInteractive => batch,
        }
    }
}

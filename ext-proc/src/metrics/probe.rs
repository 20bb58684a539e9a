//! Metrics of probes, by pool.
//!
//! Not by replica: `isotherm_replica_available` shows which replica fails, and `isotherm_replica_probe_age_seconds`,
//! which the routing core knows, how old its last successful probe is.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::page::escape;
use super::{HistogramFamily, PoolLabel, Registrar};
use crate::probe::ProbeError;

/// Metrics of probes; clones share their values.
#[derive(Clone, Debug)]
pub struct ProbeMetrics {
    duration: HistogramFamily,
    failures: Family<FailureLabel, Counter>,
    stretch: Gauge<f64, AtomicU64>,
}

type FailureLabel = [(&'static str, String); 2];

impl ProbeMetrics {
    /// Registers the metrics with a registry whose prefix is [`super::PREFIX`].
    pub fn register(registry: &mut Registry) -> Self {
        let mut register = Registrar(registry);
        Self {
            // From 0.5 ms to 16 s.
            duration: register.seconds(
                "probe_duration",
                "Duration of probes, successful and failed",
                || Histogram::new(exponential_buckets(0.000_5, 2.0, 16)),
            ),
            failures: register.metric(
                "probe_failures",
                "Failed probes, by reason: timeout, connection, status, too_large, page",
            ),
            stretch: register.metric(
                "probe_interval_factor",
                "Factor by which the service stretches the interval of probes, which take a quarter of the processors at most",
            ),
        }
    }

    pub(crate) fn pool(&self, pool: &Arc<str>) -> PoolProbeMetrics {
        let metrics = PoolProbeMetrics {
            all: self.clone(),
            pool: escape(pool).into_owned(),
        };
        // A counter that begins with its first failure hides that failure from `rate()`.
        for reason in ProbeError::REASONS {
            drop(self.failures.get_or_create(&metrics.failure(reason)));
        }
        metrics
    }
}

/// The metrics of one pool's probes; dropping them removes their samples.
#[derive(Debug)]
pub(crate) struct PoolProbeMetrics {
    all: ProbeMetrics,
    pool: String,
}

impl PoolProbeMetrics {
    pub(crate) fn observe(&self, took: Duration, failure: Option<&ProbeError>) {
        let duration = self.all.duration.get_or_create(&self.label());
        duration.observe(took.as_secs_f64());
        if let Some(error) = failure {
            let label = self.failure(error.as_str());
            self.all.failures.get_or_create(&label).inc();
        }
    }

    /// Says by how much intervals are stretched.
    pub(crate) fn stretched(&self, factor: f64) {
        self.all.stretch.set(factor);
    }

    fn label(&self) -> PoolLabel {
        [("pool", self.pool.clone())]
    }

    fn failure(&self, reason: &str) -> FailureLabel {
        [("pool", self.pool.clone()), ("reason", reason.to_owned())]
    }
}

impl Drop for PoolProbeMetrics {
    fn drop(&mut self) {
        self.all.duration.remove(&self.label());
        for reason in ProbeError::REASONS {
            self.all.failures.remove(&self.failure(reason));
        }
    }
}

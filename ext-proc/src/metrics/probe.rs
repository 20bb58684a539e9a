//! What is counted about probes.
//!
//! The age of each replica's last good probe is the routing core's to know, and stands with its other figures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::probe::ProbeError;

/// What is counted about probes; clones count together.
#[derive(Clone, Debug)]
pub struct ProbeMetrics {
    duration: Family<PoolLabel, Histogram, fn() -> Histogram>,
    failures: Family<FailureLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabel {
    pool: String,
    replica: String,
    reason: &'static str,
}

impl ProbeMetrics {
    /// The metrics, registered with a registry whose prefix is [`super::PREFIX`].
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor(duration_buckets),
            failures: Family::default(),
        };
        registry.register_with_unit(
            "probe_duration",
            "How long probes took",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "probe_failures",
            "Probes that failed",
            metrics.failures.clone(),
        );
        metrics
    }

    /// The metrics of one replica's probes.
    pub(crate) fn replica(&self, pool: &Arc<str>, addr: SocketAddr) -> ReplicaProbeMetrics {
        let pool = pool.to_string();
        ReplicaProbeMetrics {
            duration: self
                .duration
                .get_or_create(&PoolLabel { pool: pool.clone() })
                .clone(),
            failures: self.failures.clone(),
            pool,
            replica: addr.to_string(),
        }
    }
}

/// The metrics of one replica's probes; its series go with it.
#[derive(Debug)]
pub(crate) struct ReplicaProbeMetrics {
    duration: Histogram,
    failures: Family<FailureLabel, Counter>,
    pool: String,
    replica: String,
}

impl ReplicaProbeMetrics {
    pub(crate) fn observe(&self, took: Duration, failure: Option<&ProbeError>) {
        self.duration.observe(took.as_secs_f64());
        if let Some(error) = failure {
            self.failures
                .get_or_create(&self.label(error.as_str()))
                .inc();
        }
    }

    fn label(&self, reason: &'static str) -> FailureLabel {
        FailureLabel {
            pool: self.pool.clone(),
            replica: self.replica.clone(),
            reason,
        }
    }
}

impl Drop for ReplicaProbeMetrics {
    fn drop(&mut self) {
        for reason in ProbeError::REASONS {
            self.failures.remove(&self.label(reason));
        }
    }
}

/// From 0.5 ms to 16 s.
fn duration_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.0, 16))
}

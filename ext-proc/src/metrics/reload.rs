//! The state of the configuration file: whether its last reload was applied, and when one last was.

use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Registrar;

/// Metrics of reloads; clones share their values.
#[derive(Clone, Debug)]
pub struct ReloadMetrics {
    is_successful: Gauge,
    succeeded_at: Gauge<f64, AtomicU64>,
}

impl ReloadMetrics {
    /// Registers the metrics with a registry whose prefix is [`super::PREFIX`], after the first load.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            is_successful: Registrar(registry).metric(
                "config_last_reload_successful",
                "1 while the configuration file is the one that runs; 0 after a reload that was refused",
            ),
            succeeded_at: Gauge::default(),
        };
        registry.register_with_unit(
            "config_last_reload_success_timestamp",
            "Time of the last load of the configuration that was not refused, in seconds since 1970",
            Unit::Seconds,
            metrics.succeeded_at.clone(),
        );
        metrics.record(true);
        metrics
    }

    /// Records a reload.
    pub fn record(&self, is_applied: bool) {
        self.is_successful.set(is_applied.into());
        if is_applied {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            self.succeeded_at.set(now.unwrap_or_default().as_secs_f64());
        }
    }
}

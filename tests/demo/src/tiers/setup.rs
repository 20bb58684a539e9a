//! The circumstances of all runs: engines, times, and the configurations of the service and of Envoy.

use std::ops::Range;
use std::time::Duration;

use isotherm_harness::envoy::edit_filter;
use isotherm_harness::{EngineOptions, MODEL, Pool, StackBuilder};
use isotherm_policies::PolicyName;
use serde::Serialize;
use serde_json::{Value, json};

use crate::compare::stack_builder;
use crate::scenario::{DemoOptions, Push, Scheme};

/// The header by which clients name their tenant. In production authentication sets it.
pub(super) const TENANT_HEADER: &str = "x-tenant-id";
/// Length of a run, by the engines' clock.
const LENGTH_S: f64 = 600.0;
/// The part of a run in which the burst happens and everything is measured.
const WINDOW_S: Range<f64> = 180.0..480.0;
/// Objectives and times of the service, by the engines' clock.
const FAST_TTFT_MS: f64 = 1_000.0;
const NORMAL_TTFT_MS: f64 = 5_000.0;
const BATCH_WAIT_MS: f64 = 60_000.0;
/// Largest share of a tenant where it is bounded: more than an equal share of the five tenants.
const SHARE_MAX: f64 = 0.3;

/// The circumstances of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct TierSetup {
    /// Replicas.
    pub replicas: usize,
    /// Preset of hardware and model that each replica simulates.
    pub engine: String,
    /// Factor by which everything runs faster than real time.
    pub speed: f64,
    /// Seed of the clients.
    pub seed: u64,
}

impl TierSetup {
    pub(super) fn new(options: &DemoOptions) -> Self {
        Self {
            replicas: usize::from(options.replicas.replicas),
            engine: EngineOptions::default().preset,
            speed: options.speedup,
            seed: options.seed,
        }
    }

    /// This many milliseconds of the engines' clock, in whole milliseconds of this machine's; at least one.
    fn millis(&self, ms: f64) -> u64 {
        let scaled = Duration::from_secs_f64(ms / 1e3 / self.speed).as_millis();
        u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
    }

    /// A time of the engines' clock on this machine's.
    pub(super) fn time(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds / self.speed)
    }

    pub(super) fn length(&self) -> Duration {
        self.time(LENGTH_S)
    }

    /// The part of a run that is measured.
    pub(super) fn window(&self) -> Range<Duration> {
        self.time(WINDOW_S.start)..self.time(WINDOW_S.end)
    }

    /// The part of a run that is measured, in seconds of the engines' clock.
    pub(super) fn window_s(&self) -> Range<f64> {
        WINDOW_S
    }

    pub(super) fn length_s(&self) -> f64 {
        LENGTH_S
    }

    /// A stack with so many replicas and tiers, and with a bound on the share of a tenant if `is_bounded`; not started yet.
    pub(super) fn stack(&self, name: &str, replicas: usize, is_bounded: bool) -> StackBuilder {
        let engine = EngineOptions {
            speed: self.speed,
            ..EngineOptions::default()
        };
        let pool = Pool::new(MODEL).replicas(replicas).engine(engine);
        let scheme = Scheme {
            policy: PolicyName::Isotherm,
            push: Push::Pending,
        };
        let (tiers, ttft_slo_ms) = (self.tiers(), self.millis(NORMAL_TTFT_MS));
        stack_builder(name, pool, self.speed, scheme)
            .service(move |config| {
                config.set("pools/0/tiers", tiers)?;
                config.set("pools/0/ttft_slo_ms", ttft_slo_ms)?;
                if is_bounded {
                    config.set("pools/0/tenants", json!({ "share_max": SHARE_MAX }))?;
                }
                Ok(())
            })
            .envoy(|document| {
                edit_filter(document, "isotherm.request", |filter| {
                    filter.set("tenant_sources", json!([{ "header": TENANT_HEADER }]))
                })
            })
    }

    fn tiers(&self) -> Value {
        json!({
            "fast_ttft_slo_ms": self.millis(FAST_TTFT_MS),
            "batch_wait_ms_max": self.millis(BATCH_WAIT_MS),
        })
    }
}

//! Metrics of requests, by pool: how long each step takes, what the filter read, and what the engines wrote.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::Tier;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use strum::IntoStaticStr;

use super::page::escape;
use super::{HistogramFamily, PoolLabel, Registrar};
use crate::tier::{self, TIERS};

/// Bounds of the times that a client sees, in seconds. Every common objective is a bound, so that the share of requests
/// within it is exact.
const LATENCY_BOUNDS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
/// Bounds of the time per output token, in seconds: those of OpenTelemetry's semantic conventions, which vLLM has, too.
const TOKEN_BOUNDS: [f64; 13] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
];
/// Bounds of the time of a decision, in seconds: from the microseconds of a lookup to a processor that others use.
const DECISION_BOUNDS: [f64; 13] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1,
];

/// The labels `pool` and `tier`.
type TierLabel = [(&'static str, String); 2];
type TierHistogramFamily = Family<TierLabel, Histogram, fn() -> Histogram>;

/// The part of a prompt that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum PromptRead {
    /// The whole prompt.
    Whole,
    /// The beginning, up to a limit of the filter.
    Partial,
    /// Nothing: no filter, no body, or a body that no filter can read.
    None,
}

/// The times of a request whose response has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTimes {
    /// From the arrival to the dispatch.
    pub(crate) until_dispatch: Duration,
    /// From the arrival to the end of the response.
    pub(crate) total: Duration,
}

/// The families of every pool; clones share their values.
#[derive(Clone, Debug)]
pub(super) struct RequestMetrics {
    decision: HistogramFamily,
    queue_wait: TierHistogramFamily,
    ttft: TierHistogramFamily,
    duration: TierHistogramFamily,
    token_time: TierHistogramFamily,
    output_tokens: Family<PoolLabel, Counter>,
    prompts: Family<[(&'static str, String); 2], Counter>,
    unknown_placements: Family<PoolLabel, Counter>,
}

impl RequestMetrics {
    pub(super) fn register(register: &mut Registrar<'_>) -> Self {
        let latency: fn() -> Histogram = || Histogram::new(LATENCY_BOUNDS);
        Self {
            decision: register.seconds(
                "decision_duration",
                "Time of the service from a request to its decision, or to its entry into the queue",
                || Histogram::new(DECISION_BOUNDS),
            ),
            queue_wait: register.seconds(
                "queue_wait",
                "Time that dispatched and forwarded requests waited in the queue. `tier` is empty in a pool without tiers",
                latency,
            ),
            ttft: register.seconds(
                "request_ttft",
                "Time from the arrival of a request at the service to the first byte of its streamed response",
                latency,
            ),
            duration: register.seconds(
                "request_duration",
                "Time from the arrival of an answered request at the service to the end of its response",
                latency,
            ),
            token_time: register.seconds(
                "time_per_output_token",
                "Mean time between two output tokens of a streamed response, by the engine's count",
                || Histogram::new(TOKEN_BOUNDS),
            ),
            output_tokens: register.metric("output_tokens", "Output tokens, as engines report them"),
            prompts: register.metric(
                "prompts",
                "Requests to a path with a prompt, by the part of the prompt that the filter read: whole, partial, none",
            ),
            unknown_placements: register.metric(
                "placements_unknown",
                "Placements of siblings whose replica or region this service does not know",
            ),
        }
    }

    /// Returns the metrics of one pool, so that no request looks them up.
    pub(super) fn pool(&self, pool: &str) -> PoolMetrics {
        let pool = &*escape(pool);
        let label = [("pool", pool.to_owned())];
        let prompts = |read| {
            self.prompts
                .get_or_create(&prompt_label(pool, read))
                .clone()
        };
        PoolMetrics {
            families: self.clone(),
            decision: self.decision.get_or_create(&label).clone(),
            output_tokens: self.output_tokens.get_or_create(&label).clone(),
            whole: prompts(PromptRead::Whole),
            partial: prompts(PromptRead::Partial),
            unread: prompts(PromptRead::None),
            unknown_placements: self.unknown_placements.get_or_create(&label).clone(),
            untiered: self.latencies(&tier_label(pool, None)),
            tiers: Arc::default(),
            pool: pool.into(),
        }
    }

    fn latencies(&self, label: &TierLabel) -> Latencies {
        Latencies {
            queue_wait: self.queue_wait.get_or_create(label).clone(),
            ttft: self.ttft.get_or_create(label).clone(),
            duration: self.duration.get_or_create(label).clone(),
            token_time: self.token_time.get_or_create(label).clone(),
        }
    }

    /// Removes the metrics of a pool.
    pub(super) fn forget(&self, pool: &str) {
        let pool = &*escape(pool);
        let label = [("pool", pool.to_owned())];
        self.decision.remove(&label);
        self.output_tokens.remove(&label);
        self.unknown_placements.remove(&label);
        for read in [PromptRead::Whole, PromptRead::Partial, PromptRead::None] {
            self.prompts.remove(&prompt_label(pool, read));
        }
        for tier in TIERS.map(Some).into_iter().chain([None]) {
            let label = tier_label(pool, tier);
            for family in [
                &self.queue_wait,
                &self.ttft,
                &self.duration,
                &self.token_time,
            ] {
                family.remove(&label);
            }
        }
    }
}

fn prompt_label(pool: &str, read: PromptRead) -> [(&'static str, String); 2] {
    let read: &'static str = read.into();
    [("pool", pool.to_owned()), ("read", read.to_owned())]
}

fn tier_label(pool: &str, tier: Option<Tier>) -> TierLabel {
    let tier = tier.map_or("", tier::name);
    [("pool", pool.to_owned()), ("tier", tier.to_owned())]
}

/// The metrics of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    families: RequestMetrics,
    decision: Histogram,
    output_tokens: Counter,
    whole: Counter,
    partial: Counter,
    unread: Counter,
    unknown_placements: Counter,
    untiered: Latencies,
    /// Tiers appear with their first request: most pools have none.
    tiers: Arc<[OnceLock<Latencies>; TIERS.len()]>,
    pool: Arc<str>,
}

/// The histograms of one tier, or of a pool without tiers.
#[derive(Clone, Debug)]
struct Latencies {
    queue_wait: Histogram,
    ttft: Histogram,
    duration: Histogram,
    token_time: Histogram,
}

impl PoolMetrics {
    /// Counts a sibling's placement whose replica or region this service does not know.
    pub(crate) fn count_unknown_placement(&self) {
        self.unknown_placements.inc();
    }

    /// Counts a request by the part of its prompt that was read.
    pub(crate) fn count_prompt(&self, read: PromptRead) {
        let counter = match read {
            PromptRead::Whole => &self.whole,
            PromptRead::Partial => &self.partial,
            PromptRead::None => &self.unread,
        };
        counter.inc();
    }

    /// Records the time of a decision.
    pub(crate) fn observe_decision(&self, time: Duration) {
        self.decision.observe(time.as_secs_f64());
    }

    /// Records the time that a dispatched or forwarded request waited.
    pub(crate) fn observe_wait(&self, tier: Option<Tier>, time: Duration) {
        self.latencies(tier).queue_wait.observe(time.as_secs_f64());
    }

    /// Records the times and the tokens of an answered request.
    pub(crate) fn observe_answer(
        &self,
        tier: Option<Tier>,
        outcome: &Outcome,
        times: RequestTimes,
    ) {
        let tokens = outcome.completion_tokens.unwrap_or_default();
        self.output_tokens.inc_by(tokens.into());
        let latencies = self.latencies(tier);
        latencies.duration.observe(times.total.as_secs_f64());
        let Some(first_us) = outcome.first_token_us() else {
            return;
        };
        let ttft = times.until_dispatch + Duration::from_micros(first_us);
        latencies.ttft.observe(ttft.as_secs_f64());
        if tokens > 1 {
            let rest = times.total.saturating_sub(ttft).as_secs_f64();
            latencies.token_time.observe(rest / f64::from(tokens - 1));
        }
    }

    fn latencies(&self, tier: Option<Tier>) -> &Latencies {
        let [fast, normal, batch] = &*self.tiers;
        let (cell, tier) = match tier {
            None => return &self.untiered,
            Some(tier @ Tier::InteractiveFast) => (fast, tier),
            Some(tier @ Tier::InteractiveNormal) => (normal, tier),
            Some(tier @ Tier::NonInteractive) => (batch, tier),
        };
        cell.get_or_init(|| self.families.latencies(&tier_label(&self.pool, Some(tier))))
    }
}

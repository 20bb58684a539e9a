//! What the filter counts. Envoy shows these among its own statistics, each worker's added up.

use isotherm_wasm_filter_core::request::{Pass, Prompt, Release};
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

/// A counter or histogram of the host; one that could not be made counts nothing.
#[derive(Clone, Copy, Debug)]
struct Metric(Option<u32>);

/// What the request role counts.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    whole: Metric,
    beginning: Metric,
    kept: Metric,
    passed: [Metric; Pass::ALL.len()],
    body_bytes: Metric,
}

/// What a decision stream counts.
#[derive(Clone, Debug)]
pub(crate) struct DecisionStreamMetrics {
    fell_back: Metric,
}

/// What is counted of answers, by whichever role watches them.
#[derive(Clone, Debug)]
pub(crate) struct ResponseMetrics {
    with_usage: Metric,
    without_usage: Metric,
}

impl RequestMetrics {
    pub(crate) fn define() -> Self {
        Self {
            whole: Metric::counter("isotherm_filter_prompts_whole"),
            beginning: Metric::counter("isotherm_filter_prompts_beginning"),
            kept: Metric::counter("isotherm_filter_prompts_kept"),
            passed: Pass::ALL
                .map(|pass| Metric::counter(&format!("isotherm_filter_passed_{}", pass.as_str()))),
            body_bytes: Metric::define(MetricType::Histogram, "isotherm_filter_body_bytes"),
        }
    }

    pub(crate) fn released(&self, release: &Release) {
        match release.prompt {
            Prompt::Whole => self.whole.increment(),
            Prompt::Beginning => self.beginning.increment(),
            Prompt::Kept => self.kept.increment(),
            Prompt::Unknown(pass) => {
                for (candidate, metric) in Pass::ALL.iter().zip(&self.passed) {
                    if *candidate == pass {
                        metric.increment();
                    }
                }
            }
        }
        if release.body_bytes > 0 {
            self.body_bytes.record(release.body_bytes);
        }
    }
}

impl ResponseMetrics {
    pub(crate) fn define() -> Self {
        Self {
            with_usage: Metric::counter("isotherm_filter_answers_with_usage"),
            without_usage: Metric::counter("isotherm_filter_answers_without_usage"),
        }
    }

    pub(crate) fn answered(&self, has_usage: bool) {
        if has_usage {
            self.with_usage.increment();
        } else {
            self.without_usage.increment();
        }
    }
}

impl DecisionStreamMetrics {
    pub(crate) fn define() -> Self {
        Self {
            fell_back: Metric::counter("isotherm_filter_decision_stream_fallbacks"),
        }
    }

    /// So many requests got no answer on the decision stream, and went on without it.
    pub(crate) fn fell_back(&self, requests: u64) {
        if let (Some(id), 1..) = (self.fell_back.0, requests) {
            let _ = hostcalls::increment_metric(id, i64::try_from(requests).unwrap_or(i64::MAX));
        }
    }
}

impl Metric {
    fn counter(name: &str) -> Self {
        Self::define(MetricType::Counter, name)
    }

    fn define(kind: MetricType, name: &str) -> Self {
        Self(hostcalls::define_metric(kind, name).ok())
    }

    fn increment(self) {
        if let Some(id) = self.0 {
            // A metric that the host has forgotten is no reason to fail a request.
            let _ = hostcalls::increment_metric(id, 1);
        }
    }

    fn record(self, value: usize) {
        if let Some(id) = self.0 {
            let _ = hostcalls::record_metric(id, u64::try_from(value).unwrap_or(u64::MAX));
        }
    }
}

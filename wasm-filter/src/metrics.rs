//! The counters of the filter. Envoy shows them among its statistics, summed over the workers.

use isotherm_wasm_filter_core::request::{PromptCoverage, Release, SkipReason};
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

/// A counter or histogram of the host; it has no effect when the host could not define it.
#[derive(Clone, Copy, Debug)]
struct Metric(Option<u32>);

/// The metrics of the request role.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    complete: Metric,
    partial: Metric,
    forwarded: Metric,
    skipped: [(SkipReason, Metric); SkipReason::ALL.len()],
    body_bytes: Metric,
    pub(crate) responses: ResponseMetrics,
}

/// The metrics of responses, in both roles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseMetrics {
    with_usage: Metric,
    without_usage: Metric,
}

/// The metrics of a decision stream.
#[derive(Debug)]
pub(crate) struct DecisionStreamMetrics {
    fallbacks: Metric,
}

impl RequestMetrics {
    pub(crate) fn define() -> Self {
        let skipped = |reason: SkipReason| {
            let name = format!("isotherm_filter_skipped_{}", reason.as_str());
            (reason, Metric::counter(&name))
        };
        Self {
            complete: Metric::counter("isotherm_filter_prompts_complete"),
            partial: Metric::counter("isotherm_filter_prompts_partial"),
            forwarded: Metric::counter("isotherm_filter_prompts_forwarded"),
            skipped: SkipReason::ALL.map(skipped),
            body_bytes: Metric::define(MetricType::Histogram, "isotherm_filter_body_bytes"),
            responses: ResponseMetrics::define(),
        }
    }

    /// Counts a request that continues.
    pub(crate) fn count(&self, release: &Release) {
        match release.coverage {
            PromptCoverage::Complete => self.complete.add(1),
            PromptCoverage::Partial => self.partial.add(1),
            PromptCoverage::Forwarded => self.forwarded.add(1),
            PromptCoverage::Skipped(reason) => {
                let mut skipped = self.skipped.iter();
                if let Some((_, metric)) = skipped.find(|(candidate, _)| *candidate == reason) {
                    metric.add(1);
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
            with_usage: Metric::counter("isotherm_filter_responses_with_usage"),
            without_usage: Metric::counter("isotherm_filter_responses_without_usage"),
        }
    }

    /// Counts a response.
    pub(crate) fn count(&self, has_usage: bool) {
        if has_usage {
            self.with_usage.add(1);
        } else {
            self.without_usage.add(1);
        }
    }
}

impl DecisionStreamMetrics {
    pub(crate) fn define() -> Self {
        Self {
            fallbacks: Metric::counter("isotherm_filter_decision_stream_fallbacks"),
        }
    }

    /// Counts requests that the filter released without a decision.
    pub(crate) fn count_fallbacks(&self, requests: u64) {
        if requests > 0 {
            self.fallbacks.add(requests);
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

    fn add(self, count: u64) {
        if let Some(id) = self.0 {
            // A request does not fail because the host has lost a metric.
            let _ = hostcalls::increment_metric(id, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    fn record(self, value: usize) {
        if let Some(id) = self.0 {
            let _ = hostcalls::record_metric(id, value as u64);
        }
    }
}

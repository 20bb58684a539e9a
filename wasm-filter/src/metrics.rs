//! The counters of the filter. Envoy shows them among its statistics, summed over the workers.

use isotherm_wasm_filter_core::request::{PromptCoverage, Release, SkipReason};
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

/// A counter or histogram of the host; it has no effect when the host could not define it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric(Option<u32>);

#[derive(Debug)]
pub(crate) struct RequestMetrics {
    prompts: Vec<(PromptCoverage, Metric)>,
    body_bytes: Metric,
    rejected_paths: Metric,
    passed_paths: Metric,
    pub(crate) responses: ResponseMetrics,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseMetrics {
    with_usage: Metric,
    without_usage: Metric,
}

impl RequestMetrics {
    pub(crate) fn define() -> Self {
        let read = [
            (PromptCoverage::Complete, "isotherm_filter_prompts_complete"),
            (PromptCoverage::Partial, "isotherm_filter_prompts_partial"),
            (
                PromptCoverage::Forwarded,
                "isotherm_filter_prompts_forwarded",
            ),
        ]
        .map(|(coverage, name)| (coverage, Metric::counter(name)));
        let skipped = SkipReason::ALL.map(|reason| {
            let name = format!("isotherm_filter_skipped_{}", reason.as_str());
            (PromptCoverage::Skipped(reason), Metric::counter(&name))
        });
        Self {
            prompts: read.into_iter().chain(skipped).collect(),
            body_bytes: Metric::define(MetricType::Histogram, "isotherm_filter_body_bytes"),
            rejected_paths: Metric::counter("isotherm_filter_rejected_paths"),
            passed_paths: Metric::counter("isotherm_filter_passed_paths"),
            responses: ResponseMetrics::define(),
        }
    }

    pub(crate) fn count(&self, release: &Release) {
        let mut prompts = self.prompts.iter();
        if let Some((_, metric)) = prompts.find(|(coverage, _)| *coverage == release.coverage) {
            metric.add(1);
        }
        if release.body_bytes > 0 {
            self.body_bytes.record(release.body_bytes);
        }
    }

    /// Counts a request to a path outside the list.
    pub(crate) fn count_rejected_path(&self) {
        self.rejected_paths.add(1);
    }

    /// Counts a request of another application.
    pub(crate) fn count_passed_path(&self) {
        self.passed_paths.add(1);
    }
}

impl ResponseMetrics {
    pub(crate) fn define() -> Self {
        Self {
            with_usage: Metric::counter("isotherm_filter_responses_with_usage"),
            without_usage: Metric::counter("isotherm_filter_responses_without_usage"),
        }
    }

    pub(crate) fn count(&self, has_usage: bool) {
        if has_usage {
            self.with_usage.add(1);
        } else {
            self.without_usage.add(1);
        }
    }
}

impl Metric {
    pub(crate) fn counter(name: &str) -> Self {
        Self::define(MetricType::Counter, name)
    }

    fn define(kind: MetricType, name: &str) -> Self {
        Self(hostcalls::define_metric(kind, name).ok())
    }

    pub(crate) fn add(self, count: u64) {
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

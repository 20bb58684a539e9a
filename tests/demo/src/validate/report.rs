//! The result of a validation: the metrics of both systems, their deviations, and the report.

use core::iter;

use isotherm_harness::MedianRange;
use isotherm_report::number::{percent, whole};
use isotherm_report::{Conclusion, Report, RunFacts, Section, Table};
use serde::Serialize;

use crate::metrics::{RequestMetrics, round};
use crate::report::ScenarioSummary;

/// Largest difference of the hit ratios.
const HIT_RATIO_DEVIATION_MAX: f64 = 0.03;
/// Largest deviation of the simulator's median time to first token, as a share of the real one.
const TTFT_DEVIATION_MAX: f64 = 0.20;

/// Both systems on one workload: `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    /// Circumstances of all runs.
    pub scenario: ScenarioSummary,
    /// Comparison for each policy.
    pub comparisons: Vec<SystemComparison>,
}

/// Both systems with one policy.
#[derive(Clone, Debug, Serialize)]
pub struct SystemComparison {
    /// Policy and push mode.
    pub scheme: String,
    /// Metrics of Envoy, the service and engines.
    pub real: RequestMetrics,
    /// Metrics of the simulator.
    pub simulated: SimulatedMetrics,
    /// Deviation of the simulator on the same requests.
    pub deviation: Deviation,
    /// Deviation of the simulator on the recording of them.
    pub recorded_deviation: Deviation,
    /// Whether both deviations are within their limits, and no request failed.
    pub holds: bool,
}

/// The simulator on one workload.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedMetrics {
    /// Network delay that the simulator was given.
    pub delay: NetworkDelay,
    /// Metrics on the requests of the real system.
    pub workload: RequestMetrics,
    /// Metrics on the recording of these by `isotherm record`.
    pub recording: RequestMetrics,
}

/// The deviation of the simulator from the real system.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Deviation {
    /// Hit ratio of the simulator minus the real one.
    pub hit_ratio: f64,
    /// Median time to first token of the simulator over the real one, minus 1.
    pub ttft_p50: f64,
}

impl Deviation {
    fn new(real: &RequestMetrics, simulated: &RequestMetrics) -> Self {
        let ttft = simulated.ttft_ms.p50 / real.ttft_ms.p50.max(0.001);
        Self {
            hit_ratio: round(simulated.cache_hit_ratio - real.cache_hit_ratio),
            ttft_p50: round(ttft - 1.0),
        }
    }

    fn is_small(self) -> bool {
        self.hit_ratio.abs() <= HIT_RATIO_DEVIATION_MAX && self.ttft_p50.abs() <= TTFT_DEVIATION_MAX
    }
}

/// The time to first token of requests in an idle system.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NetworkDelay {
    /// Median in the real system, ms.
    pub real_ms: f64,
    /// Median of the engine alone, ms.
    pub engine_ms: f64,
}

impl NetworkDelay {
    /// Delay from the client to an engine and back, ms.
    #[must_use]
    pub fn ms(&self) -> f64 {
        self.real_ms - self.engine_ms
    }
}

impl SystemComparison {
    pub(super) fn new(scheme: &str, real: RequestMetrics, simulated: SimulatedMetrics) -> Self {
        let deviation = Deviation::new(&real, &simulated.workload);
        let recorded_deviation = Deviation::new(&real, &simulated.recording);
        let failed = real.failed + simulated.workload.failed + simulated.recording.failed;
        Self {
            scheme: scheme.into(),
            holds: deviation.is_small() && recorded_deviation.is_small() && failed == 0,
            deviation,
            recorded_deviation,
            real,
            simulated,
        }
    }

    fn conclusion(&self) -> Conclusion {
        let claim = format!(
            "{}: the simulator's hit ratio is within {:.0} points and its median TTFT within {:.0} % of the real system's",
            self.scheme,
            100.0 * HIT_RATIO_DEVIATION_MAX,
            100.0 * TTFT_DEVIATION_MAX,
        );
        Conclusion::claim(claim, self.holds).measured(format!(
            "{:+.1} points and {:+.1} %; on the recording {:+.1} points and {:+.1} %",
            100.0 * self.deviation.hit_ratio,
            100.0 * self.deviation.ttft_p50,
            100.0 * self.recorded_deviation.hit_ratio,
            100.0 * self.recorded_deviation.ttft_p50,
        ))
    }

    fn section(&self) -> Section {
        type Metric = (&'static str, fn(&RequestMetrics) -> String);
        let metrics: [Metric; 9] = [
            ("cache hit ratio", |metrics| {
                percent(metrics.cache_hit_ratio)
            }),
            ("TTFT, p50 ms", |metrics| whole(metrics.ttft_ms.p50)),
            ("TTFT, p90 ms", |metrics| whole(metrics.ttft_ms.p90)),
            ("end of response, p50 ms", |metrics| {
                whole(metrics.e2e_ms.p50)
            }),
            ("end of response, p90 ms", |metrics| {
                whole(metrics.e2e_ms.p90)
            }),
            ("queue, p90 ms", |metrics| {
                whole(metrics.queue_ms.unwrap_or_default().p90)
            }),
            ("failed requests", |metrics| metrics.failed.to_string()),
            ("prompt tokens", |metrics| metrics.prompt_tokens.to_string()),
            ("output tokens", |metrics| metrics.output_tokens.to_string()),
        ];
        let SimulatedMetrics {
            delay,
            workload,
            recording,
        } = &self.simulated;
        let rows = metrics.map(|(name, metric)| {
            let [real, simulated, recorded] = [&self.real, workload, recording].map(metric);
            [name.to_owned(), real, simulated, recorded]
        });
        Section::new(self.scheme.clone())
            .table(Table::new(["", "real", "simulated", "on the recording"]).with_rows(rows))
            .text(format!(
                "A request in the idle system has its first token after {:.1} ms, of which the engine takes {:.1} ms: the \
                 network delay is {:.1} ms.",
                delay.real_ms,
                delay.engine_ms,
                delay.ms(),
            ))
    }
}

impl Validation {
    /// Whether the simulator is right about every policy.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.comparisons.iter().all(|comparison| comparison.holds)
    }

    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let scenario = &self.scenario;
        let conclusions = self.comparisons.iter().map(SystemComparison::conclusion);
        let introduction = Section::new("").text(format!(
            "{}; {} replicas, {}. Times are those of this machine.",
            scenario.description, scenario.replicas, scenario.engine
        ));
        let overview = introduction.conclusions(conclusions.collect());
        let comparisons = self.comparisons.iter().map(SystemComparison::section);
        let sections = iter::once(overview).chain(comparisons);
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            ..Report::new("The simulator against the real system", sections)
        };
        report.with_data(self)
    }
}

/// The median; 0 without values.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    MedianRange::of(values).map_or(0.0, |range| range.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Summary;

    fn metrics(cache_hit_ratio: f64, p50: f64, failed: usize) -> RequestMetrics {
        RequestMetrics {
            failed,
            cache_hit_ratio,
            ttft_ms: Summary {
                p50,
                ..Summary::default()
            },
            ..RequestMetrics::default()
        }
    }

    #[test]
    fn a_validation_holds_within_its_limits_when_no_request_fails() {
        let delay = NetworkDelay {
            real_ms: 12.0,
            engine_ms: 10.0,
        };
        let real = metrics(0.5, 100.0, 0);
        let holds = |workload: &RequestMetrics, recording: &RequestMetrics| {
            let simulated = SimulatedMetrics {
                delay,
                workload: workload.clone(),
                recording: recording.clone(),
            };
            SystemComparison::new("x", real.clone(), simulated).holds
        };
        for (hit_ratio, p50, failed, expected) in [
            (0.52, 115.0, 0, true),
            (0.54, 100.0, 0, false),
            (0.5, 75.0, 0, false),
            (0.5, 125.0, 0, false),
            (0.5, 100.0, 1, false),
        ] {
            let simulated = metrics(hit_ratio, p50, failed);
            assert_eq!(holds(&simulated, &real), expected, "{simulated:?}");
            assert_eq!(holds(&real, &simulated), expected, "{simulated:?}");
        }
    }

    #[test]
    fn the_median_of_no_values_is_zero() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([3.0, 1.0].into_iter()), 2.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}

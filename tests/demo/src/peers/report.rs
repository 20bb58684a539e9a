//! The result of a comparison with other systems, and its report.

use isotherm_report::number::{hundredths, percent, whole};
use isotherm_report::{Cell, Conclusion, Report, RunFacts, Section, Table};
use serde::Serialize;

use crate::metrics::{RequestMetrics, Summary};
use crate::report::ScenarioSummary;

/// Smallest ratio of Isotherm's cached tokens to another system's.
const HITS_MIN: f64 = 0.98;

/// The measurements of every system on one trace: `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct PeerComparison {
    /// Circumstances of all runs.
    pub scenario: ScenarioSummary,
    /// Whether all systems ran at the same time.
    pub at_once: bool,
    /// Runs of each system, at the same time.
    pub runs_each: u16,
    /// Measurements of each system, Isotherm's first.
    pub runs: Vec<PeerRun>,
}

/// The run of a system.
#[derive(Clone, Debug, Serialize)]
pub struct PeerRun {
    /// Name.
    pub system: String,
    /// Release, when the system is a Python package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Seconds from the first request to the end of the last response.
    pub duration_s: f64,
    /// Metrics of all requests.
    #[serde(flatten)]
    pub metrics: RequestMetrics,
}

impl PeerRun {
    fn label(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.system),
            None => self.system.clone(),
        }
    }

    /// Percentiles of the time to first token and of the end of the response, in ms.
    fn times(&self) -> [(&'static str, f64); 6] {
        let percentiles = |time: &Summary| [time.p50, time.p90, time.p99];
        let [p50, p90, p99] = percentiles(&self.metrics.ttft_ms);
        let [end_p50, end_p90, end_p99] = percentiles(&self.metrics.e2e_ms);
        [
            ("TTFT p50", p50),
            ("TTFT p90", p90),
            ("TTFT p99", p99),
            ("end p50", end_p50),
            ("end p90", end_p90),
            ("end p99", end_p99),
        ]
    }
}

impl PeerComparison {
    /// Whether every expectation holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        let mut conclusions = self.conclusions().into_iter();
        conclusions.all(|claim| claim.holds != Some(false))
    }

    /// The expectations about each other system.
    fn conclusions(&self) -> Vec<Conclusion> {
        let Some((ours, peers)) = self.runs.split_first() else {
            return Vec::new();
        };
        peers.iter().map(|peer| claim(ours, peer)).collect()
    }

    fn table(&self) -> Table {
        let times = self.runs.first().map(PeerRun::times).unwrap_or_default();
        let names = times.map(|(name, _)| format!("{name} ms"));
        let columns = ["system", "requests", "failed", "cache hits", "tokens/s"];
        let columns = columns.map(str::to_owned);
        let mut table = Table::new(columns.into_iter().chain(names));
        for run in &self.runs {
            let metrics = &run.metrics;
            let cells: [Cell; 5] = [
                run.label().into(),
                (metrics.completed + metrics.failed).into(),
                Cell::zero_expected(metrics.failed),
                percent(metrics.cache_hit_ratio).into(),
                whole(metrics.output_tokens_per_s).into(),
            ];
            let times = run.times().map(|(_, ms)| Cell::from(whole(ms)));
            table.push(cells.into_iter().chain(times));
        }
        let shown = [
            "system",
            "cache hits",
            "TTFT p50 ms",
            "TTFT p90 ms",
            "TTFT p99 ms",
        ];
        table.headline(&shown, |_| true)
    }

    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let scenario = &self.scenario;
        let order = if self.at_once {
            "side by side"
        } else {
            "one after the other"
        };
        let runs = match self.runs_each {
            1 => String::new(),
            runs => {
                format!(", each in {runs} runs side by side, whose requests count together")
            }
        };
        let introduction = Section::new("").text(format!(
            "{}. Each system: {} fresh replicas ({}), the same requests at the same times; the systems ran {order}{runs}. \
             Times are as measured; engines and arrivals are {} times as fast as real time.",
            scenario.description, scenario.replicas, scenario.engine, scenario.speed
        ));
        let sections = [
            introduction.conclusions(self.conclusions()),
            Section::new("").table(self.table()),
        ];
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            footer: "TTFT: time to first token. end: time to the end of the response. Times are those of complete responses; cache \
                     hits are a share of all prompts, failed ones too. Isotherm runs with the default policy \
                     behind the shipped Envoy configuration, every other system with its own defaults."
                .into(),
            ..Report::new("Isotherm beside other systems", sections)
        };
        report.with_data(self)
    }
}

/// Whether Isotherm is at least as good as another system.
fn claim(ours: &PeerRun, peer: &PeerRun) -> Conclusion {
    let ratio = |ours: f64, theirs: f64| ours / theirs.max(f64::MIN_POSITIVE);
    let times = ours.times().into_iter().zip(peer.times());
    let times: Vec<(&str, f64)> = times
        .map(|((name, ours), (_, theirs))| (name, ratio(ours, theirs)))
        .collect();
    let hits = ratio(ours.metrics.cache_hit_ratio, peer.metrics.cache_hit_ratio);
    let is_faster = times.iter().all(|(_, ratio)| *ratio <= 1.0);
    let holds = is_faster && hits >= HITS_MIN && ours.metrics.failed == 0;
    let figures: Vec<String> = times
        .iter()
        .map(|(name, ratio)| format!("{name} {}", hundredths(*ratio)))
        .chain([format!("hits {}", hundredths(hits))])
        .collect();
    let text = format!(
        "{} is at no percentile slower, and has at least {HITS_MIN} of the hits",
        ours.system
    );
    let claim = Conclusion::claim(text, holds).in_case(format!("beside {}", peer.system));
    claim.measured(format!("ratios: {}", figures.join(", ")))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn run(system: &str, p50: f64, hits: f64, failed: usize) -> PeerRun {
        let times = |factor: f64| Summary {
            mean: p50 * factor,
            p50: p50 * factor,
            p90: p50 * factor * 2.0,
            p99: p50 * factor * 3.0,
        };
        PeerRun {
            system: system.into(),
            version: None,
            duration_s: 1.0,
            metrics: RequestMetrics {
                completed: 10,
                failed,
                cache_hit_ratio: hits,
                ttft_ms: times(1.0),
                e2e_ms: times(10.0),
                ..RequestMetrics::default()
            },
        }
    }

    fn comparison(ours: PeerRun, peer: PeerRun) -> PeerComparison {
        PeerComparison {
            scenario: crate::report::tests::example().scenario,
            at_once: false,
            runs_each: 1,
            runs: vec![ours, peer],
        }
    }

    #[test]
    fn isotherm_must_not_be_behind_in_any_figure() {
        let peer = || run("peer", 100.0, 0.5, 0);
        for (ours, holds) in [
            (run("Isotherm", 100.0, 0.5, 0), true),
            (run("Isotherm", 90.0, 0.495, 0), true),
            (run("Isotherm", 101.0, 0.9, 0), false),
            (run("Isotherm", 90.0, 0.48, 0), false),
            (run("Isotherm", 90.0, 0.9, 1), false),
        ] {
            assert_eq!(comparison(ours, peer()).holds(), holds);
        }
    }

    #[test]
    fn the_report_names_each_ratio() {
        let comparison = comparison(run("Isotherm", 50.0, 0.5, 0), run("peer", 100.0, 0.5, 0));
        let text = comparison.report().unwrap();
        let text = text.text();
        assert!(text.contains("TTFT p50 0.50"), "{text}");
        assert!(text.contains("hits 1.00"), "{text}");
    }

    #[test]
    fn the_report_says_in_which_order_and_how_often_the_systems_ran() {
        let text = |comparison: &PeerComparison| {
            let report = comparison.report().unwrap();
            report.text()
        };
        let once = comparison(run("Isotherm", 50.0, 0.5, 0), run("peer", 100.0, 0.5, 0));
        assert!(text(&once).contains("the systems ran one after the other. "));
        let twice = PeerComparison {
            at_once: true,
            runs_each: 2,
            ..once
        };
        assert!(text(&twice).contains("the systems ran side by side, each in 2 runs side by side"));
    }
}

//! The result of a comparison of arrangements, and its report.
//!
//! All times and rates are those of the engines; see [`crate::metrics`].

use core::iter;

use isotherm_report::chart::{Chart, Curve, CurveStyle, Lines, Plot};
use isotherm_report::number::percent;
use isotherm_report::{Cell, Report, RunFacts, Section, Table};
use serde::Serialize;

use super::conclusions::conclusions;
use super::options::Setup;
use super::outage::Outage;
use super::trials::{ArrangementRun, TrialReport};
use crate::metrics::{CacheHits, RequestMetrics};

/// The measurements of all trials: `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct RegionComparison {
    /// Circumstances of all runs.
    pub setup: Setup,
    /// Trials, each with clients of its own.
    pub trials: Vec<TrialReport>,
    /// The run in which a region dies.
    pub outage: Option<Outage>,
}

impl TrialReport {
    fn section(&self) -> Section {
        let highest = self.runs.iter().map(|run| run.timeline.highest());
        let highest = highest.fold(1.0, f64::max);
        let charts = self.runs.iter().map(|run| run.chart(highest)).collect();
        Section::new(self.clients.label())
            .text(format!("{}.", self.description))
            .charts(charts)
            .table(self.table())
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "",
            "requests",
            "failed",
            "requests/s",
            "tokens/s",
            "TTFT p50",
            "p90 ms",
            "cache hits",
            "forwarded",
            "later turns, local",
            "later turns, forwarded",
            "CPU",
        ]);
        for run in &self.runs {
            let cpu_use = run.cpu_use().unwrap_or_default();
            table.push_leading(cells(run.label(), &run.all, cpu_use));
            for region in &run.regions {
                let label = format!("clients in {}", region.name);
                table.push(cells(label, &region.metrics, String::new()));
            }
        }
        let shown = [
            "",
            "tokens/s",
            "TTFT p50",
            "p90 ms",
            "cache hits",
            "forwarded",
        ];
        table.headline(&shown, |row| row.is_leading)
    }
}

fn cells(label: String, metrics: &RequestMetrics, cpu_use: String) -> Vec<Cell> {
    let turns = |hits: CacheHits| format!("{} of {}", percent(hits.hit_ratio), hits.turns);
    vec![
        label.into(),
        metrics.completed.into(),
        Cell::zero_expected(metrics.failed),
        format!("{:.2}", metrics.requests_per_s).into(),
        format!("{:.0}", metrics.output_tokens_per_s).into(),
        format!("{:.0}", metrics.ttft_ms.p50).into(),
        format!("{:.0}", metrics.ttft_ms.p90).into(),
        percent(metrics.cache_hit_ratio).into(),
        percent(metrics.forwarded_share).into(),
        turns(metrics.local_turns).into(),
        turns(metrics.forwarded_turns).into(),
        cpu_use.into(),
    ]
}

impl ArrangementRun {
    /// Name in tables and charts.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}, {} replicas", self.arrangement.label(), self.replicas)
    }

    /// The main metrics in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let cpu_use = self.cpu_use().map(|share| format!("; CPU {share}"));
        self.all.summary() + &cpu_use.unwrap_or_default()
    }

    /// CPU use of this machine.
    fn cpu_use(&self) -> Option<String> {
        self.machine_busy_share.map(percent)
    }

    /// Requests in flight over time: a line for each region, and an area for its forwarded requests.
    fn chart(&self, highest: f64) -> Chart {
        let timeline = &self.timeline;
        let curve = |series, values: &[f64], style| Curve {
            series,
            points: timeline
                .at_s
                .iter()
                .copied()
                .zip(values.iter().copied())
                .collect(),
            style,
        };
        let regions = timeline.regions.iter().enumerate();
        let curves = regions.flat_map(|(region, curves)| {
            [
                curve(region, &curves.forwarded, CurveStyle::Area),
                curve(region, &curves.in_flight, CurveStyle::Plain),
            ]
        });
        let plot = Lines {
            lines: curves.collect(),
            x_name: "seconds".into(),
            y_name: "requests in flight".into(),
            y_max: Some(highest),
            ..Lines::default()
        };
        let names = self.regions.iter();
        let names = names.map(|region| format!("clients in {}", region.name));
        Chart::new(self.label(), self.summary(), names, Plot::Lines(plot))
    }
}

impl RegionComparison {
    /// Requests without a complete response, in all runs; where a region dies, those without an answer.
    #[must_use]
    pub fn failed(&self) -> usize {
        let runs = self.trials.iter().flat_map(|trial| &trial.runs);
        let unanswered = self.outage.as_ref().map(|outage| outage.unanswered);
        runs.map(|run| run.all.failed).sum::<usize>() + unanswered.unwrap_or_default()
    }

    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let setup = &self.setup;
        let introduction = Section::new("").text(format!(
            "Each region has clients and simulated replicas ({}) with the scheme {}. The round-trip time between regions is \
             {} ms. Everything runs {} times faster than real time, the delay included ({} ms are injected). Times and rates \
             are those of the engines.",
            setup.engine,
            setup.scheme,
            setup.round_trip_ms,
            setup.speed,
            setup.round_trip_measured_ms
        ));
        let overview = introduction.conclusions(conclusions(&self.trials));
        let trials = self.trials.iter().map(TrialReport::section);
        let outage = self.outage.as_ref().map(Outage::section);
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            footer: format!(
                "Seed {}. Lines: requests in flight; areas: forwarded ones. Requests: those sent in the measurement window; \
                 tokens/s: of responses that ended in it. CPU: use of the machine that simulated the regions; near 100 % \
                 the run measured the machine instead of the replicas.",
                setup.seed
            ),
            ..Report::new(
                "Isotherm: three regions",
                iter::once(overview).chain(trials).chain(outage),
            )
        };
        report.with_data(self)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use isotherm_report::Format;

    use super::*;
    use crate::metrics::Summary;
    use crate::regions::deployment::Arrangement;
    use crate::regions::options::Clients;
    use crate::regions::timeline::Timeline;
    use crate::regions::trials::RegionMetrics;

    fn run(arrangement: Arrangement, replicas: usize, tokens: f64, p50: f64) -> ArrangementRun {
        let metrics = RequestMetrics {
            completed: 100,
            requests_per_s: tokens / 100.0,
            output_tokens_per_s: tokens,
            ttft_ms: Summary {
                mean: p50,
                p50,
                p90: p50 * 2.0,
                p99: p50 * 3.0,
            },
            cache_hit_ratio: 0.5,
            ..RequestMetrics::default()
        };
        let names = ["us", "eu", "asia"];
        let regions = names.map(|name| RegionMetrics {
            name: name.into(),
            metrics: metrics.clone(),
        });
        ArrangementRun {
            arrangement,
            replicas,
            machine_busy_share: Some(0.5),
            all: metrics,
            regions: regions.into(),
            timeline: Timeline::of(&[], std::time::Duration::from_secs(10), 3, 10.0),
        }
    }

    pub(in super::super) fn example() -> RegionComparison {
        let mut forwarding = run(Arrangement::Forwarding, 12, 1_200.0, 300.0);
        forwarding.all.forwarded_share = 0.25;
        let hits = |turns, hit_ratio| CacheHits { turns, hit_ratio };
        forwarding.all.local_turns = hits(80, 0.9);
        forwarding.all.forwarded_turns = hits(20, 0.81);
        let trial = TrialReport {
            clients: Clients::Skewed,
            description: "some <clients>".into(),
            measured_s: 100.0,
            runs: vec![
                run(Arrangement::Local, 12, 1_000.0, 500.0),
                forwarding,
                run(Arrangement::Central, 12, 900.0, 600.0),
            ],
        };
        let setup = Setup {
            scheme: "isotherm / pending".into(),
            engine: "one-gpu".into(),
            speed: 10.0,
            round_trip_ms: 150.0,
            round_trip_measured_ms: 15.0,
            seed: 1,
        };
        RegionComparison {
            setup,
            trials: vec![trial],
            outage: None,
        }
    }

    #[test]
    fn the_json_has_the_metrics_and_curves_of_each_region() {
        let json = serde_json::to_value(example()).unwrap();
        let run = &json["trials"][0]["runs"][1];
        assert_eq!(run["arrangement"], "forwarding");
        assert_eq!(run["regions"][1]["name"], "eu");
        assert_eq!(run["regions"][1]["ttft_ms"]["p50"], 300.0);
        assert_eq!(run["all"]["forwarded_share"], 0.25);
        assert!(run["timeline"]["regions"][2]["forwarded"].is_array());
    }

    #[test]
    fn the_report_has_a_chart_of_each_run_and_rows_of_each_region() {
        let report = example().report().unwrap();
        let page = report.render(Format::Html).unwrap();
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("Holds: ") && page.contains("1.200 times"));
        assert!(page.contains("some &lt;clients&gt;"));
        let text = report.text();
        assert_eq!(text.matches("clients in eu").count(), 3);
        assert!(text.contains("forwarding, 12 replicas"), "{text}");
    }
}

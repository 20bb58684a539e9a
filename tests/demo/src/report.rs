//! The result of a policy comparison, and its report.

mod gain;

use isotherm_report::chart::{Bar, BarGroup, Bars, Chart, Plot};
use isotherm_report::number::{hundredths, percent, whole};
use isotherm_report::palette::css;
use isotherm_report::{Cell, Report, RunFacts, Section, Table};
use serde::Serialize;

use crate::metrics::{RequestMetrics, Summary};

/// The measurements of every scheme on one workload: `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Circumstances of all runs.
    pub scenario: ScenarioSummary,
    /// Runs in order of execution.
    pub runs: Vec<Run>,
}

/// The circumstances of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioSummary {
    /// Short name.
    pub name: String,
    /// Description in one sentence.
    pub description: String,
    /// Requests of each run.
    pub requests: usize,
    /// Replicas.
    pub replicas: usize,
    /// Preset of hardware and model that each replica simulates.
    pub engine: String,
    /// Factor by which everything runs faster than real time.
    pub speed: f64,
    /// Seed of the workload.
    pub seed: u64,
}

/// The run of a scheme.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The standalone Envoy or a gateway, where a report compares them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Routing policy.
    pub policy: String,
    /// Push mode.
    pub push: String,
    /// Seconds from the first request to the end of the last response.
    pub duration_s: f64,
    /// Time average of the maximum over the mean of outstanding requests per replica.
    pub load_imbalance: f64,
    /// Metrics of all requests.
    #[serde(flatten)]
    pub metrics: RequestMetrics,
}

impl Run {
    /// Name in tables and charts.
    #[must_use]
    pub fn label(&self) -> String {
        let scheme = format!("{} / {}", self.policy, self.push);
        match &self.system {
            Some(system) => format!("{system}: {scheme}"),
            None => scheme,
        }
    }

    /// The run with the name of its system.
    #[must_use]
    pub fn on(self, system: &str) -> Self {
        Self {
            system: Some(system.to_owned()),
            ..self
        }
    }

    /// A cell with a time in the service's queue; empty where no answer tells it.
    fn queued(&self, time: fn(&Summary) -> f64) -> Cell {
        let queue = self.metrics.queue_ms.as_ref();
        queue.map_or("".into(), |queue| whole(time(queue)).into())
    }
}

/// A figure of a run.
type Figure = fn(&Run) -> f64;

impl Comparison {
    /// The charts with their titles and a legend as one SVG picture.
    ///
    /// # Errors
    /// When a chart cannot be drawn.
    pub fn picture(&self) -> anyhow::Result<String> {
        const WIDTH: u32 = 520;
        const HEIGHT: u32 = 300;
        const TITLE: u32 = 30;
        let mut body = String::new();
        for (index, run) in self.runs.iter().enumerate() {
            let x = 20 + 340 * index;
            let (colour, label) = (css(index), run.label());
            body += &format!(
                "<rect x=\"{x}\" y=\"10\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"22\">{label}</text>",
                x + 20
            );
        }
        for (index, chart) in (0_u32..).zip(self.charts()) {
            let title = chart.title.clone();
            let (x, y) = (index % 2 * WIDTH, index / 2 * (HEIGHT + TITLE) + TITLE);
            let size = (WIDTH, HEIGHT);
            let svg = Chart { size, ..chart }.svg()?;
            let svg = svg.replacen("<svg ", &format!("<svg x=\"{x}\" y=\"{}\" ", y + TITLE), 1);
            body += &format!(
                "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{title}</text>{svg}",
                x + 20,
                y + 22
            );
        }
        let (width, height) = (2 * WIDTH, 2 * (HEIGHT + TITLE) + TITLE);
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"15\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{body}</svg>\n"
        ))
    }

    fn chart(
        &self,
        title: &str,
        caption: &str,
        groups: &[(&str, Figure)],
        format: fn(f64) -> String,
    ) -> Chart {
        let bar = |value| Bar {
            value,
            spread: None,
        };
        let groups = groups.iter().map(|(name, value)| BarGroup {
            name: (*name).to_owned(),
            bars: self.runs.iter().map(value).map(bar).collect(),
        });
        let plot = Bars {
            groups: groups.collect(),
            reference: None,
            format,
        };
        Chart::new(
            title,
            caption,
            self.runs.iter().map(Run::label),
            Plot::Bars(plot),
        )
    }

    pub(crate) fn charts(&self) -> Vec<Chart> {
        vec![
            self.chart(
                "Cache hit ratio",
                "Share of prompt tokens that the engines found in their KV caches. More is better.",
                &[("all prompts", |run| run.metrics.cache_hit_ratio)],
                percent,
            ),
            self.chart(
                "Time to first token, ms",
                "Time that a user waits for the first token. Less is better.",
                &[
                    ("p50", |run| run.metrics.ttft_ms.p50),
                    ("p90", |run| run.metrics.ttft_ms.p90),
                    ("p99", |run| run.metrics.ttft_ms.p99),
                ],
                whole,
            ),
            self.chart(
                "Throughput, tokens/s",
                "Output tokens per second. More is better.",
                &[("all replicas", |run| run.metrics.output_tokens_per_s)],
                whole,
            ),
            self.chart(
                "Load imbalance",
                "Requests on the busiest replica over the mean, averaged over time. 1 is perfectly even.",
                &[("maximum over mean", |run| run.load_imbalance)],
                hundredths,
            ),
        ]
    }

    pub(crate) fn table(&self) -> Table {
        type Column = (&'static str, fn(&Run) -> Cell);
        let columns: [Column; 15] = [
            ("policy / push", |run| run.label().into()),
            ("requests", |run| {
                (run.metrics.completed + run.metrics.failed).into()
            }),
            ("failed", |run| Cell::zero_expected(run.metrics.failed)),
            ("seconds", |run| format!("{:.1}", run.duration_s).into()),
            ("cache hits", |run| {
                percent(run.metrics.cache_hit_ratio).into()
            }),
            ("TTFT mean", |run| whole(run.metrics.ttft_ms.mean).into()),
            ("p50", |run| whole(run.metrics.ttft_ms.p50).into()),
            ("p90", |run| whole(run.metrics.ttft_ms.p90).into()),
            ("p99 ms", |run| whole(run.metrics.ttft_ms.p99).into()),
            ("e2e p50", |run| whole(run.metrics.e2e_ms.p50).into()),
            ("p99 ms", |run| whole(run.metrics.e2e_ms.p99).into()),
            ("queue p50", |run| run.queued(|queue| queue.p50)),
            ("p99 ms", |run| run.queued(|queue| queue.p99)),
            ("tokens/s", |run| {
                whole(run.metrics.output_tokens_per_s).into()
            }),
            ("imbalance", |run| hundredths(run.load_imbalance).into()),
        ];
        let rows = self.runs.iter();
        let rows = rows.map(|run| columns.map(|(_, cell)| cell(run)));
        Table::new(columns.map(|(name, _)| name)).with_rows(rows)
    }

    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let scenario = &self.scenario;
        let introduction = Section::new("").text(format!(
            "{}. Each run: {} fresh replicas ({}), the same requests through a real Envoy. Times are as measured; \
             everything runs {} times faster than real time.",
            scenario.description, scenario.replicas, scenario.engine, scenario.speed
        ));
        let gain = gain::gain(self).into_iter().collect();
        let sections = [
            introduction.conclusions(gain),
            Section::new("").charts(self.charts()).table(self.table()),
        ];
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            footer: format!(
                "Seed {}. pending: a request waits in the service until a replica can start it. blind: the service sends it \
                 at once. queue: time in the service.",
                scenario.seed
            ),
            ..Report::new(format!("Isotherm: {}", scenario.name), sections)
        };
        report.with_data(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use isotherm_report::Format;

    use super::*;

    pub(crate) fn example() -> Comparison {
        let summary = |p50: f64| Summary {
            mean: p50,
            p50,
            p90: p50 * 2.0,
            p99: p50 * 3.0,
        };
        let run = |policy: &str, push: &str, hit: f64, p50: f64| Run {
            system: None,
            policy: policy.into(),
            push: push.into(),
            duration_s: 2.0,
            load_imbalance: 1.25,
            metrics: RequestMetrics {
                completed: 10,
                cache_hit_ratio: hit,
                output_tokens_per_s: 1_234.5,
                ttft_ms: summary(p50),
                e2e_ms: summary(p50 * 10.0),
                ..RequestMetrics::default()
            },
        };
        Comparison {
            scenario: ScenarioSummary {
                name: "example".into(),
                description: "ten <requests>".into(),
                requests: 10,
                replicas: 4,
                engine: "one-gpu".into(),
                speed: 10.0,
                seed: 1,
            },
            runs: vec![
                run("prefix_tree", "pending", 0.8, 20.0),
                run("round_robin", "blind", 0.4, 50.0),
            ],
        }
    }

    #[test]
    fn the_page_has_the_conclusion_and_a_chart_of_each_measure() {
        let page = example().report().unwrap().render(Format::Html).unwrap();
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("2.5 times sooner") && page.contains("prefix_tree / pending"));
        assert!(page.contains("ten &lt;requests&gt;"));
    }

    #[test]
    fn the_text_has_a_row_for_each_run() {
        let text = example().report().unwrap().text();
        for expected in ["prefix_tree / pending", "80.0 %", "1234", "1.25"] {
            assert!(text.contains(expected), "no {expected} in\n{text}");
        }
    }

    #[test]
    fn the_json_has_the_documented_members() {
        let json = serde_json::to_value(example()).unwrap();
        let run = json["runs"][0].as_object().unwrap();
        for member in
            "cache_hit_ratio load_imbalance output_tokens_per_s queue_ms ttft_ms".split(' ')
        {
            assert!(run.contains_key(member), "no {member}");
        }
        assert_eq!(json["scenario"]["seed"], 1);
    }
}

//! The result of a policy comparison, and its report.

mod charts;
mod gain;
mod key_figures;
mod table;

use isotherm_report::{Report, RunFacts, Section};
use serde::Serialize;

use crate::metrics::RequestMetrics;
use crate::run_curves::RunCurves;

/// The paragraph about what to do next.
const NEXT: &str = "Next: isotherm run --replica HOST:PORT puts Isotherm in front of your own replicas, and docs/quickstart.md \
                    leads from there to your own Envoy. report.json beside this page has every figure.";

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
    /// Engines that each replica stands for.
    pub engines_per_replica: u32,
    /// Seed of the workload.
    pub seed: u64,
}

/// Name of a policy in prose: `Round robin` of `round_robin`.
#[must_use]
pub fn plain_name(policy: &str) -> String {
    let mut letters = policy.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let rest = letters.map(|letter| if letter == '_' { ' ' } else { letter });
    first.into_iter().chain(rest).collect()
}

impl ScenarioSummary {
    /// Factor by which a replica is faster than one real engine.
    #[must_use]
    pub fn engine_speed(&self) -> f64 {
        self.speed * f64::from(self.engines_per_replica)
    }

    /// The sentences about the clock of all times and rates.
    pub(crate) fn clock(&self) -> String {
        let several = match self.engines_per_replica {
            1 => String::new(),
            engines => format!(" Each replica stands for {engines} engines."),
        };
        if self.speed == 1.0 {
            return format!("Times are as measured.{several}");
        }
        let speed = self.speed;
        format!(
            "Everything runs {speed} times faster than real time.{several} Times and rates are those of the engines: 1 ms \
             as measured counts as {speed} ms, also in Envoy and in the service."
        )
    }
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
    /// Seconds from the first request to the end of the last response, as measured.
    pub duration_s: f64,
    /// Time average of the maximum over the mean of outstanding requests per replica.
    pub load_imbalance: f64,
    /// Metrics of all requests.
    #[serde(flatten)]
    pub metrics: RequestMetrics,
    /// Curves of the run.
    pub curves: RunCurves,
}

impl Run {
    /// Name in tables and charts.
    #[must_use]
    pub fn label(&self) -> String {
        let policy = plain_name(&self.policy);
        match &self.system {
            Some(system) => format!("{system}: {policy}"),
            None => policy,
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
}

impl Comparison {
    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let scenario = &self.scenario;
        let introduction = Section::new("").text(format!(
            "{}. Each run: {} fresh replicas ({}), the same requests through a real Envoy. {}",
            scenario.description,
            scenario.replicas,
            scenario.engine,
            scenario.clock()
        ));
        let gain = gain::gain(self).into_iter().collect();
        let sections = [
            Section::new("")
                .key_figures(key_figures::key_figures(self))
                .conclusions(gain),
            introduction.charts(self.charts()),
            Section::detail("Load of each replica").charts(self.load_charts()),
            Section::new("All figures").table(self.table()).text(NEXT),
        ];
        let report = Report {
            facts: Some(facts()),
            footer: format!(
                "Seed {}. Push: with pending, a request waits in the service until a replica can start it; with blind, the \
                 service sends it at once. Busiest / mean: outstanding requests of the busiest replica over the mean, averaged \
                 over the run; a policy that keeps prefixes together accepts an uneven load for its cache hits.",
                scenario.seed
            ),
            ..Report::new(format!("Isotherm: {}", scenario.name), sections)
        };
        report.with_data(self)
    }
}

/// The circumstances of this run. `isotherm try` names its own command.
fn facts() -> RunFacts {
    match std::env::var("ISOTHERM_COMMAND") {
        Ok(command) => RunFacts::of_release(command),
        Err(_) => RunFacts::collect("cargo xtask"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use isotherm_report::Format;

    use super::*;
    use crate::metrics::Summary;

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
            curves: RunCurves {
                ttft_ms: (0..=200)
                    .map(|step| p50 * (0.5 + f64::from(step) / 200.0))
                    .collect(),
                hit_ratio: vec![(1.0, hit / 2.0), (10.0, hit), (20.0, hit)],
                load: vec![vec![(0.0, 1), (10.0, 4), (20.0, 2)]; 4],
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
                engines_per_replica: 1,
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
        // The distribution, the hits, and the load under each of two policies.
        assert_eq!(page.matches("<svg").count(), 4);
        assert_eq!(page.matches(r#"<div class="value"#).count(), 3);
        assert!(page.contains("2.5 times sooner") && page.contains("Prefix tree"));
        assert!(!page.contains("prefix_tree / pending"), "private names");
        assert!(!page.contains("<strong></strong>") && !page.contains("<p></p>"));
        assert!(page.contains("ten &lt;requests&gt;"));
    }

    #[test]
    fn the_text_has_a_row_for_each_run() {
        let text = example().report().unwrap().text();
        for expected in ["Prefix tree", "pending", "80.0 %", "1234", "1.25"] {
            assert!(text.contains(expected), "no {expected} in\n{text}");
        }
    }

    #[test]
    fn the_json_has_the_documented_members() {
        let json = serde_json::to_value(example()).unwrap();
        let run = json["runs"][0].as_object().unwrap();
        for member in
            "cache_hit_ratio curves load_imbalance output_tokens_per_s queue_ms ttft_ms".split(' ')
        {
            assert!(run.contains_key(member), "no {member}");
        }
        assert_eq!(json["scenario"]["seed"], 1);
    }

    #[test]
    fn policies_have_names_for_readers() {
        assert_eq!(plain_name("round_robin"), "Round robin");
        assert_eq!(plain_name("isotherm"), "Isotherm");
    }

    #[test]
    fn the_page_says_on_which_clock_its_times_are() {
        let mut comparison = example();
        assert!(
            comparison
                .scenario
                .clock()
                .contains("1 ms as measured counts as 10 ms")
        );
        comparison.scenario.engines_per_replica = 3;
        assert_eq!(comparison.scenario.engine_speed(), 30.0);
        assert!(comparison.scenario.clock().contains("stands for 3 engines"));
        comparison.scenario.speed = 1.0;
        assert!(
            comparison
                .scenario
                .clock()
                .starts_with("Times are as measured.")
        );
    }
}

//! What a comparison of arrangements ends with: a table, `report.json`, `report.html`.

mod chart;
mod html;
mod table;
mod verdict;

use std::path::{Path, PathBuf};

use isotherm_report::files;
use serde::Serialize;

use super::figures::Figures;
use super::options::{Clients, Trial};
use super::timeline::Timeline;
use super::world::Arrangement;

pub use verdict::Verdict;

/// This is `report.json`. All times and rates are those of the engines; see [`super::figures`].
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The circumstances of all runs.
    pub setup: Setup,
    /// Each with clients of its own.
    pub trials: Vec<TrialReport>,
    /// What follows.
    pub verdicts: Vec<Verdict>,
}

/// The circumstances of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The policy and the mode of pushing of every service.
    pub scheme: String,
    /// The hardware and model that each replica simulates.
    pub engine: String,
    /// How many times faster than life everything went.
    pub speed: f64,
    /// Between two regions and back, by the engines' clock.
    pub round_trip_ms: f64,
    /// The delay that was injected for it.
    pub round_trip_measured_ms: f64,
    /// What the clients were drawn from.
    pub seed: u64,
}

/// All arrangements with the same clients.
#[derive(Clone, Debug, Serialize)]
pub struct TrialReport {
    /// Which clients.
    pub clients: Clients,
    /// One sentence about them.
    pub description: String,
    /// The length of the part that counts, in seconds of the engines.
    pub counted_s: f64,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
}

/// One arrangement.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Who decided.
    pub arrangement: Arrangement,
    /// Replicas in all regions.
    pub replicas: usize,
    /// How busy this machine's CPUs were with anything; nothing where the system does not say.
    pub machine_busy_share: Option<f64>,
    /// How busy they were with this demo.
    pub own_busy_share: Option<f64>,
    /// All clients.
    pub all: Figures,
    /// The clients of each region.
    pub regions: Vec<RegionFigures>,
    /// Load and forwarding over time.
    pub timeline: Timeline,
}

/// The clients of one region.
#[derive(Clone, Debug, Serialize)]
pub struct RegionFigures {
    /// The region.
    pub name: String,
    /// How its clients were served.
    #[serde(flatten)]
    pub figures: Figures,
}

impl TrialReport {
    /// The runs of a trial.
    #[must_use]
    pub fn new(trial: &Trial, runs: Vec<Run>) -> Self {
        let crowd = &trial.crowd;
        Self {
            clients: trial.clients,
            description: trial.clients.description(),
            counted_s: crate::stats::round(crowd.window().seconds() * crowd.speed),
            runs,
        }
    }

    /// The run of an arrangement.
    #[must_use]
    pub fn run(&self, arrangement: Arrangement) -> Option<&Run> {
        self.runs.iter().find(|run| run.arrangement == arrangement)
    }
}

impl Run {
    /// How it is called in tables and charts.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}, {} replicas", self.arrangement.label(), self.replicas)
    }

    /// One line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{:.0} tokens/s, first token {:.0} ms (p50) {:.0} ms (p90), {:.0} % cached, {:.1} % forwarded, {} failed{}",
            self.all.output_tokens_per_s,
            self.all.ttft_ms.p50,
            self.all.ttft_ms.p90,
            self.all.cache_hit_ratio * 100.0,
            self.all.forwarded_share * 100.0,
            self.all.failed,
            self.busy()
                .map_or_else(String::new, |busy| format!("; CPU {busy}")),
        )
    }

    /// How busy this machine was, and how much of that with the demo.
    fn busy(&self) -> Option<String> {
        let (machine, own) = (self.machine_busy_share?, self.own_busy_share?);
        Some(format!("{:.0} % ({:.0} %)", machine * 100.0, own * 100.0))
    }
}

impl Report {
    /// Draws the verdicts.
    #[must_use]
    pub fn new(setup: Setup, trials: Vec<TrialReport>) -> Self {
        let verdicts = verdict::verdicts(&trials);
        Self {
            setup,
            trials,
            verdicts,
        }
    }

    /// The tables and verdicts for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        table::render(self)
    }

    /// Requests without a complete answer, in all runs.
    #[must_use]
    pub fn failed(&self) -> usize {
        let runs = self.trials.iter().flat_map(|trial| &trial.runs);
        runs.map(|run| run.all.failed).sum()
    }

    /// Writes `report.json` and `report.html`; returns their paths.
    ///
    /// # Errors
    /// When the directory cannot be written, or a chart cannot be drawn.
    pub fn write(&self, directory: &Path) -> anyhow::Result<[PathBuf; 2]> {
        let json = serde_json::to_string_pretty(self)?;
        let page = html::render(self)?;
        files::write(directory, [("report.json", json), ("report.html", page)])
    }
}

impl Clients {
    /// How they are called in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Skewed => "120/40/40",
            Self::Day => "turning peaks",
        }
    }

    fn description(self) -> String {
        match self {
            Self::Skewed => "120 clients in us, 40 in eu and 40 in asia, each asking again as soon as it has read the answer".into(),
            Self::Day => "A day squeezed into minutes: each region has 6 clients at night and 96 at its peak, and they peak in turn".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;

    fn run(arrangement: Arrangement, replicas: usize, tokens: f64, p50: f64) -> Run {
        let figures = Figures {
            requests: 100,
            requests_per_s: tokens / 100.0,
            output_tokens_per_s: tokens,
            ttft_ms: Summary {
                mean: p50,
                p50,
                p90: p50 * 2.0,
                p99: p50 * 3.0,
            },
            cache_hit_ratio: 0.5,
            ..Figures::default()
        };
        let names = ["us", "eu", "asia"];
        let regions = names.map(|name| RegionFigures {
            name: name.into(),
            figures: figures.clone(),
        });
        Run {
            arrangement,
            replicas,
            machine_busy_share: Some(0.5),
            own_busy_share: Some(0.4),
            all: figures,
            regions: regions.into(),
            timeline: Timeline::of(&[], std::time::Duration::from_secs(10), 3, 10.0),
        }
    }

    pub(super) fn example() -> Report {
        let mut forwarding = run(Arrangement::Forwarding, 12, 1_200.0, 300.0);
        forwarding.all.forwarded_share = 0.25;
        forwarding.all.follow_ups.local = 80;
        forwarding.all.follow_ups.local_hit_ratio = 0.9;
        forwarding.all.follow_ups.forwarded = 20;
        forwarding.all.follow_ups.forwarded_hit_ratio = 0.81;
        let trial = TrialReport {
            clients: Clients::Skewed,
            description: "some <clients>".into(),
            counted_s: 100.0,
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
        Report::new(setup, vec![trial])
    }

    #[test]
    fn the_json_has_figures_of_each_region_and_curves() {
        let json = serde_json::to_value(example()).unwrap();
        let run = &json["trials"][0]["runs"][1];
        assert_eq!(run["arrangement"], "forwarding");
        assert_eq!(run["regions"][1]["name"], "eu");
        assert_eq!(run["regions"][1]["ttft_ms"]["p50"], 300.0);
        assert_eq!(run["all"]["forwarded_share"], 0.25);
        assert!(run["timeline"]["regions"][2]["elsewhere"].is_array());
        assert_eq!(json["verdicts"][0]["holds"], true);
    }
}

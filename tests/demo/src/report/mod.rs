//! What a comparison ends with: a table, `report.json`, `report.html`.

mod html;
mod table;

use std::path::{Path, PathBuf};

use isotherm_report::files;
use serde::Serialize;

use crate::drive::Measured;
use crate::stats::{Summary, round};

/// A workload, and how each scheme did on it. This is `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was asked, and of what.
    pub workload: Described,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
}

/// The circumstances of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    /// A short name.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// Requests of each run.
    pub requests: usize,
    /// Replicas.
    pub replicas: usize,
    /// The hardware and model that each replica simulates.
    pub engine: String,
    /// How many times faster than life everything went.
    pub speed: f64,
    /// What the workload was drawn from.
    pub seed: u64,
}

/// One scheme on the workload.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The routing policy.
    pub policy: String,
    /// The mode of pushing.
    pub push: String,
    /// Requests sent.
    pub requests: usize,
    /// Requests with a complete answer.
    pub completed: usize,
    /// Requests without one.
    pub failed: usize,
    /// From the first request to the last answer, s.
    pub duration_s: f64,
    /// Cached tokens over prompt tokens, as the engines report them.
    pub cache_hit_ratio: f64,
    /// Tokens of answers.
    pub output_tokens_per_s: f64,
    /// Time-averaged maximum over mean of outstanding requests per replica.
    pub outstanding_spread: f64,
    /// Time to the first token.
    pub ttft_ms: Summary,
    /// Time to the end of the answer.
    pub e2e_ms: Summary,
    /// Time in the service's queue.
    pub queue_ms: Summary,
}

impl Run {
    /// The figures of one run.
    #[must_use]
    pub fn new(policy: &str, push: &str, measured: &Measured, outstanding_spread: f64) -> Self {
        let seconds = measured.duration.as_secs_f64();
        let per_second = if seconds > 0.0 {
            measured.usage.output as f64 / seconds
        } else {
            0.0
        };
        Self {
            policy: policy.into(),
            push: push.into(),
            requests: measured.completed + measured.failed,
            completed: measured.completed,
            failed: measured.failed,
            duration_s: round(seconds),
            cache_hit_ratio: round(measured.cache_hit_ratio()),
            output_tokens_per_s: round(per_second),
            outstanding_spread: round(outstanding_spread),
            ttft_ms: measured.ttft.summary(),
            e2e_ms: measured.e2e.summary(),
            queue_ms: measured.queued.summary(),
        }
    }

    /// How it is called in tables and charts.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} / {}", self.policy, self.push)
    }
}

impl Report {
    /// The table for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(&self.runs)
    }

    /// One sentence: what the first run gains over round robin; nothing when there is no such pair.
    #[must_use]
    pub fn verdict(&self) -> Option<String> {
        let ours = self.runs.first()?;
        let plain = self
            .runs
            .iter()
            .skip(1)
            .find(|run| run.policy == "round_robin")?;
        let times = |more: f64, less: f64| {
            if less > 0.0 {
                more / less
            } else {
                f64::INFINITY
            }
        };
        Some(format!(
            "{} found {:.1} times as much of its prompts in the caches as {} did ({:.0} % against {:.0} %). The first \
             token came {:.1} times sooner at the median and {:.1} times at the 90th percentile.",
            ours.label(),
            times(ours.cache_hit_ratio, plain.cache_hit_ratio),
            plain.label(),
            ours.cache_hit_ratio * 100.0,
            plain.cache_hit_ratio * 100.0,
            times(plain.ttft_ms.p50, ours.ttft_ms.p50),
            times(plain.ttft_ms.p90, ours.ttft_ms.p90),
        ))
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    pub(super) fn example() -> Report {
        let summary = |p50: f64| Summary {
            mean: p50,
            p50,
            p90: p50 * 2.0,
            p99: p50 * 3.0,
        };
        let run = |policy: &str, push: &str, hit: f64, p50: f64| Run {
            policy: policy.into(),
            push: push.into(),
            requests: 10,
            completed: 10,
            failed: 0,
            duration_s: 2.0,
            cache_hit_ratio: hit,
            output_tokens_per_s: 1_234.5,
            outstanding_spread: 1.25,
            ttft_ms: summary(p50),
            e2e_ms: summary(p50 * 10.0),
            queue_ms: summary(0.0),
        };
        Report {
            workload: Described {
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
    fn the_json_has_the_documented_members() {
        let json: Value = serde_json::to_value(example()).unwrap();
        let mut members: Vec<&String> = json["runs"][0].as_object().unwrap().keys().collect();
        members.sort();
        assert_eq!(
            members,
            [
                "cache_hit_ratio",
                "completed",
                "duration_s",
                "e2e_ms",
                "failed",
                "output_tokens_per_s",
                "outstanding_spread",
                "policy",
                "push",
                "queue_ms",
                "requests",
                "ttft_ms",
            ]
        );
        assert_eq!(
            json["runs"][0]["ttft_ms"],
            serde_json::json!({"mean": 20.0, "p50": 20.0, "p90": 40.0, "p99": 60.0})
        );
        assert!(json["workload"].is_object());
    }

    #[test]
    fn the_verdict_compares_with_round_robin() {
        let verdict = example().verdict().unwrap();
        assert!(
            verdict.contains("2.0 times as much") && verdict.contains("2.5 times sooner"),
            "{verdict}"
        );
        let alone = Report {
            runs: example().runs.drain(..1).collect(),
            ..example()
        };
        assert_eq!(alone.verdict(), None);
    }
}

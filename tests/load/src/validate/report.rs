//! What a validation ends with: a text, `report.json`, `report.html`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use isotherm_report::page::page;
use maud::{Markup, html};
use serde::Serialize;

use crate::drive::Measured;
use crate::report::Described;
use crate::stats::{Summary, Times, round};

/// How far the hit ratios may be from each other.
const HIT_RATIO_APART_MAX: f64 = 0.03;
/// How far the simulator's median time to the first token may be from the real one, as a share of that.
const TTFT_APART_MAX: f64 = 0.20;

/// Both systems on one workload. This is `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was asked, and of what.
    pub workload: Described,
    /// How far the engine model is from measurements of real engines, a line for each preset.
    pub fits: Vec<String>,
    /// One for each policy.
    pub comparisons: Vec<Comparison>,
}

/// Both systems with one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The policy and the mode of pushing.
    pub scheme: String,
    /// Envoy, the service, engines.
    pub real: Figures,
    /// The simulator.
    pub simulated: Simulated,
    /// How far the simulator is from the real system on the same requests.
    pub apart: Apart,
    /// How far it is on what was recorded of them.
    pub recorded_apart: Apart,
    /// Whether all are within their limits, and nothing failed.
    pub holds: bool,
}

/// The simulator on one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Simulated {
    /// The way from the client to an engine and back, as it was given to the simulator.
    pub way: Way,
    /// On the requests that the real system got.
    pub meant: Figures,
    /// On what `isotherm record` recorded of them.
    pub recorded: Figures,
}

/// How far two systems are from each other.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Apart {
    /// Hit ratio of the simulator less the real one.
    pub hit_ratio: f64,
    /// Median time to the first token of the simulator over the real one, less 1.
    pub ttft_p50: f64,
}

impl Apart {
    fn new(real: &Figures, simulated: &Figures) -> Self {
        let ttft = simulated.ttft_ms.p50 / real.ttft_ms.p50.max(0.001);
        Self {
            hit_ratio: round(simulated.hit_ratio - real.hit_ratio),
            ttft_p50: round(ttft - 1.0),
        }
    }

    fn is_small(self) -> bool {
        self.hit_ratio.abs() <= HIT_RATIO_APART_MAX && self.ttft_p50.abs() <= TTFT_APART_MAX
    }
}

/// What a lone request takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Way {
    /// Median time to the first token in the real system, ms.
    pub real_ms: f64,
    /// The same without any way: the engine's own time, ms.
    pub engine_ms: f64,
}

/// The figures of one run, in the time of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Requests with a complete answer.
    pub completed: usize,
    /// Requests without one.
    pub failed: usize,
    /// Cached tokens over prompt tokens, as the engines count them.
    pub hit_ratio: f64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Time to the first token.
    pub ttft_ms: Summary,
    /// Time to the end of the answer.
    pub e2e_ms: Summary,
    /// Time in the service's queue.
    pub queue_ms: Summary,
}

impl Way {
    /// There and back, ms.
    #[must_use]
    pub fn ms(&self) -> f64 {
        self.real_ms - self.engine_ms
    }
}

impl Figures {
    /// The figures of a run of the real system.
    #[must_use]
    pub fn of(measured: &Measured) -> Self {
        let usage = measured.usage;
        Self::new(
            measured.completed,
            measured.failed,
            (usage.prompt, usage.cached, usage.output),
            [&measured.ttft, &measured.e2e, &measured.queued],
        )
    }

    /// From counts of requests, of tokens of prompts, in caches and of answers, and from times: first token, end, queue.
    pub(super) fn new(
        completed: usize,
        failed: usize,
        (prompt, cached, output): (u64, u64, u64),
        [ttft, e2e, queue]: [&Times; 3],
    ) -> Self {
        Self {
            completed,
            failed,
            hit_ratio: round(cached as f64 / prompt.max(1) as f64),
            prompt_tokens: prompt,
            output_tokens: output,
            ttft_ms: ttft.summary(),
            e2e_ms: e2e.summary(),
            queue_ms: queue.summary(),
        }
    }
}

impl Comparison {
    pub(super) fn new(scheme: &str, real: Figures, simulated: Simulated) -> Self {
        let apart = Apart::new(&real, &simulated.meant);
        let recorded_apart = Apart::new(&real, &simulated.recorded);
        let failed = real.failed + simulated.meant.failed + simulated.recorded.failed;
        Self {
            scheme: scheme.into(),
            holds: apart.is_small() && recorded_apart.is_small() && failed == 0,
            apart,
            recorded_apart,
            real,
            simulated,
        }
    }

    /// One sentence.
    fn verdict(&self) -> String {
        format!(
            "{}: the simulator's hit ratio is {:+.1} points from the real one (on what was recorded {:+.1}; at most {:.0}), \
             its median time to the first token {:+.1} % ({:+.1} %; at most {:.0} %): {}",
            self.scheme,
            100.0 * self.apart.hit_ratio,
            100.0 * self.recorded_apart.hit_ratio,
            100.0 * HIT_RATIO_APART_MAX,
            100.0 * self.apart.ttft_p50,
            100.0 * self.recorded_apart.ttft_p50,
            100.0 * TTFT_APART_MAX,
            if self.holds { "holds" } else { "DOES NOT HOLD" },
        )
    }
}

/// A row of the table: its name, the figure of the real system, of the simulator, and of the simulator on the recording.
type Row = (&'static str, [String; 3]);

impl Comparison {
    fn rows(&self) -> Vec<Row> {
        let Simulated {
            meant, recorded, ..
        } = &self.simulated;
        let of = |name, figure: &dyn Fn(&Figures) -> String| {
            (name, [&self.real, meant, recorded].map(figure))
        };
        let ms = |value: f64| format!("{value:.0} ms");
        vec![
            of("prompt tokens in caches", &|f| {
                format!("{:.1} %", 100.0 * f.hit_ratio)
            }),
            of("first token, p50", &|f| ms(f.ttft_ms.p50)),
            of("first token, p90", &|f| ms(f.ttft_ms.p90)),
            of("end of answer, p50", &|f| ms(f.e2e_ms.p50)),
            of("end of answer, p90", &|f| ms(f.e2e_ms.p90)),
            of("queue, p90", &|f| ms(f.queue_ms.p90)),
            of("failed", &|f| f.failed.to_string()),
            of("prompt tokens", &|f| f.prompt_tokens.to_string()),
            of("tokens of answers", &|f| f.output_tokens.to_string()),
        ]
    }

    fn way(&self) -> String {
        let way = self.simulated.way;
        format!(
            "a lone request has its first token after {:.1} ms, of which the engine takes {:.1} ms: the way is {:.1} ms",
            way.real_ms,
            way.engine_ms,
            way.ms(),
        )
    }
}

const COLUMNS: [&str; 3] = ["real", "simulated", "as recorded"];

impl Report {
    /// Whether the simulator is right about every policy.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.comparisons.iter().all(|comparison| comparison.holds)
    }

    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let workload = &self.workload;
        let mut text = format!(
            "{}; {} replicas, {}\n\nThe engine model against measurements:\n",
            workload.description, workload.replicas, workload.engine
        );
        for fit in &self.fits {
            text.push_str(&format!("  {fit}\n"));
        }
        for comparison in &self.comparisons {
            let mut line = |name: &str, cells: [&str; 3]| {
                let [real, simulated, recorded] = cells;
                text.push_str(&format!(
                    "{name:<26}{real:>14}{simulated:>14}{recorded:>14}\n"
                ));
            };
            line("", [""; 3]);
            line(&comparison.scheme, COLUMNS);
            for (name, cells) in comparison.rows() {
                line(name, cells.each_ref().map(String::as_str));
            }
            text.push_str(&format!("{}\n", comparison.way()));
        }
        text.push('\n');
        for comparison in &self.comparisons {
            text.push_str(&format!("{}\n", comparison.verdict()));
        }
        text
    }

    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<[PathBuf; 2]> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let [json, html] = [directory.join("report.json"), directory.join("report.html")];
        let put = |path: &Path, text: String| {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        put(&json, serde_json::to_string_pretty(self)?)?;
        put(
            &html,
            page("The simulator against the real system", "", &self.body()),
        )?;
        Ok([json, html])
    }

    fn body(&self) -> Markup {
        let workload = &self.workload;
        html! {
            h1 { "The simulator against the real system" }
            p { (workload.description) "; " (workload.replicas) " replicas, " (workload.engine) ". Times are those of this machine." }
            ul.verdicts { @for comparison in &self.comparisons {
                li.not[!comparison.holds] { (comparison.verdict()) }
            } }
            @for comparison in &self.comparisons {
                section {
                    h2 { (comparison.scheme) }
                    table {
                        tr { th { } @for column in COLUMNS { th { (column) } } }
                        @for (name, cells) in comparison.rows() {
                            tr { td { (name) } @for cell in cells { td { (cell) } } }
                        }
                    }
                    p { (comparison.way()) "." }
                }
            }
            section {
                h2 { "The engine model against measurements of real engines" }
                ul { @for fit in &self.fits { li { (fit) } } }
            }
        }
    }
}

/// The value in the middle; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn figures(cached: u64, ttft_ms: u64, failed: usize) -> Figures {
        let mut times = Times::default();
        times.record(Duration::from_millis(ttft_ms));
        Figures::new(10, failed, (1_000, cached, 5), [&times, &times, &times])
    }

    #[test]
    fn it_holds_within_three_points_and_a_fifth_when_nothing_fails() {
        let way = Way {
            real_ms: 12.0,
            engine_ms: 10.0,
        };
        let real = figures(500, 100, 0);
        let of = |meant, recorded| Simulated {
            way,
            meant,
            recorded,
        };
        let small = figures(500, 100, 0);
        let holds = |meant: Figures| {
            let meant_holds =
                Comparison::new("x", real.clone(), of(meant.clone(), small.clone())).holds;
            let recorded_holds = Comparison::new("x", real.clone(), of(small.clone(), meant)).holds;
            assert_eq!(meant_holds, recorded_holds);
            meant_holds
        };
        assert!(holds(figures(520, 115, 0)));
        assert!(!holds(figures(540, 100, 0)));
        assert!(!holds(figures(500, 75, 0)));
        assert!(!holds(figures(500, 125, 0)));
        assert!(!holds(figures(500, 100, 1)));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }
}

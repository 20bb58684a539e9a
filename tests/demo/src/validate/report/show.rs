//! A validation for a terminal and as a page.

use std::path::{Path, PathBuf};

use isotherm_report::files;
use isotherm_report::page::{mark, page, verdicts};
use maud::{Markup, html};

use super::{Comparison, Figures, HIT_RATIO_APART_MAX, Report, Simulated, TTFT_APART_MAX};

/// A row of the table: its name, the figure of the real system, of the simulator, and of the simulator on the recording.
type Row = (&'static str, [String; 3]);

impl Comparison {
    /// One sentence.
    fn verdict(&self) -> String {
        format!(
            "{}: the simulator's hit ratio is {:+.1} points from the real one (on what was recorded {:+.1}; at most {:.0}), \
             its median time to the first token {:+.1} % ({:+.1} %; at most {:.0} %)",
            self.scheme,
            100.0 * self.apart.hit_ratio,
            100.0 * self.recorded_apart.hit_ratio,
            100.0 * HIT_RATIO_APART_MAX,
            100.0 * self.apart.ttft_p50,
            100.0 * self.recorded_apart.ttft_p50,
            100.0 * TTFT_APART_MAX,
        )
    }

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
            let holds = mark(Some(comparison.holds));
            text.push_str(&format!("{holds}{}\n", comparison.verdict()));
        }
        text
    }

    pub(in crate::validate) fn write(&self, directory: &Path) -> anyhow::Result<[PathBuf; 2]> {
        let json = serde_json::to_string_pretty(self)?;
        let page = page("The simulator against the real system", "", &self.body());
        files::write(directory, [("report.json", json), ("report.html", page)])
    }

    fn body(&self) -> Markup {
        let workload = &self.workload;
        let claims: Vec<(Option<bool>, String)> = self
            .comparisons
            .iter()
            .map(|one| (Some(one.holds), one.verdict()))
            .collect();
        html! {
            h1 { "The simulator against the real system" }
            p { (workload.description) "; " (workload.replicas) " replicas, " (workload.engine) ". Times are those of this machine." }
            (verdicts(claims.iter().map(|(holds, claim)| (*holds, claim.as_str()))))
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

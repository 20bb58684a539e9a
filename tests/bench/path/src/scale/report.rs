//! The report of the bench: what a request costs by the number of replicas.

use isotherm_bench_path::turn::PERCENTS;
use isotherm_bench_path::variant::Variant;
use isotherm_harness::MedianRange;
use isotherm_report::number::{hundredths, whole};
use isotherm_report::{Conclusion, Report, Row, RunFacts, Section, Table};

use crate::{Measurements, Run, Subject};

/// The most of the added median with so many replicas, in multiples of that with the fewest.
const ALLOWED: [(u16, f64); 2] = [(1_000, 1.2), (10_000, 1.5)];

/// Columns of the table.
const COLUMNS: [&str; 13] = [
    "replicas",
    "",
    "services",
    "idle CPU ms/s",
    "CPU us per request",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "added p50",
    "added p90",
    "added p99",
    "resident MB",
    "failed",
];

impl Measurements {
    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub(crate) fn report(&self) -> anyhow::Result<Report> {
        let options = &self.options;
        let text = format!(
            "One process answers at once for all replicas; one Envoy worker; {} requests/s of conversations with 4 KB, the same \
             arrivals for all. {} rounds of {} s. Each variant runs alone, with its defaults. Times are from the scheduled \
             arrival to the end of the response; added ones are beyond plain Envoy's with as many replicas in the same round. \
             Figures are medians over the rounds.",
            options.rate, options.rounds, options.seconds,
        );
        let failures = self.failures.iter();
        let failures =
            failures.map(|failure| Conclusion::note(format!("{} does not serve", failure.subject)));
        let conclusions = self.claims().chain(failures).collect();
        let section = Section::new("").text(text).conclusions(conclusions);
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask bench scale")),
            ..Report::new(
                "Isotherm: cost by the number of replicas",
                [section, self.costs()],
            )
        };
        report.with_data(self)
    }

    /// Whether the median that Isotherm adds stays the same.
    fn claims(&self) -> impl Iterator<Item = Conclusion> {
        let added = |replicas| {
            let variant = Variant::Isotherm;
            let services = 1;
            self.added_ms(
                Subject {
                    variant,
                    replicas,
                    services,
                },
                0,
            )
        };
        let few = self.options.replicas.iter().copied().min();
        let few = few.and_then(|few| Some((few, added(few)?)));
        ALLOWED.into_iter().filter_map(move |(replicas, allowed)| {
            let ((fewest, few), many) = (few?, added(replicas)?);
            let text = format!(
                "With {replicas} replicas the median that Isotherm adds is at most {allowed} times that with {fewest}"
            );
            let claim = Conclusion::claim(text, many / few <= allowed);
            let [many, few, ratio] = [many, few, many / few].map(hundredths);
            Some(claim.measured(format!("{many} ms and {few} ms: {ratio}")))
        })
    }

    fn costs(&self) -> Section {
        let subjects = self.options.subjects().into_iter();
        let rows = subjects.filter_map(|subject| self.row(subject));
        let table = Table::new(COLUMNS).with_rows(rows);
        let shown = [
            "replicas",
            "",
            "services",
            "idle CPU ms/s",
            "CPU us per request",
            "added p50",
            "added p90",
            "added p99",
            "resident MB",
        ];
        let is_shown = |row: &Row| row.text(1) != Variant::Envoy.name();
        Section::new("Cost by the number of replicas").table(table.headline(&shown, is_shown))
    }

    /// The cells of a subject; `None` without a run.
    fn row(&self, subject: Subject) -> Option<Vec<String>> {
        let of = |figure: fn(&Run) -> f64| {
            Some(MedianRange::of(self.runs_of(subject).map(figure))?.median)
        };
        let idle_ms = of(|run| run.idle.cpu_micros_per_s.values().sum::<f64>() / 1e3)?;
        let cpu_micros = of(|run| run.turn.cpu_micros.values().sum())?;
        let failed: u64 = self.runs_of(subject).map(|run| run.turn.failed).sum();
        let mut cells = vec![
            subject.replicas.to_string(),
            subject.variant.name().to_owned(),
            subject.services.to_string(),
            hundredths(idle_ms),
            whole(cpu_micros),
        ];
        for index in 0..PERCENTS.len() {
            let at = self.runs_of(subject).filter_map(|run| at_ms(run, index));
            cells.push(hundredths(MedianRange::of(at)?.median));
        }
        for index in 0..PERCENTS.len() {
            let added = self.added_ms(subject, index);
            let added = added.filter(|_| subject.variant != Variant::Envoy);
            cells.push(added.map_or_else(String::new, hundredths));
        }
        cells.push(whole(of(|run| run.memory.total() / 1e6)?));
        cells.push(failed.to_string());
        Some(cells)
    }

    fn runs_of(&self, subject: Subject) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.subject == subject)
    }

    /// The time that a subject adds to plain Envoy's in the same round, at a percentile by its index.
    fn added_ms(&self, subject: Subject, index: usize) -> Option<f64> {
        let plain = Subject {
            variant: Variant::Envoy,
            services: 1,
            ..subject
        };
        let plain = |round| {
            let mut runs = self.runs_of(plain);
            at_ms(runs.find(|run| run.turn.round == round)?, index)
        };
        let runs = self.runs_of(subject);
        let added = runs.filter_map(|run| Some(at_ms(run, index)? - plain(run.turn.round)?));
        Some(MedianRange::of(added)?.median)
    }
}

fn at_ms(run: &Run, index: usize) -> Option<f64> {
    let micros = run.turn.latency_micros.get(index)?;
    Some(micros / 1e3)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser as _;
    use isotherm_bench_path::memory::Memory;
    use isotherm_bench_path::turn::{IdleUsage, Turn};

    use super::*;
    use crate::{Arguments, Failure};

    fn run(subject: Subject, micros: f64) -> Run {
        let variant = subject.variant;
        let figure = |value| BTreeMap::from([("Envoy", value), ("service", value)]);
        Run {
            subject,
            idle: IdleUsage {
                variant,
                cpu_micros_per_s: figure(2_000.0),
            },
            turn: Turn {
                variant,
                workload: "4 KB, turns",
                round: 0,
                per_second: 200.0,
                completed: 2_000,
                failed: 0,
                cpu_micros: figure(80.0),
                ext_proc_bytes: None,
                latency_micros: [micros, micros * 2.0, micros * 4.0],
            },
            memory: Memory {
                variant,
                prompts: 2_000,
                resident_bytes: BTreeMap::from([("Envoy", 70_000_000)]),
            },
        }
    }

    fn subject(variant: Variant, replicas: u16) -> Subject {
        Subject {
            variant,
            replicas,
            services: 1,
        }
    }

    #[test]
    fn the_page_compares_what_isotherm_adds_and_names_who_does_not_serve() {
        let options = Arguments::parse_from(["scale", "--replicas", "10,1000"]);
        let failure = Failure {
            subject: subject(Variant::Smg, 1_000),
            error: "no response".into(),
        };
        let measured = Measurements {
            options,
            runs: vec![
                run(subject(Variant::Envoy, 10), 500.0),
                run(subject(Variant::Isotherm, 10), 900.0),
                run(subject(Variant::Envoy, 1_000), 600.0),
                run(subject(Variant::Isotherm, 1_000), 1_200.0),
            ],
            failures: vec![failure],
        };
        let text = measured.report().unwrap().text();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        for line in [
            "10 Isotherm 1 4.00 160 0.90 1.80 3.60 0.40 0.80 1.60 70 0",
            "at most 1.2 times that with 10",
            "0.60 ms and 0.40 ms: 1.50",
            "smg with 1000 replicas does not serve",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}

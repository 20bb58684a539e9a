//! The result of a run, and its report.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use isotherm_report::{Conclusion, Report, RunFacts, Section, Table};
use serde_json::{Value, json};

use super::affinity::Affinity;
use super::explanation::label;
use super::fault_log::FaultLog;
use super::record::RequestRecord;
use super::resources::Growth;
use super::violation::{Invariant, Violation};

/// Violations of one invariant that the report shows.
const SHOWN_MAX: usize = 20;
/// Requests in the table of the slowest.
const SLOWEST_SHOWN: usize = 8;
const MIB: f64 = 1024.0 * 1024.0;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct SoakResult {
    pub(super) seed: u64,
    /// Time for which clients sent requests.
    pub(super) load: Duration,
    pub(super) records: Vec<RequestRecord>,
    pub(super) faults: FaultLog,
    pub(super) growth: Vec<Growth>,
    pub(super) warm_up: Range<Duration>,
    pub(super) recovered: Vec<Range<Duration>>,
    pub(super) violations: Vec<Violation>,
}

impl SoakResult {
    /// Whether every invariant held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let summary = format!(
            "Seed {}. {:.1} minutes of load: {} requests and {} faults on 4 simulated replicas, 2 services and 2 Envoys.",
            self.seed,
            self.load.as_secs_f64() / 60.0,
            self.records.len(),
            self.faults.0.len(),
        );
        let report = Report::new(
            "A system under fire",
            [
                Section::new("Invariants")
                    .text(summary)
                    .conclusions(self.conclusions()),
                Section::new("Violations").table(self.violations()),
                Section::new("Requests").table(self.requests()),
                Section::new("Requests without an answer").table(self.failures()),
                Section::new("Slowest requests").table(self.slowest()),
                Section::new("Faults").table(self.kinds_of_faults()),
                Section::new("Processes that survived").table(self.processes()),
                Section::new("Affinity").table(self.affinity()),
                Section::detail("All faults").table(self.all_faults()),
            ],
        );
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            ..report
        };
        report.with_data(&self.data())
    }

    fn conclusions(&self) -> Vec<Conclusion> {
        let conclusion = |invariant: Invariant| {
            let violations = self.violations.iter();
            let count = violations.filter(|violation| violation.invariant == invariant);
            let count = count.count();
            Conclusion::claim(invariant.claim(), count == 0).measured(format!("{count} violations"))
        };
        Invariant::ALL.map(conclusion).into()
    }

    fn violations(&self) -> Table {
        let mut table = Table::new(["at s", "invariant", "what"]);
        for invariant in Invariant::ALL {
            let violations = self.violations.iter();
            let of_invariant = violations.filter(|violation| violation.invariant == invariant);
            for violation in of_invariant.take(SHOWN_MAX) {
                let at = seconds(violation.at);
                table.push([at, format!("{invariant:?}"), violation.what.clone()]);
            }
        }
        table
    }

    fn requests(&self) -> Table {
        let mut kinds: BTreeMap<_, BTreeMap<String, usize>> = BTreeMap::new();
        for record in &self.records {
            let endings = kinds.entry(record.kind).or_default();
            let is_answered = matches!(record.ending, super::record::RequestEnd::Answered(_));
            let name = if is_answered { "answered" } else { "other" };
            *endings.entry(name.into()).or_default() += 1;
        }
        let rows = kinds.iter().map(|(kind, endings)| {
            let count = |name| endings.get(name).copied().unwrap_or(0);
            let (answered, other) = (count("answered"), count("other"));
            [
                kind.name().to_owned(),
                (answered + other).to_string(),
                answered.to_string(),
            ]
        });
        Table::new(["kind", "requests", "answered"]).with_rows(rows)
    }

    fn failures(&self) -> Table {
        let mut endings: BTreeMap<(&str, String), usize> = BTreeMap::new();
        for record in &self.records {
            let label = label(record);
            if label != "answered" {
                *endings.entry((record.kind.name(), label)).or_default() += 1;
            }
        }
        let rows = endings
            .into_iter()
            .map(|((kind, label), count)| [kind.to_owned(), label, count.to_string()]);
        Table::new(["kind", "ended by", "requests"]).with_rows(rows)
    }

    fn slowest(&self) -> Table {
        let time = |record: &RequestRecord| record.ended.saturating_sub(record.sent);
        let mut records: Vec<&RequestRecord> = self.records.iter().collect();
        records.sort_by_key(|record| std::cmp::Reverse(time(record)));
        let rows = records.into_iter().take(SLOWEST_SHOWN).map(|record| {
            [
                seconds(record.sent),
                seconds(time(record)),
                record.kind.name().to_owned(),
                label(record),
            ]
        });
        Table::new(["at s", "took s", "kind", "ended by"]).with_rows(rows)
    }

    fn kinds_of_faults(&self) -> Table {
        let mut kinds: BTreeMap<_, (usize, Duration)> = BTreeMap::new();
        for fault in &self.faults.0 {
            let (count, time) = kinds.entry(fault.kind).or_default();
            *count += 1;
            *time += fault
                .healed
                .unwrap_or(self.load)
                .saturating_sub(fault.began);
        }
        let rows = kinds.into_iter().map(|(kind, (count, time))| {
            [kind.name().to_owned(), count.to_string(), seconds(time)]
        });
        Table::new(["fault", "count", "s in all"]).with_rows(rows)
    }

    fn all_faults(&self) -> Table {
        let rows = self.faults.0.iter().map(|fault| {
            [
                seconds(fault.began),
                fault.healed.map_or_else(String::new, seconds),
                fault.kind.name().to_owned(),
                format!("{:?}", fault.target),
            ]
        });
        Table::new(["from s", "until s", "fault", "target"]).with_rows(rows)
    }

    fn processes(&self) -> Table {
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / MIB);
        let rows = self.growth.iter().map(|growth| {
            [
                growth.process.clone(),
                mib(growth.first.resident_bytes),
                mib(growth.last.resident_bytes),
                growth.first.open_files.to_string(),
                growth.last.open_files.to_string(),
            ]
        });
        let columns = [
            "process",
            "MiB first",
            "MiB last",
            "files first",
            "files last",
        ];
        Table::new(columns).with_rows(rows)
    }

    fn affinity(&self) -> Table {
        let row = |name: String, time: &Range<Duration>| {
            let affinity = Affinity::of(&self.records, time);
            let share = format!("{:.1}", 100.0 * affinity.cached_share);
            [name, seconds(time.start), affinity.turns.to_string(), share]
        };
        let rounds = self.recovered.iter().enumerate();
        let rounds = rounds.map(|(round, time)| row(format!("after round {}", round + 1), time));
        let rows = [row("warm-up".into(), &self.warm_up)].into_iter();
        Table::new(["time", "from s", "turns", "% cached"]).with_rows(rows.chain(rounds))
    }

    fn data(&self) -> Value {
        json!({
            "seed": self.seed,
            "load_s": self.load.as_secs_f64(),
            "requests": self.records.len(),
            "faults": self.faults.0.len(),
            "processes": self.growth,
            "violations": self.violations,
        })
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

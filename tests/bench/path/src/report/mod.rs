//! What came out, for people (tables of medians, charts) and for programs (every sample).

mod goals;
mod html;
mod table;

use std::path::{Path, PathBuf};

use isotherm_harness::MedianRange;
use isotherm_report::files;
use serde::Serialize;

use super::Options;
use super::cost::{IdleUsage, Sample};
use super::latency::{Latency, PERCENTS};
use super::memory::Memory;
use super::variant::Variant;
use super::workload::Workload;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How often each row had its turn.
    pub rounds: u32,
    /// How long a turn was.
    pub seconds: u32,
    /// How long a turn of the latencies was.
    pub latency_seconds: u32,
    /// How many clients asked.
    pub clients: u16,
    /// How many replicas answered.
    pub replicas: u16,
    /// Whether processors were kept from sleeping.
    pub awake: bool,
    /// Which release of `sglang-router` was compared with.
    pub sglang_version: Option<String>,
    /// The rows, in order.
    pub rows: Vec<Variant>,
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// What each row uses while nobody asks.
    pub rest: Vec<IdleUsage>,
    /// Every turn.
    pub samples: Vec<Sample>,
    /// Every turn of streams at one rate.
    pub streams: Vec<Sample>,
    /// Memory after those.
    pub memory_after: Vec<Memory>,
    /// Every turn at a fixed rate.
    pub latencies: Vec<Latency>,
    /// How memory grew with unique prompts.
    pub memory: Vec<Memory>,
}

impl Report {
    /// Nothing yet.
    pub(super) fn new(
        options: &Options,
        rows: Vec<Variant>,
        sglang_version: Option<String>,
    ) -> Self {
        let compared = rows.contains(&Variant::SglangRouter);
        Self {
            rounds: options.rounds,
            seconds: options.seconds,
            latency_seconds: options.latency_seconds,
            clients: options.clients,
            replicas: options.replicas,
            awake: options.awake,
            sglang_version: sglang_version.filter(|_| compared),
            rows,
            workloads: options.workloads(),
            rest: Vec::new(),
            samples: Vec::new(),
            streams: Vec::new(),
            memory_after: Vec::new(),
            latencies: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Medians over the rounds, in Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        table::write(self)
    }

    /// Writes every sample as JSON, the tables as Markdown and the charts as one page; returns the page.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let json = serde_json::to_string_pretty(self)?;
        let written = [
            ("path.json", json),
            ("path.md", self.table()),
            ("path.html", html::render(self)?),
        ];
        let [_, _, page] = files::write(directory, written)?;
        Ok(page)
    }

    /// What the processors did between two requests.
    fn processors(&self) -> &'static str {
        if self.awake {
            "processors kept awake"
        } else {
            "processors free to sleep"
        }
    }

    fn of<'a>(&'a self, row: Variant, workload: &'a Workload) -> impl Iterator<Item = &'a Sample> {
        let name = workload.name;
        self.samples
            .iter()
            .filter(move |sample| sample.row == row && sample.workload == name)
    }

    /// Requests a second, in each round.
    fn rates(&self, row: Variant, workload: &Workload) -> Vec<f64> {
        let samples = self.of(row, workload);
        samples.map(|sample| sample.per_second).collect()
    }

    /// Requests a second of a row at saturation.
    pub(super) fn carried(&self, row: Variant, workload: &Workload) -> Option<f64> {
        MedianRange::of(self.rates(row, workload)).map(|of| of.median)
    }

    /// Whether a row can answer so many requests a second. One that cannot has no latency, only a queue that grows for as long
    /// as it is asked.
    pub(super) fn keeps_up(&self, row: Variant, workload: &Workload, per_second: f64) -> bool {
        let carried = self.carried(row, workload);
        carried.is_some_and(|carried| carried > per_second)
    }

    /// Requests of a row without an answer, over all rounds.
    fn failed(&self, row: Variant, workload: &Workload) -> u64 {
        let samples = self.of(row, workload).map(|sample| sample.failed);
        let latencies = self.latencies.iter();
        let own = latencies.filter(|of| of.row == row && of.workload == workload.name);
        samples.chain(own.map(|latency| latency.failed)).sum()
    }

    /// CPU time per request over all processes, in microseconds.
    fn cpu(&self, row: Variant, workload: &Workload) -> Option<MedianRange> {
        let samples = self.of(row, workload);
        MedianRange::of(samples.map(|sample| sample.cpu_micros.values().sum()))
    }

    /// CPU time per request of one process, in microseconds.
    fn cpu_of(&self, row: Variant, workload: &Workload, process: &str) -> Option<MedianRange> {
        let samples = self.of(row, workload);
        MedianRange::of(samples.filter_map(|sample| sample.cpu_micros.get(process).copied()))
    }

    /// CPU time per request of one process at the rate that is the same for streams of every length, in microseconds.
    fn streams_of(&self, row: Variant, workload: &Workload, process: &str) -> Option<MedianRange> {
        let turns = self.streams.iter();
        let own = turns.filter(|turn| turn.row == row && turn.workload == workload.name);
        MedianRange::of(own.filter_map(|turn| turn.cpu_micros.get(process).copied()))
    }

    /// CPU time per request of a row over that of another one in the same round.
    fn ratio(&self, row: Variant, to: Variant, workload: &Workload) -> Option<MedianRange> {
        let cpu = |row| -> Vec<f64> {
            let samples = self.of(row, workload);
            samples
                .map(|sample| sample.cpu_micros.values().sum())
                .collect()
        };
        let (one, other) = (cpu(row), cpu(to));
        MedianRange::of(one.iter().zip(&other).map(|(one, other)| one / other))
    }

    /// What a row adds to plain Envoy's time in the same round, in microseconds, at one of [`PERCENTS`].
    fn added(&self, row: Variant, workload: &Workload, percent: usize) -> Option<MedianRange> {
        let at = |row: Variant, round: u32| {
            let found = self.latencies.iter().find(|latency| {
                latency.row == row && latency.round == round && latency.workload == workload.name
            });
            found.and_then(|latency| latency.micros.get(percent).copied())
        };
        let rounds = 0..self.rounds;
        MedianRange::of(
            rounds.filter_map(|round| Some(at(row, round)? - at(Variant::Envoy, round)?)),
        )
    }
}

/// Where a percentile is in [`PERCENTS`].
fn place_of(percent: f64) -> usize {
    PERCENTS.partition_point(|candidate| *candidate < percent)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::workload::WORKLOADS;
    use super::*;

    fn sample(row: Variant, micros: f64) -> Sample {
        Sample {
            row,
            workload: "4 KB",
            requests: 1,
            failed: 0,
            per_second: 1_000.0,
            cpu_micros: BTreeMap::from([("Envoy", micros), ("service", 10.0)]),
            ext_proc_bytes: (row != Variant::Envoy).then_some([900.0, 200.0]),
        }
    }

    fn latency(row: Variant, round: u32, micros: f64) -> Latency {
        Latency {
            row,
            workload: "4 KB",
            round,
            per_second: 300.0,
            requests: 100,
            failed: 0,
            micros: [micros, micros * 2.0, micros * 4.0],
        }
    }

    pub(in super::super) fn example() -> Report {
        let memory = |row, prompts| Memory {
            row,
            prompts,
            resident_bytes: BTreeMap::from([("Envoy", 50_000_000)]),
        };
        let samples = [
            (Variant::Envoy, 90.0),
            (Variant::Envoy, 80.0),
            (Variant::Envoy, 95.0),
            (Variant::Floor, 150.0),
            (Variant::Isotherm, 190.0),
        ];
        let latencies = [
            latency(Variant::Envoy, 0, 200.0),
            latency(Variant::Floor, 0, 300.0),
            latency(Variant::Isotherm, 0, 500.0),
            latency(Variant::Envoy, 1, 250.0),
            latency(Variant::Isotherm, 1, 650.0),
        ];
        Report {
            rounds: 3,
            seconds: 1,
            latency_seconds: 1,
            clients: 1,
            replicas: 1,
            awake: false,
            sglang_version: None,
            rows: vec![Variant::Envoy, Variant::Floor, Variant::Isotherm],
            workloads: WORKLOADS.first().copied().into_iter().collect(),
            rest: vec![IdleUsage {
                row: Variant::Isotherm,
                cpu_micros_per_s: BTreeMap::from([("service", 2_000.0)]),
            }],
            memory_after: vec![memory(Variant::Isotherm, 3)],
            samples: samples.map(|(row, micros)| sample(row, micros)).into(),
            streams: Vec::new(),
            latencies: latencies.into(),
            memory: vec![memory(Variant::Isotherm, 0), memory(Variant::Isotherm, 7)],
        }
    }

    #[test]
    fn a_row_keeps_up_with_less_than_it_carries() {
        let report = example();
        let workload = report.workloads.first().unwrap();
        assert!(report.keeps_up(Variant::Isotherm, workload, 999.0));
        assert!(!report.keeps_up(Variant::Isotherm, workload, 1_001.0));
        assert!(
            !report.keeps_up(Variant::SglangRouter, workload, 1.0),
            "it has had no turn"
        );
    }

    #[test]
    fn what_is_added_is_told_from_plain_envoy_in_the_same_round() {
        let report = example();
        let workload = report.workloads.first().unwrap();
        let added = report
            .added(Variant::Isotherm, workload, place_of(50.0))
            .unwrap();
        assert_eq!((added.min, added.max), (300.0, 400.0));
        assert_eq!(place_of(99.0), 2);
        assert_eq!(report.added(Variant::Filter, workload, 0), None);
    }
}

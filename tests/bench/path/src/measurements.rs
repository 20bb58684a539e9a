//! The measurements of the bench, and the figures of its report.

use isotherm_harness::MedianRange;
use serde::Serialize;

use crate::Options;
use crate::memory::Memory;
use crate::turn::{IdleUsage, PERCENTS, Turn};
use crate::variant::Variant;
use crate::workload::Workload;

/// All measurements: `path.json`.
#[derive(Debug, Default, Serialize)]
pub struct PathMeasurements {
    /// Options of the bench.
    #[serde(flatten)]
    pub options: Options,
    /// Release of `smg`, when it takes part.
    pub smg_version: Option<String>,
    /// Variants in order.
    pub variants: Vec<Variant>,
    /// Workloads in order.
    pub workloads: Vec<Workload>,
    /// CPU use of each variant without requests.
    pub idle: Vec<IdleUsage>,
    /// Turns at saturation.
    pub samples: Vec<Turn>,
    /// Turns of streams at one rate.
    pub streams: Vec<Turn>,
    /// Memory after the turns at saturation.
    pub memory_after: Vec<Memory>,
    /// Turns at a fixed rate.
    pub latencies: Vec<Turn>,
    /// Memory over a growing number of unique prompts.
    pub memory: Vec<Memory>,
}

impl PathMeasurements {
    /// Requests per second at saturation.
    pub(crate) fn rate(&self, variant: Variant, workload: &Workload) -> Option<MedianRange> {
        let turns = of(&self.samples, variant, workload);
        MedianRange::of(turns.map(|turn| turn.per_second))
    }

    /// Whether a variant sustains this rate. The queue of a variant that does not grows without bound.
    pub(crate) fn keeps_up(&self, variant: Variant, workload: &Workload, per_second: f64) -> bool {
        let rate = self.rate(variant, workload);
        rate.is_some_and(|rate| rate.median > per_second)
    }

    /// Failed requests of a variant over all rounds.
    pub(crate) fn failed(&self, variant: Variant, workload: &Workload) -> u64 {
        let turns = [&self.samples, &self.latencies].into_iter();
        turns
            .flat_map(|turns| of(turns, variant, workload))
            .map(|turn| turn.failed)
            .sum()
    }

    /// CPU time per request of all processes, in microseconds.
    pub(crate) fn cpu(&self, variant: Variant, workload: &Workload) -> Option<MedianRange> {
        MedianRange::of(of(&self.samples, variant, workload).map(total_cpu))
    }

    /// CPU time per request of a variant over that of another in the same round.
    pub(crate) fn ratio(
        &self,
        variant: Variant,
        to: Variant,
        workload: &Workload,
    ) -> Option<MedianRange> {
        let cpu = |variant| of(&self.samples, variant, workload).map(total_cpu);
        MedianRange::of(cpu(variant).zip(cpu(to)).map(|(cpu, to)| cpu / to))
    }

    /// CPU time per request beyond plain Envoy's in the same round, in microseconds; `None` for plain Envoy.
    pub(crate) fn beyond_envoy(
        &self,
        variant: Variant,
        workload: &Workload,
    ) -> Option<MedianRange> {
        MedianRange::of(self.each_beyond_envoy(variant, workload))
    }

    /// CPU time per request beyond plain Envoy's over that of another variant in the same round.
    pub(crate) fn beyond_ratio(
        &self,
        variant: Variant,
        to: Variant,
        workload: &Workload,
    ) -> Option<MedianRange> {
        let beyond = |variant| self.each_beyond_envoy(variant, workload);
        MedianRange::of(beyond(variant).zip(beyond(to)).map(|(cpu, to)| cpu / to))
    }

    fn each_beyond_envoy(
        &self,
        variant: Variant,
        workload: &Workload,
    ) -> impl Iterator<Item = f64> {
        let cpu = |variant| of(&self.samples, variant, workload).map(total_cpu);
        let pairs = cpu(variant).zip(cpu(Variant::Envoy));
        pairs
            .filter(move |_| variant != Variant::Envoy)
            .map(|(cpu, plain)| cpu - plain)
    }

    /// Time that a variant adds to plain Envoy's in the same round at a percentile, in milliseconds.
    pub(crate) fn added_ms(
        &self,
        variant: Variant,
        workload: &Workload,
        percent: usize,
    ) -> Option<MedianRange> {
        let index = PERCENTS.iter().position(|known| *known == percent)?;
        let at = |variant: Variant, round: u32| {
            let turn = of(&self.latencies, variant, workload).find(|turn| turn.round == round)?;
            turn.latency_micros.get(index).map(|micros| micros / 1e3)
        };
        let added = |round| Some(at(variant, round)? - at(Variant::Envoy, round)?);
        MedianRange::of((0..self.options.rounds).filter_map(added))
    }
}

/// The turns of a variant on a workload.
pub(crate) fn of<'a>(
    turns: &'a [Turn],
    variant: Variant,
    workload: &Workload,
) -> impl Iterator<Item = &'a Turn> {
    let name = workload.name;
    let is_wanted = move |turn: &&Turn| turn.variant == variant && turn.workload == name;
    turns.iter().filter(is_wanted)
}

/// CPU time per request of one process over some turns, in microseconds.
pub(crate) fn cpu_of<'a>(
    turns: impl Iterator<Item = &'a Turn>,
    process: &str,
) -> Option<MedianRange> {
    MedianRange::of(turns.filter_map(|turn| turn.cpu_micros.get(process).copied()))
}

fn total_cpu(turn: &Turn) -> f64 {
    turn.cpu_micros.values().sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::workload::WORKLOADS;

    fn turn(variant: Variant, round: u32, envoy_micros: f64, latency: f64) -> Turn {
        Turn {
            variant,
            workload: "4 KB",
            round,
            per_second: 1_000.0,
            completed: 100,
            failed: 0,
            cpu_micros: BTreeMap::from([("Envoy", envoy_micros), ("service", 10.0)]),
            ext_proc_bytes: (variant != Variant::Envoy).then_some([900.0, 200.0]),
            latency_micros: [latency, latency * 2.0, latency * 4.0],
        }
    }

    pub(crate) fn example() -> PathMeasurements {
        let memory = |variant, prompts| Memory {
            variant,
            prompts,
            resident_bytes: BTreeMap::from([("Envoy", 50_000_000)]),
        };
        let sample = |variant, micros| turn(variant, 0, micros, f64::NAN);
        let samples = [
            sample(Variant::Envoy, 90.0),
            sample(Variant::Envoy, 80.0),
            sample(Variant::Envoy, 95.0),
            sample(Variant::Floor, 150.0),
            sample(Variant::Isotherm, 190.0),
        ];
        let latencies = [
            turn(Variant::Envoy, 0, 0.0, 200.0),
            turn(Variant::Floor, 0, 0.0, 300.0),
            turn(Variant::Isotherm, 0, 0.0, 500.0),
            turn(Variant::Envoy, 1, 0.0, 250.0),
            turn(Variant::Isotherm, 1, 0.0, 650.0),
        ];
        PathMeasurements {
            options: Options {
                rounds: 3,
                clients: 1,
                replicas: 1,
                ..Options::default()
            },
            smg_version: None,
            variants: vec![Variant::Envoy, Variant::Floor, Variant::Isotherm],
            workloads: WORKLOADS.first().copied().into_iter().collect(),
            idle: vec![IdleUsage {
                variant: Variant::Isotherm,
                cpu_micros_per_s: BTreeMap::from([("service", 2_000.0)]),
            }],
            memory_after: vec![memory(Variant::Isotherm, 3)],
            samples: samples.into(),
            streams: Vec::new(),
            latencies: latencies.into(),
            memory: vec![memory(Variant::Isotherm, 0), memory(Variant::Isotherm, 7)],
        }
    }

    #[test]
    fn a_variant_keeps_up_with_a_rate_below_its_saturation() {
        let report = example();
        let workload = report.workloads.first().unwrap();
        let keeps_up = |variant, rate| report.keeps_up(variant, workload, rate);
        assert!(keeps_up(Variant::Isotherm, 999.0));
        assert!(!keeps_up(Variant::Isotherm, 1_001.0));
        assert!(!keeps_up(Variant::Smg, 1.0), "no turn");
    }

    #[test]
    fn a_picker_costs_what_it_takes_beyond_plain_envoy() {
        let report = example();
        let workload = report.workloads.first().unwrap();
        let beyond = report.beyond_envoy(Variant::Isotherm, workload).unwrap();
        assert!((beyond.median - 100.0).abs() < 1e-9, "{beyond:?}");
        let ratio = report.beyond_ratio(Variant::Isotherm, Variant::Floor, workload);
        assert!((ratio.unwrap().median - 100.0 / 60.0).abs() < 1e-9);
        assert_eq!(report.beyond_envoy(Variant::Envoy, workload), None);
    }

    #[test]
    fn added_time_is_the_difference_to_plain_envoy_in_the_same_round() {
        let measurements = example();
        let workload = measurements.workloads.first().unwrap();
        let added_ms = |variant, percent| measurements.added_ms(variant, workload, percent);
        let p50 = added_ms(Variant::Isotherm, 50).unwrap();
        assert!((p50.min - 0.3).abs() < 1e-9 && (p50.max - 0.4).abs() < 1e-9);
        let p99 = added_ms(Variant::Floor, 99).unwrap();
        assert!((p99.median - 0.4).abs() < 1e-9);
        assert_eq!(added_ms(Variant::Filter, 50), None);
    }
}

//! Everything that the bench measured, and the figures that its report and its goals need.

use isotherm_harness::MedianRange;
use serde::Serialize;

use crate::Options;
use crate::cost::{IdleUsage, Sample};
use crate::latency::{Latency, PERCENTS};
use crate::memory::Memory;
use crate::variant::Variant;
use crate::workload::Workload;

/// Everything that was measured: `path.json`.
#[derive(Debug, Serialize)]
pub struct PathMeasurements {
    /// Turns of each variant.
    pub rounds: u32,
    /// Length of a turn.
    pub seconds: u32,
    /// Length of a turn of the latency measurement.
    pub latency_seconds: u32,
    /// Concurrent clients.
    pub clients: u16,
    /// Replicas.
    pub replicas: u16,
    /// Whether CPUs were kept from sleeping.
    pub awake: bool,
    /// Release of `sglang-router`, when it takes part.
    pub sglang_version: Option<String>,
    /// Variants in order.
    pub variants: Vec<Variant>,
    /// Workloads in order.
    pub workloads: Vec<Workload>,
    /// CPU use of each variant without requests.
    pub idle: Vec<IdleUsage>,
    /// Turns at saturation.
    pub samples: Vec<Sample>,
    /// Turns of streams at one rate.
    pub streams: Vec<Sample>,
    /// Memory after the turns at saturation.
    pub memory_after: Vec<Memory>,
    /// Turns at a fixed rate.
    pub latencies: Vec<Latency>,
    /// Memory over a growing number of unique prompts.
    pub memory: Vec<Memory>,
}

impl PathMeasurements {
    /// Measurements without a turn.
    pub(crate) fn new(
        options: &Options,
        variants: Vec<Variant>,
        sglang_version: Option<String>,
    ) -> Self {
        let has_sglang = variants.contains(&Variant::SglangRouter);
        Self {
            rounds: options.rounds,
            seconds: options.seconds,
            latency_seconds: options.latency_seconds,
            clients: options.clients,
            replicas: options.replicas,
            awake: options.awake,
            sglang_version: sglang_version.filter(|_| has_sglang),
            variants,
            workloads: options.workloads(),
            idle: Vec::new(),
            samples: Vec::new(),
            streams: Vec::new(),
            memory_after: Vec::new(),
            latencies: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Turns of a variant on a workload at saturation.
    pub(crate) fn samples_of<'a>(
        &'a self,
        variant: Variant,
        workload: &'a Workload,
    ) -> impl Iterator<Item = &'a Sample> {
        let name = workload.name;
        let samples = self.samples.iter();
        samples.filter(move |sample| sample.variant == variant && sample.workload == name)
    }

    /// Turns of a variant on a workload at a fixed rate.
    pub(crate) fn latencies_of<'a>(
        &'a self,
        variant: Variant,
        workload: &'a Workload,
    ) -> impl Iterator<Item = &'a Latency> {
        let name = workload.name;
        let latencies = self.latencies.iter();
        latencies.filter(move |latency| latency.variant == variant && latency.workload == name)
    }

    /// Requests per second at saturation.
    pub(crate) fn rate(&self, variant: Variant, workload: &Workload) -> Option<MedianRange> {
        let samples = self.samples_of(variant, workload);
        MedianRange::of(samples.map(|sample| sample.per_second))
    }

    /// Whether a variant sustains this rate. A variant that does not has no latency, only a queue that grows.
    pub(crate) fn keeps_up(&self, variant: Variant, workload: &Workload, per_second: f64) -> bool {
        let rate = self.rate(variant, workload);
        rate.is_some_and(|rate| rate.median > per_second)
    }

    /// Failed requests of a variant over all rounds.
    pub(crate) fn failed(&self, variant: Variant, workload: &Workload) -> u64 {
        let samples = self
            .samples_of(variant, workload)
            .map(|sample| sample.failed);
        let latencies = self
            .latencies_of(variant, workload)
            .map(|latency| latency.failed);
        samples.chain(latencies).sum()
    }

    /// CPU time per request of all processes, in microseconds.
    pub(crate) fn cpu(&self, variant: Variant, workload: &Workload) -> Option<MedianRange> {
        let samples = self.samples_of(variant, workload);
        MedianRange::of(samples.map(|sample| sample.cpu_micros.values().sum()))
    }

    /// CPU time per request of one process, in microseconds.
    pub(crate) fn cpu_of(
        &self,
        variant: Variant,
        workload: &Workload,
        process: &str,
    ) -> Option<MedianRange> {
        let samples = self.samples_of(variant, workload);
        MedianRange::of(samples.filter_map(|sample| sample.cpu_micros.get(process).copied()))
    }

    /// CPU time per request of one process in the turns of streams at one rate, in microseconds.
    pub(crate) fn stream_cpu_of(
        &self,
        variant: Variant,
        workload: &Workload,
        process: &str,
    ) -> Option<MedianRange> {
        let turns = self.streams.iter();
        let turns = turns.filter(|turn| turn.variant == variant && turn.workload == workload.name);
        MedianRange::of(turns.filter_map(|turn| turn.cpu_micros.get(process).copied()))
    }

    /// CPU time per request of a variant over that of another in the same round.
    pub(crate) fn ratio(
        &self,
        variant: Variant,
        to: Variant,
        workload: &Workload,
    ) -> Option<MedianRange> {
        let cpu = |variant| -> Vec<f64> {
            let samples = self.samples_of(variant, workload);
            samples
                .map(|sample| sample.cpu_micros.values().sum())
                .collect()
        };
        let (one, other) = (cpu(variant), cpu(to));
        MedianRange::of(one.iter().zip(&other).map(|(one, other)| one / other))
    }

    /// Time that a variant adds to plain Envoy's in the same round at a percentile, in milliseconds.
    pub(crate) fn added_ms(
        &self,
        variant: Variant,
        workload: &Workload,
        percent: f64,
    ) -> Option<MedianRange> {
        let index = PERCENTS.partition_point(|candidate| *candidate < percent);
        let at = |variant: Variant, round: u32| {
            let mut latencies = self.latencies_of(variant, workload);
            let latency = latencies.find(|latency| latency.round == round)?;
            latency.micros.get(index).map(|micros| micros / 1e3)
        };
        let rounds = 0..self.rounds;
        let added = |round| Some(at(variant, round)? - at(Variant::Envoy, round)?);
        MedianRange::of(rounds.filter_map(added))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::workload::WORKLOADS;

    fn sample(variant: Variant, micros: f64) -> Sample {
        Sample {
            variant,
            workload: "4 KB",
            requests: 1,
            failed: 0,
            per_second: 1_000.0,
            cpu_micros: BTreeMap::from([("Envoy", micros), ("service", 10.0)]),
            ext_proc_bytes: (variant != Variant::Envoy).then_some([900.0, 200.0]),
        }
    }

    fn latency(variant: Variant, round: u32, micros: f64) -> Latency {
        Latency {
            variant,
            workload: "4 KB",
            round,
            per_second: 300.0,
            requests: 100,
            failed: 0,
            micros: [micros, micros * 2.0, micros * 4.0],
        }
    }

    pub(crate) fn example() -> PathMeasurements {
        let memory = |variant, prompts| Memory {
            variant,
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
        PathMeasurements {
            rounds: 3,
            seconds: 1,
            latency_seconds: 1,
            clients: 1,
            replicas: 1,
            awake: false,
            sglang_version: None,
            variants: vec![Variant::Envoy, Variant::Floor, Variant::Isotherm],
            workloads: WORKLOADS.first().copied().into_iter().collect(),
            idle: vec![IdleUsage {
                variant: Variant::Isotherm,
                cpu_micros_per_s: BTreeMap::from([("service", 2_000.0)]),
            }],
            memory_after: vec![memory(Variant::Isotherm, 3)],
            samples: samples
                .map(|(variant, micros)| sample(variant, micros))
                .into(),
            streams: Vec::new(),
            latencies: latencies.into(),
            memory: vec![memory(Variant::Isotherm, 0), memory(Variant::Isotherm, 7)],
        }
    }

    #[test]
    fn a_variant_keeps_up_with_a_rate_below_its_saturation() {
        let report = example();
        let workload = report.workloads.first().unwrap();
        assert!(report.keeps_up(Variant::Isotherm, workload, 999.0));
        assert!(!report.keeps_up(Variant::Isotherm, workload, 1_001.0));
        assert!(
            !report.keeps_up(Variant::SglangRouter, workload, 1.0),
            "it had no turn"
        );
    }

    #[test]
    fn added_time_is_the_difference_to_plain_envoy_in_the_same_round() {
        let measurements = example();
        let workload = measurements.workloads.first().unwrap();
        let added = measurements
            .added_ms(Variant::Isotherm, workload, 50.0)
            .unwrap();
        assert!((added.min - 0.3).abs() < 1e-9 && (added.max - 0.4).abs() < 1e-9);
        let p99 = measurements
            .added_ms(Variant::Floor, workload, 99.0)
            .unwrap();
        assert!((p99.median - 0.4).abs() < 1e-9);
        assert_eq!(measurements.added_ms(Variant::Filter, workload, 50.0), None);
    }
}

//! Curves of a run: the distribution of the time to first token, the cache hits over the run, and the load of each replica.

use std::time::Duration;

use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics as _};

use crate::metrics::round;
use crate::record::{Outcome, RequestRecord};
use crate::replica_load::LoadSample;

/// Parts of a run whose cache hits are averaged.
const HIT_PARTS: usize = 20;
/// Parts of a cumulative curve.
const QUANTILES: usize = 200;

/// The curves of a run. Times are those of the engines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunCurves {
    /// Time to first token in milliseconds, at even steps from the fastest to the slowest request; empty without responses.
    pub ttft_ms: Vec<f64>,
    /// Cached over prompt tokens of the requests sent in a part of the run, with the middle of the part in seconds.
    pub hit_ratio: Vec<(f64, f64)>,
    /// Outstanding requests of each replica, with the time in seconds.
    pub load: Vec<Vec<(f64, u64)>>,
}

impl RunCurves {
    /// The curves of a run of this duration on engines that run `speed` times faster than real time.
    #[must_use]
    pub fn of(
        records: &[RequestRecord],
        load: &[LoadSample],
        duration: Duration,
        speed: f64,
    ) -> Self {
        Self {
            ttft_ms: ttft_quantiles(records, speed),
            hit_ratio: hit_ratio(records, duration, speed),
            load: load_of_replicas(load, speed),
        }
    }
}

fn outcomes(records: &[RequestRecord]) -> impl Iterator<Item = (&RequestRecord, &Outcome)> {
    let records = records.iter();
    records.filter_map(|record| Some((record, record.outcome.as_ref().ok()?)))
}

fn ttft_quantiles(records: &[RequestRecord], speed: f64) -> Vec<f64> {
    let ms = outcomes(records).map(|(_, outcome)| outcome.ttft.as_secs_f64() * 1e3 * speed);
    let mut ms = Data::new(ms.collect::<Vec<f64>>());
    if ms.is_empty() {
        return Vec::new();
    }
    let steps = 0..=QUANTILES;
    let quantile = |step: usize| round(ms.quantile(step as f64 / QUANTILES as f64));
    steps.map(quantile).collect()
}

fn hit_ratio(records: &[RequestRecord], duration: Duration, speed: f64) -> Vec<(f64, f64)> {
    let part_s = duration.as_secs_f64() / HIT_PARTS as f64;
    if part_s <= 0.0 {
        return Vec::new();
    }
    let mut tokens = [(0, 0); HIT_PARTS];
    for (record, outcome) in outcomes(records) {
        let part = (record.sent.as_secs_f64() / part_s) as usize;
        if let Some((cached, prompt)) = tokens.get_mut(part.min(HIT_PARTS - 1)) {
            *cached += outcome.usage.cached;
            *prompt += outcome.usage.prompt;
        }
    }
    let parts = tokens.iter().enumerate();
    let parts = parts.filter(|(_, (_, prompt))| *prompt > 0);
    let point = |(index, (cached, prompt)): (usize, &(u64, u64))| {
        let middle = (index as f64 + 0.5) * part_s * speed;
        (round(middle), round(*cached as f64 / *prompt as f64))
    };
    parts.map(point).collect()
}

fn load_of_replicas(load: &[LoadSample], speed: f64) -> Vec<Vec<(f64, u64)>> {
    let replicas = load.iter().map(|sample| sample.outstanding.len());
    let of_replica = |replica: usize| {
        let samples = load.iter();
        let point = |sample: &LoadSample| {
            let outstanding = *sample.outstanding.get(replica)?;
            Some((round(sample.at.as_secs_f64() * speed), outstanding))
        };
        samples.filter_map(point).collect()
    };
    (0..replicas.max().unwrap_or(0)).map(of_replica).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::record;

    #[test]
    fn curves_are_on_the_clock_of_the_engines() {
        let records = [record(0, 0, 1, 2), record(0, 1, 9, 10)];
        let sample = |at, outstanding: [u64; 2]| LoadSample {
            at: Duration::from_secs(at),
            outstanding: outstanding.into(),
        };
        let load = [sample(1, [3, 1]), sample(2, [0, 2])];
        let curves = RunCurves::of(&records, &load, Duration::from_secs(10), 10.0);
        assert_eq!(curves.ttft_ms.len(), QUANTILES + 1);
        assert!(curves.ttft_ms.iter().all(|ms| *ms == 1_000.0));
        assert_eq!(curves.hit_ratio, [(12.5, 0.5), (92.5, 0.4)]);
        assert_eq!(
            curves.load,
            [[(10.0, 3), (20.0, 0)], [(10.0, 1), (20.0, 2)]]
        );
    }

    #[test]
    fn a_run_without_responses_has_no_curves() {
        let mut lost = record(0, 0, 0, 1);
        lost.outcome = Err("gone".into());
        let curves = RunCurves::of(&[lost], &[], Duration::ZERO, 1.0);
        assert_eq!(curves, RunCurves::default());
    }
}

//! Percentiles, and how evenly a load lies.

use core::time::Duration;

use crate::record::{ReplicaSample, Sample};

/// Times in order.
pub(super) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn new(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    pub(super) fn mean_s(&self) -> f64 {
        let sum: f64 = self.0.iter().map(Duration::as_secs_f64).sum();
        ratio(sum, self.0.len() as f64)
    }

    pub(super) fn percentile_s(&self, percent: usize) -> f64 {
        self.percentile(percent)
            .map_or(0.0, |time| time.as_secs_f64())
    }

    /// The longest.
    pub(super) fn last(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0.get(rank).copied()
    }
}

/// Mean coefficient of variation of a load over the samples with any, while clients send: a fleet that runs dry says nothing
/// of a balance.
pub(super) fn mean_cv(
    samples: &[Sample],
    sent: Option<(Duration, Duration)>,
    of: fn(&ReplicaSample) -> f64,
) -> f64 {
    let is_sent = |at| sent.is_some_and(|(from, to)| (from..=to).contains(&at));
    let samples = samples.iter().filter(|sample| is_sent(sample.at));
    let cvs = samples.filter_map(|sample| {
        let loads = sample.replicas.iter().map(of);
        let count = sample.replicas.len().max(1) as f64;
        let mean = loads.clone().sum::<f64>() / count;
        let squares: f64 = loads.map(|load| (load - mean).powi(2)).sum();
        (mean > 0.0).then(|| (squares / count).sqrt() / mean)
    });
    let cvs: Vec<f64> = cvs.collect();
    ratio(cvs.iter().sum(), cvs.len() as f64)
}

pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

//! Percentiles, and how evenly a load lies.

use core::time::Duration;

use crate::record::{ReplicaSample, Sample};

/// Times in order, and how many more are infinite.
pub(super) struct Times {
    finite: Vec<Duration>,
    infinite: usize,
}

impl Times {
    pub(super) fn new(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        Self {
            finite: times,
            infinite: 0,
        }
    }

    /// Adds failures, whose times are infinite.
    pub(super) fn with_failures(mut self, failures: usize) -> Self {
        self.infinite = failures;
        self
    }

    pub(super) fn mean_s(&self) -> f64 {
        let sum: f64 = self.finite.iter().map(Duration::as_secs_f64).sum();
        ratio(sum, self.finite.len() as f64)
    }

    pub(super) fn percentile_s(&self, percent: usize) -> f64 {
        match self.percentile(percent) {
            Some(time) => time.as_secs_f64(),
            None if self.infinite > 0 => f64::INFINITY,
            None => 0.0,
        }
    }

    /// The longest finite time.
    pub(super) fn last(&self) -> Duration {
        self.finite.last().copied().unwrap_or_default()
    }

    /// Time of this percentile, if it is finite.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let count = self.finite.len() + self.infinite;
        let rank = (count * percent).div_ceil(100).max(1) - 1;
        self.finite.get(rank).copied()
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

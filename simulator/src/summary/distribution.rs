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
        ratio(sum, count(self.0.len()))
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

/// Only while requests are being sent: how a fleet runs dry at the end says nothing of a balance.
pub(super) fn mean_cv(
    samples: &[Sample],
    sent: Option<(Duration, Duration)>,
    of: fn(&ReplicaSample) -> f64,
) -> f64 {
    let Some((from, to)) = sent else {
        return 0.0;
    };
    let (mut sum, mut counted) = (0.0, 0.0);
    for sample in samples {
        let among = count(sample.replicas.len().max(1));
        let mean = sample.replicas.iter().map(of).sum::<f64>() / among;
        if sample.at < from || sample.at > to || mean <= 0.0 {
            continue;
        }
        let squares: f64 = sample
            .replicas
            .iter()
            .map(|replica| (of(replica) - mean).powi(2))
            .sum();
        sum += (squares / among).sqrt() / mean;
        counted += 1.0;
    }
    ratio(sum, counted)
}

pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "backlogs are far below 2^52")]
pub(super) fn tokens(number: u64) -> f64 {
    number as f64
}

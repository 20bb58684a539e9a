//! Distributions of times.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer times count as this.
const MICROS_MAX: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// Durations in microseconds, to three significant digits.
#[derive(Clone, Debug, Default)]
pub struct Times(Option<Histogram<u64>>);

/// Summary of a distribution, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The arithmetic mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// Nine in ten are at most this.
    pub p90: f64,
    /// 99 in a hundred are at most this.
    pub p99: f64,
}

impl Times {
    /// Counts one.
    pub fn record(&mut self, time: Duration) {
        if self.0.is_none() {
            self.0 = Histogram::new_with_bounds(1, MICROS_MAX, DIGITS).ok();
        }
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(MICROS_MAX));
        }
    }

    /// The summary; zeros when nothing was counted.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let Some(histogram) = &self.0 else {
            return Summary::default();
        };
        let at = |quantile: f64| round(histogram.value_at_quantile(quantile) as f64 / 1_000.0);
        Summary {
            mean: round(histogram.mean() / 1_000.0),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        }
    }
}

/// Three digits after the point: the resolution of what was measured.
#[must_use]
pub fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_in_milliseconds() {
        let mut times = Times::default();
        for millis in 1..=100 {
            times.record(Duration::from_millis(millis));
        }
        let summary = times.summary();
        assert!((summary.mean - 50.5).abs() < 0.1 && (summary.p50 - 50.0).abs() < 0.1);
        assert!((summary.p90 - 90.0).abs() < 0.1 && (summary.p99 - 99.0).abs() < 0.1);
        assert_eq!(Times::default().summary(), Summary::default());
    }
}

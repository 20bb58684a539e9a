//! Speed of a replica relative to its pool: the mean logarithm of its times, in multiples of the pool's line.
//!
//! Times to first token vary, since a prompt waits for others. Lines fitted to each of several equal replicas differ by half, and
//! whatever is multiplied by such a line follows the noise. So the mean counts only as far as its own standard error leaves:
//! it is shrunk towards zero as by James and Stein (positive part).

use super::least_squares::{HALVED_AFTER_S, share_left};
use crate::Time;
use crate::constant::constants;

constants! {
    /// Decay of all earlier weights with each measurement.
    DECAY: f64 = 0.97;
    /// Bound on one logarithm, in both directions: a factor of 4.
    LOG_MAX: f64 = 2.0 * core::f64::consts::LN_2;
    /// Weight of the presumed variance, in measurements.
    PRESUMED_WEIGHT: f64 = 8.0;
    /// Presumed variance of one measurement.
    PRESUMED_VARIANCE: f64 = 0.5;
    /// Square of the number of standard errors within which a mean counts as zero.
    SHRINKAGE: f64 = 4.0;
    /// Weight up to which a mean says nothing: so few measurements cannot tell a slow replica from long prompts.
    WEIGHT_MIN: f64 = 3.0;
}

/// A mean as far as it exceeds its error, of which this is the square.
pub(crate) fn shrunk(mean: f64, squared_error: f64) -> f64 {
    if mean == 0.0 {
        return 0.0;
    }
    mean * (1.0 - SHRINKAGE.get() * squared_error / (mean * mean)).max(0.0)
}

/// A decaying mean of logarithms, with its variance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogRatioMean {
    weight: f64,
    sum: f64,
    squares: f64,
    /// Time of the last measurement.
    at: Time,
}

impl LogRatioMean {
    /// Adds a measurement, after time has taken its share of the earlier ones.
    pub(crate) fn learn(&mut self, log: f64, now: Time) {
        let left = self.left(now);
        self.at = self.at.max(now);
        self.add(log, DECAY.get() * left);
    }

    /// Adds a measurement to earlier ones that time does not age.
    pub(crate) fn learn_lasting(&mut self, log: f64) {
        self.add(log, DECAY.get());
    }

    fn add(&mut self, log: f64, decay: f64) {
        let log = log.clamp(-LOG_MAX.get(), LOG_MAX.get());
        self.weight = self.weight * decay + 1.0;
        self.sum = self.sum * decay + log;
        self.squares = self.squares * decay + log * log;
    }

    /// The mean as measured.
    pub(crate) fn mean(&self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }

    /// Whether enough was measured of late to tell a replica from its pool, or to tell that it does not differ.
    pub(crate) fn says_something(&self, now: Time) -> bool {
        self.weight * self.left(now) > WEIGHT_MIN.get()
    }

    /// The mean as far as it is known: zero, unless it exceeds its error.
    pub(crate) fn known(&self, now: Time) -> f64 {
        if !self.says_something(now) {
            return 0.0;
        }
        let mean = self.mean();
        let deviations = self.squares - self.weight * mean * mean;
        let variance = (deviations + PRESUMED_WEIGHT.get() * PRESUMED_VARIANCE.get())
            / (self.weight + PRESUMED_WEIGHT.get());
        shrunk(mean, variance / (self.weight * self.left(now)))
    }

    fn left(&self, now: Time) -> f64 {
        share_left(self.at, HALVED_AFTER_S.get(), now)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    /// Noise of a factor of up to 2.7 in both directions, without a mean.
    fn noise(i: u32) -> f64 {
        f64::from(i * 7 % 11) / 5.0 - 1.0
    }

    fn measured(logs: impl IntoIterator<Item = f64>) -> LogRatioMean {
        let mut speed = LogRatioMean::default();
        for log in logs {
            speed.learn(log, at(0));
        }
        speed
    }

    #[test]
    fn noise_says_nothing() {
        for measurements in [1, 2, 3, 5, 10, 100] {
            let speed = measured((0..measurements).map(noise));
            assert!(speed.known(at(0)).abs() < 1e-9, "{measurements}: {speed:?}");
        }
    }

    #[test]
    fn a_slower_replica_is_known_by_a_few_measurements_within_the_noise() {
        let speed = measured((0..12).map(|i| 1.1 + noise(i)));
        assert!((0.7..1.3).contains(&speed.known(at(0))), "{speed:?}");
    }

    #[test]
    fn one_outlier_is_not_taken_for_a_speed() {
        let mut speed = measured((0..30).map(noise));
        speed.learn(10.0, at(0));
        assert!(speed.known(at(0)).abs() < 1e-9, "{speed:?}");
    }

    #[test]
    fn time_without_a_measurement_forgets_it() {
        let speed = measured([1.0; 30]);
        assert!(speed.known(at(1_000)) > 0.9);
        assert!(speed.known(at(60_000)).abs() < 1e-9);
    }
}

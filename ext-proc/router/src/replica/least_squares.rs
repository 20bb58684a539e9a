//! A line fitted by least squares with decaying weights.
//!
//! Two presumed points hold the line while few measurements exist, and where all of them lie at one place.

/// Decay of all earlier weights with each measurement.
const MEMORY: f64 = 0.97;
/// Weight of each presumed point, in measurements.
const PRESUMED_WEIGHT: f64 = 0.2;
/// Smallest slope, in seconds.
const EACH_S_MIN: f64 = 1e-7;

/// A line: duration by the number of preceding items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinearModel {
    /// Intercept, in seconds.
    pub(crate) fixed_s: f64,
    /// Slope, in seconds per item.
    pub(crate) each_s: f64,
}

impl LinearModel {
    /// The lower bound of two lines.
    pub(crate) const fn least(self, other: Self) -> Self {
        Self {
            fixed_s: self.fixed_s.min(other.fixed_s),
            each_s: self.each_s.min(other.each_s),
        }
    }
}

/// Decaying sums of weights, numbers, seconds, squares of numbers, and products of both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecayingLeastSquares([f64; 5]);

impl DecayingLeastSquares {
    /// Adds a measurement: a duration in seconds with `number` preceding items.
    pub(crate) fn learn(&mut self, number: f64, seconds: f64) {
        *self = Self(self.0.map(|sum| sum * MEMORY)).with(1.0, number, seconds);
    }

    pub(crate) fn is_measured(&self) -> bool {
        let [count, ..] = self.0;
        count > 0.0
    }

    /// The fitted line. Two points of the presumed line, at zero and at `presumed_at`, stabilise it.
    pub(crate) fn line(&self, presumed: LinearModel, presumed_at: f64) -> LinearModel {
        let there = presumed.fixed_s + presumed.each_s * presumed_at;
        let Self([count, number, seconds, squared, product]) = self
            .with(PRESUMED_WEIGHT, 0.0, presumed.fixed_s)
            .with(PRESUMED_WEIGHT, presumed_at, there);
        let slope = (count * product - number * seconds) / (count * squared - number * number);
        let each_s = slope.max(EACH_S_MIN);
        let fixed_s = ((seconds - each_s * number) / count).max(0.0);
        LinearModel { fixed_s, each_s }
    }

    fn with(self, weight: f64, number: f64, seconds: f64) -> Self {
        let weighted = weight * number;
        let [count, numbers, all_seconds, squared, product] = self.0;
        Self([
            count + weight,
            numbers + weighted,
            all_seconds + weight * seconds,
            squared + weighted * number,
            product + weighted * seconds,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESUMED: LinearModel = LinearModel {
        fixed_s: 0.03,
        each_s: 0.000_1,
    };

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.05 * b
    }

    #[test]
    fn a_line_is_found_under_noise_and_from_any_start() {
        let mut fit = DecayingLeastSquares::default();
        for i in 0..200_u32 {
            let number = f64::from(i * 1_237 % 5_000);
            let noise = f64::from(i % 7) * 0.002 - 0.006;
            fit.learn(number, 0.1 + 0.000_4 * number + noise);
        }
        let line = fit.line(PRESUMED, 4_000.0);
        assert!(near(line.each_s, 0.000_4), "{line:?}");
        assert!((line.fixed_s - 0.1).abs() < 0.01, "{line:?}");
    }

    #[test]
    fn measurements_at_one_place_do_not_break_it() {
        let mut fit = DecayingLeastSquares::default();
        for _ in 0..100 {
            fit.learn(1_000.0, 0.5);
        }
        let line = fit.line(PRESUMED, 4_000.0);
        assert!(near(line.fixed_s + 1_000.0 * line.each_s, 0.5), "{line:?}");
    }

    #[test]
    fn without_measurements_it_is_the_presumed_one() {
        let line = DecayingLeastSquares::default().line(PRESUMED, 4_000.0);
        assert!(near(line.each_s, PRESUMED.each_s) && near(line.fixed_s, PRESUMED.fixed_s));
    }
}

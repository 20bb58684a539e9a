//! A line fitted by least squares with decaying weights.
//!
//! Measurements age in two ways: each new one takes a share of the weight of all earlier ones, and time without any takes
//! the rest. Two points of a presumed line hold the fit while few measurements exist, and where all of them lie at one
//! place. That line is first scaled to pass through the measurements: a replica of another speed is slower or faster in
//! everything, more likely than in one coefficient.
//!
//! A single outlier changes nothing. It counts once a second one confirms it, and then no more than a bounded multiple of
//! the line.

use crate::constant::constants;
use crate::{Source, Time};

constants! {
    /// Decay of all earlier weights with each measurement.
    DECAY: f64 = 0.97;
    /// Weight of each presumed point, in measurements.
    pub(crate) PRESUMED_WEIGHT: f64 = 0.2;
    /// Time without a measurement that halves the weight of a fit. Twice the time leaves a sixteenth, three times 1/512.
    pub(crate) HALVED_AFTER_S: f64 = 20.0;
    /// Weight that time leaves of the measurements: a pool that idles keeps its lines.
    WEIGHT_MIN: f64 = 4.0;
    /// A measurement beyond this multiple of the line is an outlier.
    OUTLIER_FACTOR: f64 = 4.0;
    /// A confirmed outlier counts as this multiple of the line at most.
    OUTLIER_FACTOR_MAX: f64 = 8.0;
}

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

    /// Duration after this number of items, in seconds.
    pub(crate) const fn at(self, number: f64) -> f64 {
        self.fixed_s + self.each_s * number
    }

    /// The line with every duration multiplied.
    pub(crate) const fn scaled(self, by: f64) -> Self {
        Self {
            fixed_s: self.fixed_s * by,
            each_s: self.each_s * by,
        }
    }
}

/// Time to first token by the tokens computed before it, those of earlier requests included; or time per output token by the requests
/// outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    pub(crate) number: f64,
    pub(crate) seconds: f64,
    /// Source of the presumed part, if one is presumed.
    pub(crate) source: Source,
}

/// Decaying sums of weights, numbers, seconds, squares of numbers, and products of both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecayingLeastSquares {
    sums: [f64; 5],
    /// Time of the last measurement.
    at: Time,
    /// Whether the last measurement was an outlier that waits for a second one.
    has_outlier: bool,
}

impl DecayingLeastSquares {
    /// Adds a measurement, unless it is a single outlier of the line that is known so far. Time leaves some of the earlier ones.
    pub(crate) fn learn(&mut self, measured: Measurement, known: LinearModel, now: Time) {
        let expected = known.at(measured.number);
        let is_outlier = measured.seconds > OUTLIER_FACTOR.get() * expected;
        let is_confirmed = core::mem::replace(&mut self.has_outlier, is_outlier);
        if is_outlier && !is_confirmed {
            return;
        }
        self.has_outlier = false;
        let [count, ..] = self.sums;
        let left = if count > WEIGHT_MIN.get() {
            share_left(self.at, HALVED_AFTER_S.get(), now).max(WEIGHT_MIN.get() / count)
        } else {
            1.0
        };
        self.sums = self.sums.map(|sum| sum * DECAY.get() * left);
        self.at = self.at.max(now);
        let seconds = measured.seconds.min(OUTLIER_FACTOR_MAX.get() * expected);
        let weight = weight_of(measured.source);
        self.sums = add_point(self.sums, weight, measured.number, seconds);
    }

    pub(crate) const fn is_measured(&self) -> bool {
        let [count, ..] = self.sums;
        count > 0.0
    }

    /// The fitted line. Two points of the presumed line, at zero and at `presumed_at`, stabilise it.
    pub(crate) fn line(
        &self,
        presumed: LinearModel,
        presumed_at: f64,
        presumed_weight: f64,
    ) -> LinearModel {
        let presumed = presumed.scaled(self.scale(presumed));
        let there = presumed.at(presumed_at);
        let sums = add_point(self.sums, presumed_weight, 0.0, presumed.fixed_s);
        let [count, number, seconds, squared, product] =
            add_point(sums, presumed_weight, presumed_at, there);
        let slope = (count * product - number * seconds) / (count * squared - number * number);
        let each_s = slope.max(EACH_S_MIN);
        let fixed_s = ((seconds - each_s * number) / count).max(0.0);
        LinearModel { fixed_s, each_s }
    }

    /// Mean ratio of the measurements to a line; one measurement equal to the line counts in addition.
    fn scale(&self, presumed: LinearModel) -> f64 {
        let [count, number, seconds, ..] = self.sums;
        let expected = presumed.fixed_s * count + presumed.each_s * number;
        if expected > 0.0 {
            (seconds * count / expected + 1.0) / (count + 1.0)
        } else {
            1.0
        }
    }
}

/// Weight of a measurement: a presumed part makes it worth less.
const fn weight_of(source: Source) -> f64 {
    match source {
        Source::Usage | Source::Counters => 1.0,
        Source::FirstTokens | Source::Answers | Source::Presumed => 0.25,
    }
}

/// Share of a weight that is left of evidence of a time, if `halved_after_s` halves it.
pub(crate) fn share_left(at: Time, halved_after_s: f64, now: Time) -> f64 {
    let halves = now.since(at).as_secs_f64() / halved_after_s;
    (-halves * halves).exp2()
}

fn add_point(sums: [f64; 5], weight: f64, number: f64, seconds: f64) -> [f64; 5] {
    let weighted = weight * number;
    let [count, numbers, all_seconds, squared, product] = sums;
    [
        count + weight,
        numbers + weighted,
        all_seconds + weight * seconds,
        squared + weighted * number,
        product + weighted * seconds,
    ]
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

    fn learn(fit: &mut DecayingLeastSquares, number: f64, seconds: f64) -> LinearModel {
        let measured = Measurement {
            number,
            seconds,
            source: Source::Usage,
        };
        let known = line(fit);
        fit.learn(measured, known, Time::ZERO);
        line(fit)
    }

    fn line(fit: &DecayingLeastSquares) -> LinearModel {
        fit.line(PRESUMED, 4_000.0, PRESUMED_WEIGHT.get())
    }

    fn learned(each_s: f64) -> DecayingLeastSquares {
        let mut fit = DecayingLeastSquares::default();
        for i in 0..200_u32 {
            let number = f64::from(i * 1_237 % 5_000);
            let noise = f64::from(i % 7) * 0.002 - 0.006;
            learn(&mut fit, number, 0.1 + each_s * number + noise);
        }
        fit
    }

    #[test]
    fn a_line_is_found_under_noise_and_from_any_start() {
        for each_s in [0.000_02, 0.000_4, 0.01] {
            let line = line(&learned(each_s));
            assert!(near(line.each_s, each_s), "{line:?}");
            assert!(
                (line.fixed_s - 0.1).abs() < 0.01 + 10.0 * each_s,
                "{line:?}"
            );
        }
    }

    #[test]
    fn measurements_at_one_place_scale_the_presumed_line() {
        let mut fit = DecayingLeastSquares::default();
        for _ in 0..100 {
            learn(&mut fit, 1_000.0, 0.65);
        }
        let line = line(&fit);
        assert!(near(line.at(1_000.0), 0.65), "{line:?}");
        assert!(near(line.each_s, 0.000_5), "{line:?}");
    }

    #[test]
    fn without_measurements_it_is_the_presumed_one() {
        let line = line(&DecayingLeastSquares::default());
        assert!(near(line.each_s, PRESUMED.each_s) && near(line.fixed_s, PRESUMED.fixed_s));
    }

    #[test]
    fn one_outlier_moves_nothing_and_several_move_the_line() {
        let mut fit = learned(0.000_4);
        let before = line(&fit);
        assert_eq!(learn(&mut fit, 500.0, 60.0), before);
        learn(&mut fit, 500.0, 0.3);
        assert_eq!(learn(&mut fit, 500.0, 60.0), line(&fit));
        let confirmed = learn(&mut fit, 500.0, 60.0);
        assert!(confirmed.at(500.0) > 1.1 * before.at(500.0));
        assert!(
            confirmed.at(500.0) < 2.0 * before.at(500.0),
            "{confirmed:?}"
        );
    }
}

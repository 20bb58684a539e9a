//! Fit of an ARMA(3,2) model to differences.

use super::linear::{Normal, solve};
use super::{AR, Arima, MA, weighted};

const COEFFICIENTS: usize = AR + MA;
/// Order of the long autoregression whose errors stand for the unknown ones.
const LONG_AR: usize = 8;
/// Steps of the minimisation.
const STEPS_MAX: usize = 60;
/// Step of the numerical derivative.
const DERIVATIVE_STEP: f64 = 1e-6;
/// Relative decrease of the sum below which the minimum is reached.
const TOLERANCE: f64 = 1e-9;
/// Factor that moves coefficients towards zero until the model is stable.
const SHRINKAGE: f64 = 0.9;

type Coefficients = [f64; COEFFICIENTS];

/// Estimate by two regressions: a long autoregression gives the errors, and the second regression has past values and past errors.
pub(super) fn hannan_rissanen(values: &[f64]) -> Option<Arima> {
    let mut long = Normal::<LONG_AR>::default();
    for (at, value) in values.iter().enumerate().skip(LONG_AR) {
        long.add(&last(values, at)?, *value);
    }
    let long = solve(long.with_ridge(1e-8))?;
    let mut errors = vec![0.0; LONG_AR];
    for (at, value) in values.iter().enumerate().skip(LONG_AR) {
        errors.push(value - weighted(&long, values.get(..at)?));
    }
    let mut short = Normal::<COEFFICIENTS>::default();
    for (at, value) in values.iter().enumerate().skip(LONG_AR + MA) {
        let past: [f64; AR] = last(values, at)?;
        let past_errors: [f64; MA] = last(&errors, at)?;
        short.add(&joined(&past, &past_errors), *value);
    }
    Some(stabilized(model_of(&solve(short.with_ridge(1e-8))?)))
}

/// The values before `at`, the latest first.
fn last<const N: usize>(values: &[f64], at: usize) -> Option<[f64; N]> {
    let mut past: [f64; N] = values.get(at.checked_sub(N)?..at)?.try_into().ok()?;
    past.reverse();
    Some(past)
}

fn joined(ar: &[f64; AR], ma: &[f64; MA]) -> Coefficients {
    let mut joined = [0.0; COEFFICIENTS];
    for (to, from) in joined.iter_mut().zip(ar.iter().chain(ma)) {
        *to = *from;
    }
    joined
}

fn model_of(coefficients: &Coefficients) -> Arima {
    let mut model = Arima::default();
    for (to, from) in model.ar.iter_mut().chain(&mut model.ma).zip(coefficients) {
        *to = *from;
    }
    model
}

/// Nearest stable model on the way to the model without coefficients, which is a random walk.
fn stabilized(mut model: Arima) -> Arima {
    for _ in 0..STEPS_MAX {
        if model.is_stable() {
            return model;
        }
        model.ar = model.ar.map(|value| value * SHRINKAGE);
        model.ma = model.ma.map(|value| value * SHRINKAGE);
    }
    Arima::default()
}

/// Least conditional sum of squares from a start, by the method of Levenberg and Marquardt. Steps to unstable models are rejected.
pub(super) fn least_squares_from(start: Arima, values: &[f64]) -> Arima {
    let mut model = start;
    let mut sum = sum_of_squares(&model, values);
    let mut damping = 1e-3;
    for _ in 0..STEPS_MAX {
        let Some(candidate) = step(&model, values, damping) else {
            break;
        };
        let candidate_sum = sum_of_squares(&candidate, values);
        if candidate.is_stable() && candidate_sum < sum {
            let is_done = sum - candidate_sum < TOLERANCE * sum;
            (model, sum) = (candidate, candidate_sum);
            damping = (damping * 0.3_f64).max(1e-9);
            if is_done {
                break;
            }
        } else {
            damping *= 4.0;
            if damping > 1e9 {
                break;
            }
        }
    }
    model
}

fn sum_of_squares(model: &Arima, values: &[f64]) -> f64 {
    model
        .residuals(values)
        .iter()
        .map(|error| error * error)
        .sum()
}

/// Model after one damped Gauss-Newton step.
fn step(model: &Arima, values: &[f64], damping: f64) -> Option<Arima> {
    let errors = model.residuals(values);
    let coefficients = joined(&model.ar, &model.ma);
    let mut moved = Vec::with_capacity(COEFFICIENTS);
    for index in 0..COEFFICIENTS {
        let mut changed = coefficients;
        if let Some(value) = changed.get_mut(index) {
            *value += DERIVATIVE_STEP;
        }
        moved.push(model_of(&changed).residuals(values));
    }
    let mut normal = Normal::<COEFFICIENTS>::default();
    for (at, error) in errors.iter().enumerate() {
        let mut gradient = [0.0; COEFFICIENTS];
        for (slope, moved) in gradient.iter_mut().zip(&moved) {
            *slope = (moved.get(at)? - error) / DERIVATIVE_STEP;
        }
        normal.add(&gradient, -error);
    }
    let change = solve(normal.with_damping(damping))?;
    let mut next = coefficients;
    for (value, change) in next.iter_mut().zip(change) {
        *value += change;
    }
    next.iter()
        .all(|value| value.is_finite())
        .then(|| model_of(&next))
}

//! ARIMA(3,1,2), the paper's model (section 6.3, appendix B).
//!
//! The fit starts at the estimate of Hannan and Rissanen (1982), two linear regressions, and minimises the conditional sum of
//! squares from there. Exact maximum likelihood needs a Kalman filter and gains nothing that a scored forecast shows. Crates with
//! ARIMA exist, but none fits: one has no licence, one pulls a linear algebra package for matrices of five columns.

mod fit;
mod linear;
mod polynomial;

use super::{Buckets, Horizon, Path};

/// Order of the autoregression.
const AR: usize = 3;
/// Order of the moving average.
const MA: usize = 2;
/// Points of the training window, as in the paper.
const TRAINING: u64 = 60;
/// Points that must be known, so that interpolation does not make up the series.
const TRAINING_MIN: usize = 45;
/// Largest forecast, as a multiple of the largest training point: a fit near the border of stability may explode.
const GROWTH_MAX: f64 = 4.0;

/// Coefficients of an ARIMA(3,1,2) model without a constant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arima {
    /// Autoregressive coefficients of the differences (φ).
    pub ar: [f64; AR],
    /// Moving-average coefficients (θ).
    pub ma: [f64; MA],
}

impl Arima {
    /// Fits the model to a series of equidistant points. `None` if the series is too short or has values that are no numbers.
    #[must_use]
    pub fn fit(series: &[f64]) -> Option<Self> {
        if series.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let differences = differences(series);
        let scale = (differences.iter().map(|value| value * value).sum::<f64>()
            / differences.len().max(1) as f64)
            .sqrt();
        if differences.len() < 4 * (AR + MA) {
            return None;
        }
        if scale <= 0.0 {
            return Some(Self::default());
        }
        let scaled: Vec<f64> = differences.iter().map(|value| value / scale).collect();
        let start = fit::hannan_rissanen(&scaled).unwrap_or_default();
        Some(fit::least_squares_from(start, &scaled))
    }

    /// The next `steps` points of a series.
    #[must_use]
    pub fn forecast(&self, series: &[f64], steps: usize) -> Vec<f64> {
        let mut differences = differences(series);
        let mut residuals = self.residuals(&differences);
        let mut level = series.last().copied().unwrap_or_default();
        let mut points = Vec::with_capacity(steps);
        for _ in 0..steps {
            let next = weighted(&self.ar, &differences) + weighted(&self.ma, &residuals);
            differences.push(next);
            residuals.push(0.0);
            level += next;
            points.push(level);
        }
        points
    }

    /// One-step errors of the differences; those of the first points are zero, since their past is not known.
    fn residuals(&self, differences: &[f64]) -> Vec<f64> {
        let mut residuals = vec![0.0; AR.min(differences.len())];
        for (at, value) in differences.iter().enumerate().skip(AR) {
            let past = differences.get(..at).unwrap_or_default();
            let expected = weighted(&self.ar, past) + weighted(&self.ma, &residuals);
            residuals.push(value - expected);
        }
        residuals
    }

    fn is_stable(&self) -> bool {
        let inverted = self.ma.map(|value| -value);
        polynomial::is_stationary(&self.ar) && polynomial::is_stationary(&inverted)
    }
}

/// Sum of the last values, the latest first, with the coefficients as weights.
fn weighted(coefficients: &[f64], values: &[f64]) -> f64 {
    coefficients
        .iter()
        .zip(values.iter().rev())
        .map(|(weight, value)| weight * value)
        .sum()
}

fn differences(series: &[f64]) -> Vec<f64> {
    series
        .windows(2)
        .map(|pair| pair.last().unwrap_or(&0.0) - pair.first().unwrap_or(&0.0))
        .collect()
}

/// Path of the model that is fitted to the last points.
pub(super) fn path(buckets: &Buckets, horizon: &Horizon) -> Option<Path> {
    let series = training(buckets, horizon.issued)?;
    let model = Arima::fit(&series)?;
    let largest = series.iter().copied().fold(0.0, f64::max);
    let steps = usize::try_from(horizon.to.saturating_sub(horizon.issued)).ok()?;
    let values = model.forecast(&series, steps).into_iter();
    Some(Path {
        first: horizon.issued,
        values: values
            .map(|value| value.clamp(0.0, largest * GROWTH_MAX))
            .collect(),
    })
}

/// The last points before a bucket, with missing ones on a line between their neighbours. The series ends with a known point.
fn training(buckets: &Buckets, before: u64) -> Option<Vec<f64>> {
    let known: Vec<(u64, f64)> = buckets
        .range(before.saturating_sub(TRAINING)..before)
        .map(|(bucket, value)| (*bucket, *value))
        .collect();
    if known.len() < TRAINING_MIN {
        return None;
    }
    let mut series = Vec::with_capacity(TRAINING as usize);
    series.push(known.first()?.1);
    for (one, two) in known.iter().zip(known.iter().skip(1)) {
        let gap = two.0 - one.0;
        series.extend((1..=gap).map(|at| one.1 + (two.1 - one.1) * at as f64 / gap as f64));
    }
    Some(series)
}

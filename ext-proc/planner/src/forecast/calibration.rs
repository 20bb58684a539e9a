//! Scores of the models on past windows: conformal factors and pinball losses.
//!
//! The factor is the split conformal quantile (Vovk et al.) of demand over forecast: among exchangeable windows, the forecast times
//! the factor covers the next one with the configured probability, whatever the model. Windows lie on a fixed grid, so services
//! with the same history have the same scores.

use std::collections::BTreeMap;

use super::{Buckets, Horizon, MODELS, known_peak, paths};
use crate::ForecastModel;

/// Windows that count.
const WINDOWS_MAX: u64 = 48;
/// Windows below which a model has the presumed factor and no loss.
const WINDOWS_MIN: usize = 12;
/// Factor of a model with fewer windows.
const FACTOR_PRESUMED: f64 = 1.3;
const FACTOR_MIN: f64 = 0.5;
const FACTOR_MAX: f64 = 5.0;

/// Forecasts of one window, and what came.
#[derive(Clone, Debug, PartialEq)]
struct WindowScore {
    points: BTreeMap<ForecastModel, f64>,
    actual: f64,
}

impl WindowScore {
    fn ratio(&self, model: ForecastModel) -> Option<f64> {
        let point = *self.points.get(&model)?;
        if point > 0.0 {
            Some(self.actual / point)
        } else {
            (self.actual <= 0.0).then_some(1.0)
        }
    }
}

/// Scores of a pool's models.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Calibration {
    /// Scores by the first bucket of their window.
    windows: BTreeMap<u64, WindowScore>,
    /// Size of the windows, in buckets.
    size: u64,
}

impl Calibration {
    /// Scores the windows that ended since the last call. `lead` is the number of buckets between issue and window.
    pub(crate) fn update(&mut self, buckets: &Buckets, issued: u64, size: u64, lead: u64) {
        let size = size.max(1);
        if self.size != size {
            self.windows.clear();
            self.size = size;
        }
        let end = issued / size * size;
        let oldest = end.saturating_sub(size * WINDOWS_MAX);
        self.windows = self.windows.split_off(&oldest);
        self.windows.split_off(&end);
        let mut from = oldest;
        while from + size <= end {
            if !self.windows.contains_key(&from)
                && let Some(score) = score(buckets, from, size, lead)
            {
                self.windows.insert(from, score);
            }
            from += size;
        }
    }

    /// Factor by which a model's forecast covers `quantile` of the windows.
    pub(crate) fn factor(&self, model: ForecastModel, quantile: f64) -> f64 {
        factor(&self.ratios(model, u64::MAX), quantile)
    }

    /// Model with the least mean pinball loss of its upper forecasts.
    pub(crate) fn best(&self, quantile: f64) -> Option<ForecastModel> {
        let losses: Vec<(ForecastModel, Vec<f64>)> = MODELS
            .into_iter()
            .map(|model| (model, self.losses(model, quantile)))
            .collect();
        let most = losses
            .iter()
            .map(|(_, losses)| losses.len())
            .max()
            .unwrap_or(0);
        losses
            .into_iter()
            .filter(|(_, losses)| losses.len() >= WINDOWS_MIN && losses.len() * 2 >= most)
            .map(|(model, losses)| (model, losses.iter().sum::<f64>() / losses.len() as f64))
            .min_by(|one, two| one.1.total_cmp(&two.1))
            .map(|(model, _)| model)
    }

    /// Demand of the last scored window over a model's forecast.
    pub(crate) fn last_ratio(&self, model: ForecastModel) -> Option<f64> {
        self.windows.last_key_value()?.1.ratio(model)
    }

    /// Ratios of demand and forecast in the windows before a bucket.
    fn ratios(&self, model: ForecastModel, before: u64) -> Vec<f64> {
        self.windows
            .range(..before)
            .filter_map(|(_, score)| score.ratio(model))
            .collect()
    }

    /// Losses of the upper forecasts, each with the factor that was known when its window began.
    fn losses(&self, model: ForecastModel, quantile: f64) -> Vec<f64> {
        let scored = self.windows.iter().filter_map(|(from, score)| {
            let upper = score.points.get(&model)? * factor(&self.ratios(model, *from), quantile);
            Some(pinball_loss(score.actual, upper, quantile))
        });
        scored.collect()
    }
}

fn score(buckets: &Buckets, from: u64, size: u64, lead: u64) -> Option<WindowScore> {
    let actual = known_peak(buckets, from, from + size)?;
    let horizon = Horizon {
        issued: from.checked_sub(lead)?,
        from,
        to: from + size,
    };
    let past: Buckets = buckets
        .range(..horizon.issued)
        .map(|(bucket, value)| (*bucket, *value))
        .collect();
    let points: BTreeMap<ForecastModel, f64> = paths(&past, &horizon)
        .into_iter()
        .map(|(model, path)| (model, path.peak(from, from + size)))
        .collect();
    (!points.is_empty()).then_some(WindowScore { points, actual })
}

/// Split conformal quantile of the ratios: the ⌈(n + 1) q⌉-th smallest.
fn factor(ratios: &[f64], quantile: f64) -> f64 {
    if ratios.len() < WINDOWS_MIN {
        return FACTOR_PRESUMED;
    }
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = ((sorted.len() as f64 + 1.0) * quantile).ceil() as usize;
    let at = rank.clamp(1, sorted.len()) - 1;
    let ratio = sorted.get(at).copied().unwrap_or(FACTOR_PRESUMED);
    ratio.clamp(FACTOR_MIN, FACTOR_MAX)
}

fn pinball_loss(actual: f64, forecast: f64, quantile: f64) -> f64 {
    if actual > forecast {
        quantile * (actual - forecast)
    } else {
        (1.0 - quantile) * (forecast - actual)
    }
}

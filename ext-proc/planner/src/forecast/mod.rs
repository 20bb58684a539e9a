//! Forecast of the peak demand in the coming window (section 6.3), by several models.
//!
//! The paper forecasts with ARIMA alone. On its own trace and on ServeGen's, no model is best everywhere, and each falls short of
//! the peak in a fifth of the windows or more. So each model is scored on the last windows, by its past forecasts that used
//! past demand only: the ratios of demand and forecast give its conformal factor, and the pinball loss selects the model.

pub(crate) mod arima;
mod calibration;
mod level;

use std::collections::BTreeMap;

pub(crate) use calibration::Calibration;

use crate::ForecastModel;

/// Demand by bucket, in the unit of the signal; a missing bucket is absent.
pub(crate) type Buckets = BTreeMap<u64, f64>;

/// Window of a forecast, in buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Horizon {
    /// First bucket that is not known yet.
    pub(crate) issued: u64,
    /// First bucket of the window.
    pub(crate) from: u64,
    /// Bucket after the window.
    pub(crate) to: u64,
}

impl Horizon {
    fn window(&self) -> u64 {
        self.to.saturating_sub(self.from).max(1)
    }
}

/// Forecast demand of every bucket from the time of issue to the end of the window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    first: u64,
    values: Vec<f64>,
}

impl Path {
    /// Peak of the buckets in `[from, to)`.
    pub(crate) fn peak(&self, from: u64, to: u64) -> f64 {
        (self.first..)
            .zip(&self.values)
            .filter(|(bucket, _)| (from..to).contains(bucket))
            .map(|(_, value)| *value)
            .fold(0.0, f64::max)
    }

    fn max(&self, other: &Self) -> Self {
        let values = self
            .values
            .iter()
            .zip(&other.values)
            .map(|(one, two)| one.max(*two));
        Self {
            first: self.first,
            values: values.collect(),
        }
    }
}

/// Models that forecast by themselves.
pub(crate) const MODELS: [ForecastModel; 4] = [
    ForecastModel::LastPeak,
    ForecastModel::Seasonal,
    ForecastModel::Arima,
    ForecastModel::Max,
];

/// Paths of all models that have one.
pub(crate) fn paths(buckets: &Buckets, horizon: &Horizon) -> BTreeMap<ForecastModel, Path> {
    let last_peak = level::last_peak(buckets, horizon);
    let seasonal = level::seasonal(buckets, horizon);
    let max = match (&last_peak, &seasonal) {
        (Some(one), Some(two)) => Some(one.max(two)),
        (one, two) => one.clone().or_else(|| two.clone()),
    };
    let arima = arima::path(buckets, horizon);
    MODELS
        .into_iter()
        .zip([last_peak, seasonal, arima, max])
        .filter_map(|(model, path)| Some((model, path?)))
        .collect()
}

/// Peak demand of the buckets in `[from, to)`; `None` if fewer than half of them are known.
fn known_peak(buckets: &Buckets, from: u64, to: u64) -> Option<f64> {
    let known = buckets.range(from..to.max(from));
    let count = known.clone().count() as u64;
    let peak = known.map(|(_, value)| *value).fold(0.0, f64::max);
    (count > 0 && count * 2 >= to.saturating_sub(from)).then_some(peak)
}

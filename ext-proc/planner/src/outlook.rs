//! Outlook of a pool: the forecasts of its models, the one that the plan uses, and what it needs.

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_router::Time;

use crate::forecast::{Buckets, Calibration, Horizon, MODELS, Path, paths};
use crate::history::{History, bucket_of, buckets_in};
use crate::{Forecast, ForecastModel, PoolRules, Signal};

/// Known buckets below which a pool has no plan: two hours.
const BUCKETS_MIN: usize = 24;

/// Forecasts of a pool, in the unit of its signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outlook {
    calibration: Calibration,
    /// First bucket that the current forecasts did not know.
    issued: Option<u64>,
    /// Window of the current plan.
    window: Option<(u64, u64)>,
    paths: BTreeMap<ForecastModel, (Path, f64)>,
    /// Model in use.
    pub(crate) model: Option<ForecastModel>,
    /// Forecasts of the window, by model.
    pub(crate) forecasts: BTreeMap<ForecastModel, Forecast>,
    /// Non-interactive demand that is added.
    pub(crate) batch: f64,
    /// Forecast from outside.
    supplied: Option<f64>,
}

impl Outlook {
    /// Takes a forecast from outside.
    pub(crate) fn supply(&mut self, peak: f64) {
        self.supplied = Some(peak).filter(|peak| peak.is_finite() && *peak >= 0.0);
    }

    /// Forecasts the window of a new plan. Returns its upper forecast, with the buffer for non-interactive demand; `None` without
    /// enough history.
    pub(crate) fn plan(
        &mut self,
        now: Time,
        history: &History,
        rules: &PoolRules,
        startup: Duration,
    ) -> Option<f64> {
        let size = buckets_in(rules.interval);
        let lead = buckets_in(startup);
        let known = history.buckets(now);
        let buckets: Buckets = known
            .iter()
            .map(|(at, demand)| (*at, demand.interactive(rules.signal)))
            .collect();
        let issued = bucket_of(now);
        let past_hour = known.range(issued.saturating_sub(size)..);
        let batch: Vec<f64> = past_hour
            .map(|(_, demand)| demand.batch(rules.signal))
            .collect();
        self.batch =
            rules.forecast.batch_buffer * batch.iter().sum::<f64>() / batch.len().max(1) as f64;
        if rules.forecast.model == ForecastModel::Supplied {
            return self.plan_supplied();
        }
        if buckets.len() < BUCKETS_MIN {
            self.clear();
            return None;
        }
        self.calibration.update(&buckets, issued, size, lead);
        let from = issued + lead;
        self.window = Some((from, from + size));
        self.issue(&buckets, issued, rules);
        let (model, _) = self.selected()?;
        self.model = Some(model);
        self.demand(rules)
    }

    fn plan_supplied(&mut self) -> Option<f64> {
        self.clear();
        let point = self.supplied?;
        self.model = Some(ForecastModel::Supplied);
        self.forecasts.insert(
            ForecastModel::Supplied,
            Forecast {
                point,
                upper: point,
            },
        );
        Some(point + self.batch)
    }

    fn clear(&mut self) {
        self.paths.clear();
        self.forecasts.clear();
        self.model = None;
        self.window = None;
        self.issued = None;
    }

    /// Forecasts again with the buckets that became known since, so that the lead follows the day. The window stays.
    pub(crate) fn refresh(&mut self, now: Time, history: &History, rules: &PoolRules) {
        let issued = bucket_of(now);
        if self.window.is_none() || self.issued == Some(issued) {
            return;
        }
        let known = history.buckets(now);
        let buckets: Buckets = known
            .iter()
            .map(|(at, demand)| (*at, demand.interactive(rules.signal)))
            .collect();
        let forecasts = core::mem::take(&mut self.forecasts);
        let model = self.model;
        self.issue(&buckets, issued, rules);
        self.forecasts = forecasts;
        self.model = model
            .filter(|model| self.paths.contains_key(model))
            .or(self.model);
    }

    /// Paths of all models to the end of the window, with their factors.
    fn issue(&mut self, buckets: &Buckets, issued: u64, rules: &PoolRules) {
        let Some((from, to)) = self.window else {
            return;
        };
        self.issued = Some(issued);
        let horizon = Horizon {
            issued,
            from: from.max(issued),
            to,
        };
        let quantile = rules.forecast.quantile;
        let factor = |model| {
            if rules.forecast.is_calibrated {
                self.calibration.factor(model, quantile)
            } else {
                1.0
            }
        };
        self.paths = paths(buckets, &horizon)
            .into_iter()
            .map(|(model, path)| (model, (path, factor(model))))
            .collect();
        self.forecasts = self
            .paths
            .iter()
            .map(|(model, (path, factor))| {
                let point = path.peak(from, to);
                (
                    *model,
                    Forecast {
                        point,
                        upper: point * factor,
                    },
                )
            })
            .collect();
        self.model = Some(self.model_in_use(rules));
    }

    /// The configured model, if it has a forecast; else the larger level, which needs an hour of history.
    fn model_in_use(&self, rules: &PoolRules) -> ForecastModel {
        let model = match rules.forecast.model {
            ForecastModel::Best => self
                .calibration
                .best(rules.forecast.quantile)
                .unwrap_or(ForecastModel::Max),
            model => model,
        };
        if self.paths.contains_key(&model) {
            model
        } else {
            ForecastModel::Max
        }
    }

    /// Forecast of the model in use.
    pub(crate) fn selected(&self) -> Option<(ForecastModel, Forecast)> {
        let model = self.model?;
        Some((model, *self.forecasts.get(&model)?))
    }

    /// Demand of the current plan, with the buffer.
    pub(crate) fn demand(&self, rules: &PoolRules) -> Option<f64> {
        let (_, forecast) = self.selected()?;
        Some(planned(&forecast, rules) + self.batch)
    }

    /// Demand that replicas must carry until `until`, with the buffer.
    pub(crate) fn lead(&self, now: Time, until: Time, rules: &PoolRules) -> Option<f64> {
        let (path, factor) = self.paths.get(&self.model?)?;
        let point = path.peak(bucket_of(now), bucket_of(until) + 1);
        let forecast = Forecast {
            point,
            upper: point * factor,
        };
        Some(planned(&forecast, rules) + self.batch)
    }

    /// Demand of the last scored window over the forecast of the model in use.
    pub(crate) fn last_error(&self) -> Option<f64> {
        let model = self.model.filter(|model| MODELS.contains(model))?;
        self.calibration.last_ratio(model)
    }
}

/// Demand that a plan covers: the forecast at the planned load of a replica, and the upper forecast at its full load. One margin
/// for both would be paid twice.
fn planned(forecast: &Forecast, rules: &PoolRules) -> f64 {
    let full = match rules.signal {
        Signal::Work => rules.utilisation.busy,
        Signal::InputTokens => 1.0,
    };
    forecast.point.max(forecast.upper * full)
}

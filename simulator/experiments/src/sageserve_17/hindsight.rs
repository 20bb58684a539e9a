//! Forecasts of the planning core on a series, each scaled in hindsight until 1 % of the demand is unmet.

use core::time::Duration;

use isotherm_planner::{
    DemandSample, DemandSums, ForecastModel, ForecastRules, Planner, PlannerConfig, PoolRules,
    ReplicaSample, ReplicaState, ReplicasSample, Sample, Signal,
};
use isotherm_router::Time;

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR: usize = 60;
/// Points whose mean is demand, minutes.
const BUCKET: usize = 5;
/// Hours of history before the first forecast counts: a day for the season, and a dozen windows for the factor.
const HISTORY_HOURS: usize = 36;
/// Share of the demand that is unmet.
const UNMET: f64 = 0.01;
/// Part of the peak that a forecast may lack before it counts as short.
const SHORT: f64 = 0.9;
const POOL: &str = "pool";
/// Rows of the table.
pub(super) const MODELS: [&str; 7] = [
    "knows the future",
    "best fixed fleet",
    "last_peak",
    "arima",
    "seasonal",
    "max",
    "best",
];

/// Figures of a model on a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelFigures {
    /// Capacity over demand.
    pub(super) ratio: f64,
    /// Share of the hours whose peak is more than a tenth above the forecast.
    pub(super) short: f64,
    /// Share of such hours for the forecast with its conformal factor.
    pub(super) short_upper: f64,
}

/// Figures of every model on a series.
#[derive(Clone, Debug)]
pub(super) struct Hindsight {
    pub(super) models: Vec<(&'static str, ModelFigures)>,
}

/// An hour: its demand by bucket, and the forecast of each model.
struct Hour {
    demand: Vec<f64>,
    forecasts: [Option<(f64, f64)>; 5],
}

impl Hour {
    fn peak(&self) -> f64 {
        self.demand.iter().copied().fold(0.0, f64::max)
    }
}

impl Hindsight {
    pub(super) fn of(minutes: &[f64]) -> Self {
        let hours = hours(minutes);
        let peaks: Vec<Option<(f64, f64)>> = hours
            .iter()
            .map(|hour| Some((hour.peak(), hour.peak())))
            .collect();
        let fixed = vec![Some((1.0, 1.0)); hours.len()];
        let of_model = |model: usize| {
            hours
                .iter()
                .map(|hour| hour.forecasts.get(model).copied().flatten())
                .collect::<Vec<_>>()
        };
        let series = [peaks, fixed].into_iter().chain((0..5).map(of_model));
        let figures = series.map(|forecasts| figures(&hours, &forecasts));
        Self {
            models: MODELS.into_iter().zip(figures).collect(),
        }
    }

    pub(super) fn model(&self, name: &str) -> Option<&ModelFigures> {
        let mut models = self.models.iter();
        models
            .find(|(model, _)| *model == name)
            .map(|(_, figures)| figures)
    }
}

fn figures(hours: &[Hour], forecasts: &[Option<(f64, f64)>]) -> ModelFigures {
    let known: Vec<(&Hour, (f64, f64))> = hours
        .iter()
        .zip(forecasts)
        .filter_map(|(hour, forecast)| Some((hour, (*forecast)?)))
        .collect();
    let demand: f64 = known.iter().flat_map(|(hour, _)| &hour.demand).sum();
    let unmet = |factor: f64| {
        let lacking = known.iter().map(|(hour, (point, _))| {
            hour.demand
                .iter()
                .map(|demand| (demand - factor * point).max(0.0))
                .sum::<f64>()
        });
        lacking.sum::<f64>() / demand
    };
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if unmet(middle) > UNMET {
            low = middle;
        } else {
            high = middle;
        }
    }
    let capacity: f64 = known
        .iter()
        .map(|(hour, (point, _))| high * point * hour.demand.len() as f64)
        .sum();
    let short = |of: fn((f64, f64)) -> f64| {
        let count = known
            .iter()
            .filter(|(hour, forecast)| of(*forecast) < SHORT * hour.peak())
            .count();
        count as f64 / known.len().max(1) as f64
    };
    ModelFigures {
        ratio: capacity / demand,
        short: short(|(point, _)| point),
        short_upper: short(|(_, upper)| upper),
    }
}

/// Tells the planning core the minutes of a series, and takes its forecasts at each full hour.
fn hours(minutes: &[f64]) -> Vec<Hour> {
    let rules = PoolRules {
        signal: Signal::InputTokens,
        interval: Duration::from_secs(3_600),
        startup: Duration::ZERO,
        forecast: ForecastRules {
            replica_tokens_per_s: Some(1.0),
            model: ForecastModel::Best,
            ..ForecastRules::default()
        },
        ..PoolRules::default()
    };
    let mut planner = Planner::new(PlannerConfig {
        pools: [(POOL.to_owned(), rules)].into(),
        ..PlannerConfig::default()
    });
    let mut hours = Vec::new();
    for (minute, tokens) in (0_u64..).zip(minutes) {
        let now = Time::from_nanos(minute * MINUTE_NS);
        if minute % 60 == 0 {
            planner.handle(now, Sample::Replicas(POOL.to_owned(), replicas()));
            let plan = planner.plan(now);
            let coming = minutes.iter().skip(minute as usize).take(HOUR);
            let coming: Vec<f64> = coming.copied().collect();
            if minute as usize >= HISTORY_HOURS * HOUR && coming.len() == HOUR {
                let pool = plan.pools.get(POOL);
                let forecast = |model: ForecastModel| {
                    let forecast = pool?.forecasts.get(&model)?;
                    Some((forecast.point, forecast.upper))
                };
                let best = pool.and_then(|pool| pool.model).and_then(forecast);
                hours.push(Hour {
                    demand: coming
                        .chunks(BUCKET)
                        .map(|bucket| bucket.iter().sum::<f64>() / BUCKET as f64)
                        .collect(),
                    forecasts: [
                        forecast(ForecastModel::LastPeak),
                        forecast(ForecastModel::Arima),
                        forecast(ForecastModel::Seasonal),
                        forecast(ForecastModel::Max),
                        best,
                    ],
                });
            }
        }
        let end = Time::from_nanos((minute + 1) * MINUTE_NS);
        planner.handle(end, Sample::Demand(POOL.to_owned(), demand(now, *tokens)));
    }
    hours
}

fn demand(minute: Time, tokens_per_s: f64) -> DemandSample {
    DemandSample {
        minute,
        reporter: "trace".to_owned(),
        interactive: DemandSums {
            requests: 1.0,
            requests_in_slo: 1.0,
            input_tokens: tokens_per_s * 60.0,
            ..DemandSums::default()
        },
        ..DemandSample::default()
    }
}

fn replicas() -> ReplicasSample {
    ReplicasSample {
        replicas: vec![ReplicaSample {
            name: "replica".to_owned(),
            state: ReplicaState::Ready,
            warmth_s: 0.0,
            outstanding: 0,
        }],
        ..ReplicasSample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_future_costs_less_than_a_fixed_fleet() {
        let minutes: Vec<f64> = (0..4 * 1_440)
            .map(|minute| {
                1_000.0 + 900.0 * (f64::from(minute) / 1_440.0 * core::f64::consts::TAU).sin()
            })
            .collect();
        let hindsight = Hindsight::of(&minutes);
        let ratio = |model: &str| hindsight.model(model).unwrap().ratio;
        assert!(ratio("knows the future") < ratio("last_peak"));
        assert!(ratio("last_peak") < ratio("best fixed fleet"));
        assert!(
            ratio("seasonal") < 1.1,
            "a day like the one before: {}",
            ratio("seasonal")
        );
    }
}

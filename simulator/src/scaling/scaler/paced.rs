//! SageServe's long-term scaling (P§6.3, P§6.4): an hourly forecast, the integer program, and one of three strategies.
//!
//! The program has one kind of GPU here and ε = 1, where its closed form is exact: as many instances as the forecast peak of
//! a region needs, ⌈ρ/θ⌉. The text and the published code differ in thresholds, window and buffer ([`LongTermRules`]).

use super::{STEP_S, Scaler, Thresholds, View};

/// Steps of the paper's forecast, s.
const MINUTE_S: f64 = 60.0;
/// Interval between two plans, s.
const HOUR_S: f64 = 3_600.0;
/// Minutes of history before the first causal forecast.
const HISTORY_MINUTES: usize = 60;

/// When instances follow the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// LT-I: at once.
    Immediate,
    /// LT-U: while the utilisation is beyond a threshold, up to the plan.
    Utilisation,
    /// LT-UA: as LT-U, and beyond the plan when the load is far from its forecast.
    UtilisationAndGap,
}

/// When the load is far from its forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Seconds of the hour after which the gap counts.
    pub from_s: f64,
    /// Observed load over the forecast from which the number rises beyond the plan.
    pub up: f64,
    /// Observed load over the forecast up to which the number falls beyond the plan; zero: never.
    pub down: f64,
}

/// Rules of the strategies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongTermRules {
    /// Thresholds of the utilisation.
    pub thresholds: Thresholds,
    /// Utilisation above which LT-U and LT-UA grow past the plan; none: never.
    pub grows_past: Option<f64>,
    /// The gap of LT-UA.
    pub gap: Gap,
    /// Minutes after the plan whose peak counts.
    pub window: (usize, usize),
    /// Share of the last hour's non-interactive load that is added.
    pub batch_buffer: f64,
    /// Input tokens a second that are added whatever the load is.
    pub buffer_tokens_per_s: f64,
}

impl LongTermRules {
    /// The paper's text.
    pub const TEXT: Self = Self {
        thresholds: Thresholds::TEXT,
        grows_past: None,
        gap: Gap {
            from_s: 2_400.0,
            up: 5.0,
            down: 0.5,
        },
        window: (0, 60),
        batch_buffer: 0.10,
        buffer_tokens_per_s: 0.0,
    };
    /// The paper's published code. Its forecasts are tokens a minute, and its buffer is a tenth of the longest non-interactive
    /// *prompt*: 1,405 tokens of Azure's conversation trace stand for it.
    pub const CODE: Self = Self {
        thresholds: Thresholds::PACED_CODE,
        grows_past: Some(0.9),
        gap: Gap {
            from_s: 0.0,
            up: 5.0,
            down: 0.0,
        },
        window: (20, 60),
        batch_buffer: 0.0,
        buffer_tokens_per_s: 1_405.0 / 60.0,
    };
}

/// Source of the forecasts.
#[derive(Clone, Debug)]
pub enum Forecaster {
    /// Forecasts that were made before: input tokens a second of each minute, for each view. The published code fits its model on the
    /// whole trace and forecasts one minute ahead: it knows the future.
    InSample(Vec<Vec<f64>>),
    /// A function of the minutes so far and of the number of minutes to forecast.
    Causal(fn(&[f64], usize) -> Vec<f64>),
}

/// The strategies.
#[derive(Clone, Debug)]
pub struct LongTermScaler {
    strategy: Strategy,
    rules: LongTermRules,
    forecaster: Forecaster,
    /// Input tokens a second that an instance serves, by deployment (the paper's θ).
    tokens_per_s: Vec<f64>,
    tracks: Vec<Track>,
}

/// State of a deployment in a region.
#[derive(Clone, Debug, Default)]
struct Track {
    /// Input tokens a second of each full minute.
    minutes: Vec<f64>,
    batch_minutes: Vec<f64>,
    /// Sums of the minute in progress, and the number of steps in it.
    sums: (f64, f64, f64),
    planned: Option<usize>,
    /// Forecast of the minutes since the plan.
    forecast: Vec<f64>,
    planned_s: f64,
    changed_s: f64,
}

impl LongTermScaler {
    /// A strategy; `tokens_per_s` is what an instance of each deployment serves.
    pub fn new(
        strategy: Strategy,
        rules: LongTermRules,
        forecaster: Forecaster,
        tokens_per_s: Vec<f64>,
    ) -> Self {
        Self {
            strategy,
            rules,
            forecaster,
            tokens_per_s,
            tracks: Vec::new(),
        }
    }
}

impl Scaler for LongTermScaler {
    fn desired(&mut self, now_s: f64, views: &[View]) -> Vec<Option<usize>> {
        self.tracks.resize_with(views.len(), || Track {
            changed_s: f64::NEG_INFINITY,
            planned_s: f64::NEG_INFINITY,
            ..Track::default()
        });
        let mut wanted = Vec::with_capacity(views.len());
        for (index, (view, track)) in views.iter().zip(&mut self.tracks).enumerate() {
            track.observe(now_s, view);
            if now_s % HOUR_S < STEP_S || track.planned.is_none() {
                let theta = self
                    .tokens_per_s
                    .get(view.deployment)
                    .copied()
                    .unwrap_or(1.0);
                track.plan(now_s, index, &self.rules, &self.forecaster, theta);
            }
            wanted.push(track.pace(now_s, view, self.strategy, &self.rules));
        }
        wanted
    }
}

impl Track {
    fn observe(&mut self, now_s: f64, view: &View) {
        let (tokens, batch, steps) = &mut self.sums;
        *tokens += view.input_tokens_per_s;
        *batch += view.batch_tokens_per_s;
        *steps += 1.0;
        if now_s % MINUTE_S < STEP_S {
            self.minutes.push(*tokens / *steps);
            self.batch_minutes.push(*batch / *steps);
            self.sums = (0.0, 0.0, 0.0);
        }
    }

    /// Plans the coming hour, if there is a forecast for it.
    fn plan(
        &mut self,
        now_s: f64,
        view: usize,
        rules: &LongTermRules,
        forecaster: &Forecaster,
        theta: f64,
    ) {
        let (from, to) = rules.window;
        let forecast = match forecaster {
            Forecaster::InSample(all) => {
                let now = (now_s / MINUTE_S) as usize;
                let minutes = all.get(view).map_or(&[][..], Vec::as_slice);
                minutes.iter().skip(now).take(to).copied().collect()
            }
            Forecaster::Causal(forecast) if self.minutes.len() >= HISTORY_MINUTES => {
                forecast(&self.minutes, to)
            }
            Forecaster::Causal(_) => Vec::new(),
        };
        if forecast.is_empty() {
            return;
        }
        let peak = forecast.iter().skip(from).copied().fold(0.0, f64::max);
        let last_hour = self.batch_minutes.iter().rev().take(HISTORY_MINUTES);
        let batch = last_hour.clone().sum::<f64>() / last_hour.count().max(1) as f64;
        let demand = peak + rules.batch_buffer * batch + rules.buffer_tokens_per_s;
        self.planned = Some((demand / theta.max(1e-9)).ceil() as usize);
        self.planned_s = now_s;
        self.forecast = forecast;
    }

    fn pace(
        &mut self,
        now_s: f64,
        view: &View,
        strategy: Strategy,
        rules: &LongTermRules,
    ) -> Option<usize> {
        let (min, max) = view.bounds;
        let planned = self.planned?.clamp(min, max);
        if strategy == Strategy::Immediate {
            return Some(planned);
        }
        let current = view.current();
        if now_s - self.changed_s < rules.thresholds.cooldown_s {
            return None;
        }
        let (rises, falls) = match strategy {
            Strategy::UtilisationAndGap => self.gap(now_s, rules),
            _ => (false, false),
        };
        let is_full = rules.grows_past.is_some_and(|full| view.utilisation > full);
        let is_high = view.utilisation > rules.thresholds.up;
        let is_low = view.utilisation < rules.thresholds.down;
        let grows = (is_high && current < planned) || ((rises || is_full) && current >= planned);
        let shrinks = (is_low && current > planned) || (falls && current <= planned);
        let wanted = match (grows, shrinks) {
            (true, _) => (current + 1).min(max),
            (false, true) => current.saturating_sub(1).max(min),
            (false, false) => current,
        };
        (wanted != current).then(|| {
            self.changed_s = now_s;
            wanted
        })
    }

    /// Whether the load is far above and far below its forecast.
    fn gap(&self, now_s: f64, rules: &LongTermRules) -> (bool, bool) {
        let since_s = now_s - self.planned_s;
        let forecast = self.forecast.get((since_s / MINUTE_S) as usize);
        let (Some(observed), Some(forecast)) = (self.minutes.last(), forecast) else {
            return (false, false);
        };
        let is_late = since_s >= rules.gap.from_s;
        let ratio = observed / forecast.max(1e-9);
        (
            is_late && ratio >= rules.gap.up,
            is_late && ratio <= rules.gap.down,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(utilisation: f64, current: usize, input_tokens_per_s: f64) -> View {
        View {
            utilisation,
            ready: current,
            bounds: (2, 20),
            input_tokens_per_s,
            ..View::default()
        }
    }

    fn paced(strategy: Strategy, rules: LongTermRules) -> LongTermScaler {
        // 1,000 tokens a second in the first hour, 5,000 in the second.
        let forecast = [vec![1_000.0; 60], vec![5_000.0; 60]].concat();
        LongTermScaler::new(
            strategy,
            rules,
            Forecaster::InSample(vec![forecast]),
            vec![1_000.0],
        )
    }

    #[test]
    fn immediate_follows_the_plan_of_the_hour() {
        let mut scaler = paced(Strategy::Immediate, LongTermRules::TEXT);
        assert_eq!(scaler.desired(15.0, &[view(0.5, 8, 0.0)]), [Some(2)]);
        assert_eq!(scaler.desired(3_600.0, &[view(0.5, 2, 0.0)]), [Some(5)]);
    }

    #[test]
    fn utilisation_decides_when_and_the_plan_how_far() {
        let mut scaler = paced(Strategy::Utilisation, LongTermRules::TEXT);
        assert_eq!(scaler.desired(15.0, &[view(0.5, 4, 0.0)]), [None]);
        assert_eq!(scaler.desired(30.0, &[view(0.2, 4, 0.0)]), [Some(3)]);
        assert_eq!(scaler.desired(3_600.0, &[view(0.8, 4, 0.0)]), [Some(5)]);
        assert_eq!(
            scaler.desired(3_630.0, &[view(0.95, 5, 0.0)]),
            [None],
            "the plan is reached"
        );
        let mut code = paced(Strategy::Utilisation, LongTermRules::CODE);
        code.desired(15.0, &[view(0.4, 4, 0.0)]);
        assert_eq!(
            code.desired(120.0, &[view(0.95, 4, 0.0)]),
            [Some(5)],
            "past the plan"
        );
    }

    #[test]
    fn the_gap_counts_at_the_end_of_the_hour() {
        let mut scaler = paced(Strategy::UtilisationAndGap, LongTermRules::TEXT);
        scaler.desired(15.0, &[view(0.5, 3, 0.0)]);
        for minute in 1..39 {
            let now_s = f64::from(minute) * 60.0;
            assert_eq!(
                scaler.desired(now_s, &[view(0.5, 3, 6_000.0)]),
                [None],
                "{minute}"
            );
        }
        assert_eq!(scaler.desired(2_460.0, &[view(0.5, 3, 6_000.0)]), [Some(4)]);
        assert_eq!(
            scaler.desired(2_520.0, &[view(0.5, 2, 400.0)]),
            [None],
            "at its bound"
        );
    }

    #[test]
    fn a_causal_forecast_needs_an_hour() {
        fn last(minutes: &[f64], count: usize) -> Vec<f64> {
            vec![minutes.last().copied().unwrap_or_default(); count]
        }
        let forecaster = Forecaster::Causal(last);
        let mut scaler = LongTermScaler::new(
            Strategy::Immediate,
            LongTermRules::TEXT,
            forecaster,
            vec![1_000.0],
        );
        for minute in 1..60 {
            let now_s = f64::from(minute) * 60.0;
            assert_eq!(scaler.desired(now_s, &[view(0.5, 3, 3_500.0)]), [None]);
        }
        assert_eq!(scaler.desired(3_600.0, &[view(0.5, 3, 3_500.0)]), [Some(4)]);
    }
}

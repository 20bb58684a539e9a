//! The strategies by name.

use core::time::Duration;

use isotherm_planner::PoolRules;
use isotherm_simulator::scaling::cluster::Cluster;
use isotherm_simulator::scaling::forecast::{arima_60, in_sample};
use isotherm_simulator::scaling::instances::StartTimes;
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::scaler::{
    ChironScaler, Forecaster, LongTermRules, LongTermScaler, PlannerScaler, ReactiveScaler, Scaler,
    Strategy, Thresholds,
};
use isotherm_simulator::scaling::traffic::Point;

pub(crate) const REACTIVE: &str = "Reactive";
pub(crate) const LT_I: &str = "LT-I";
pub(crate) const LT_U: &str = "LT-U";
pub(crate) const LT_UA: &str = "LT-UA";
pub(crate) const CHIRON: &str = "Chiron";
/// Isotherm's planner with its defaults.
pub(crate) const OURS: &str = "Isotherm";
/// Isotherm's planner with the paper's interval, an hour.
pub(crate) const HOURLY: &str = "Isotherm, hourly";
/// Isotherm's planner with few margins, which has about the times of reactive scaling.
pub(crate) const LEAN: &str = "Isotherm, lean";
/// The paper's strategies, in its order.
pub(crate) const PAPER: [&str; 5] = [REACTIVE, LT_I, LT_U, LT_UA, CHIRON];
/// Every strategy of a day.
pub(crate) const ALL: [&str; 7] = [REACTIVE, LT_I, LT_U, LT_UA, CHIRON, OURS, HOURLY];

/// Effective memory utilisation at which the paper's θ is measured: where instances are added.
const FULL: f64 = 0.70;

/// How a strategy is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As the published code.
    Paper,
    /// By the text, with forecasts from the past.
    Honest,
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::Paper, Self::Honest];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper mode",
            Self::Honest => "honest mode",
        }
    }

    /// The rows of a name in this mode.
    pub(crate) fn group(self, name: &str) -> String {
        format!("{name}, {}", self.name())
    }

    /// Times until an instance serves.
    pub(crate) fn times(self, strategy: &str) -> StartTimes {
        match self {
            // The code starts Chiron's instances at once.
            Self::Paper if strategy == CHIRON => StartTimes {
                own_s: 0.0,
                own_max_s: 0.0,
                other_s: 0.0,
                drain_s: StartTimes::CODE.drain_s,
            },
            Self::Paper => StartTimes::CODE,
            Self::Honest => StartTimes::TEXT,
        }
    }
}

/// The scaler of a strategy.
pub(crate) fn scaler(strategy: &str, mode: Mode, cluster: &Cluster) -> Box<dyn Scaler> {
    let paced = match strategy {
        LT_I => Strategy::Immediate,
        LT_U => Strategy::Utilisation,
        LT_UA => Strategy::UtilisationAndGap,
        CHIRON => return Box::new(ChironScaler),
        OURS => return planner(PoolRules::default(), mode, cluster),
        HOURLY => {
            let rules = PoolRules {
                interval: Duration::from_secs(3_600),
                ..PoolRules::default()
            };
            return planner(rules, mode, cluster);
        }
        LEAN => return planner(lean(), mode, cluster),
        _ => {
            let thresholds = match mode {
                Mode::Paper => Thresholds::REACTIVE_CODE,
                Mode::Honest => Thresholds::TEXT,
            };
            return Box::new(ReactiveScaler::new(thresholds));
        }
    };
    let deployments = cluster.deployments.iter();
    let theta = deployments.map(|deployment| deployment.profile.input_tokens_per_s(FULL));
    let (mut rules, forecaster) = match mode {
        Mode::Paper => (
            LongTermRules::CODE,
            Forecaster::InSample(known(cluster, |point, _| point.input_tokens_per_s())),
        ),
        Mode::Honest => (LongTermRules::TEXT, Forecaster::Causal(arima_60)),
    };
    if paced != Strategy::Utilisation {
        // Only LT-U of the code grows past its plan by the utilisation.
        rules.grows_past = None;
    }
    Box::new(LongTermScaler::new(
        paced,
        rules,
        forecaster,
        theta.collect(),
    ))
}

/// Isotherm's planner. In paper mode it gets the forecast that the paper's strategies get.
fn planner(rules: PoolRules, mode: Mode, cluster: &Cluster) -> Box<dyn Scaler> {
    Box::new(match mode {
        Mode::Paper => {
            PlannerScaler::supplied(rules, known(cluster, |point, profile| profile.busy(point)))
        }
        Mode::Honest => PlannerScaler::new(rules),
    })
}

/// Rules of [`LEAN`], as `docs/scaling.md` names them.
fn lean() -> PoolRules {
    let mut rules = PoolRules {
        stabilisation: Duration::from_secs(120),
        ..PoolRules::default()
    };
    rules.utilisation.busy = 1.0;
    rules.forecast.quantile = 0.5;
    rules
}

/// Forecasts of the published code for each deployment in each region, of a demand at each minute.
fn known(cluster: &Cluster, demand: impl Fn(&Point, &Profile) -> f64) -> Vec<Vec<f64>> {
    let minutes =
        |length_s: f64| (0..(length_s / 60.0) as usize).map(|minute| minute as f64 * 60.0);
    let deployments = cluster.deployments.iter();
    let series = deployments.flat_map(|deployment| {
        let traffic = deployment.traffic.iter();
        traffic.map(move |series| (series, &*deployment.profile))
    });
    series
        .map(|(series, profile)| {
            let demands: Vec<f64> = minutes(series.length_s())
                .map(|at| demand(&series.at(at), profile))
                .collect();
            in_sample(&demands)
        })
        .collect()
}

//! Rules of the planner: what an operator decides.
//!
//! Every default stands here. The service resolves its configuration into these types; the simulator sets them directly.

use core::time::Duration;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, EnumIter, IntoStaticStr, VariantArray};

/// Start-up time of a replica before the planner has measured one.
pub const STARTUP_PRESUMED: Duration = Duration::from_secs(600);

/// Rules of a planner: those of its pools, and what they share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannerConfig {
    /// Name of this region. Peers' rows carry theirs.
    pub region: String,
    /// Rules of each pool, by its name.
    pub pools: BTreeMap<String, PoolRules>,
    /// GPUs of each kind that the pools of this region share. A kind without an entry has no bound.
    pub gpus_max: BTreeMap<String, u32>,
}

/// Rules of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolRules {
    /// How the pool follows its plan.
    pub pace: Pace,
    /// Bounds of the number of replicas.
    pub replicas: ReplicaBounds,
    /// Time between two plans: the forecast covers one interval, and the program is solved once in it.
    pub interval: Duration,
    /// Thresholds of the effective memory utilisation.
    pub utilisation: UtilisationRules,
    /// Thresholds of the gap between observed and forecast demand.
    pub gap: GapRules,
    /// Time without a scale-up before the number falls, and for which every recommendation must be lower.
    pub stabilisation: Duration,
    /// Time for which replicas are surplus before the pool donates them.
    pub donate_after: Duration,
    /// Signal of the demand.
    pub signal: Signal,
    /// Rules of the forecast.
    pub forecast: ForecastRules,
    /// Share of a region's peak demand that the region serves itself (the paper's ε), in (0, 1].
    pub local_share: f64,
    /// Cost of a replica.
    pub cost: CostRules,
    /// Weight of the pool when its GPUs do not suffice: pools of lower weight give up replicas first.
    pub weight: f64,
    /// Start-up time before the planner has measured one.
    pub startup: Duration,
}

impl Default for PoolRules {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            replicas: ReplicaBounds::default(),
            interval: Duration::from_secs(300),
            utilisation: UtilisationRules::default(),
            gap: GapRules::default(),
            stabilisation: Duration::from_secs(300),
            donate_after: Duration::from_secs(600),
            signal: Signal::default(),
            forecast: ForecastRules::default(),
            local_share: 1.0,
            cost: CostRules::default(),
            weight: 1.0,
            startup: STARTUP_PRESUMED,
        }
    }
}

/// How a pool follows its plan. All but `Forecast` are the paper's (section 6.4).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Pace {
    /// The plan at once (LT-I).
    Immediate,
    /// One replica at a time while the utilisation is beyond a threshold, up to the plan (LT-U).
    Utilisation,
    /// As `Utilisation`; at the end of the interval also beyond the plan, if the demand is far from its forecast (LT-UA).
    UtilisationAndGap,
    /// By the utilisation alone, without a plan.
    Reactive,
    /// Up one start-up time before the forecast demand, and at once if the demand exceeds the forecast's upper quantile;
    /// down to the plan after the stabilisation time.
    #[default]
    Forecast,
}

/// Bounds of the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaBounds {
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// The most replicas by which the number falls in one step. The next step follows after the stabilisation time, when
    /// the demand has been measured with the smaller cache.
    pub step_down: u32,
}

impl Default for ReplicaBounds {
    fn default() -> Self {
        Self {
            min: 2,
            max: 20,
            step_down: 1,
        }
    }
}

/// Thresholds of the effective memory utilisation, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UtilisationRules {
    /// Utilisation above which the number rises, and to which a plan fills the caches.
    pub up: f64,
    /// Utilisation below which the number falls.
    pub down: f64,
    /// Share of the time for which a plan lets a replica be busy.
    pub busy: f64,
    /// Time between two steps.
    pub cooldown: Duration,
    /// Whether replicas that start count as capacity already. Without it, a pool adds one replica per cooldown until the
    /// first has started, as the paper's reactive strategy does.
    pub counts_starting: bool,
}

impl Default for UtilisationRules {
    fn default() -> Self {
        Self {
            up: 0.70,
            down: 0.30,
            busy: 0.90,
            cooldown: Duration::from_secs(15),
            counts_starting: true,
        }
    }
}

/// Thresholds of the gap between observed and forecast demand (LT-UA).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapRules {
    /// Part of the interval after which the gap counts.
    pub from: f64,
    /// Observed demand as a multiple of the forecast from which the number rises beyond the plan.
    pub up: f64,
    /// Observed demand as a multiple of the forecast up to which the number falls beyond the plan.
    pub down: f64,
}

impl Default for GapRules {
    fn default() -> Self {
        Self {
            from: 0.667,
            up: 5.0,
            down: 0.5,
        }
    }
}

/// Signal of the demand.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Signal {
    /// Measured work, in busy replicas. Prompt tokens that caches hold count nothing.
    #[default]
    Work,
    /// Input tokens a second, as in the paper.
    InputTokens,
}

/// Rules of the forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastRules {
    /// The model.
    pub model: ForecastModel,
    /// Share of the windows whose demand the upper forecast covers.
    pub quantile: f64,
    /// Share of the past interval's non-interactive demand that is added to the forecast (the paper's β).
    pub batch_buffer: f64,
    /// Whether forecasts are multiplied by their conformal factor. The paper's are not.
    pub is_calibrated: bool,
    /// Input tokens a second that a replica serves, for the signal `InputTokens`; `None` learns it.
    pub replica_tokens_per_s: Option<f64>,
}

impl Default for ForecastRules {
    fn default() -> Self {
        Self {
            model: ForecastModel::default(),
            quantile: 0.9,
            batch_buffer: 0.10,
            is_calibrated: true,
            replica_tokens_per_s: None,
        }
    }
}

/// Model of a forecast.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    IntoStaticStr,
    EnumIter,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum ForecastModel {
    /// The peak of the past interval.
    LastPeak,
    /// The peak of the same window a day and a week ago, at the level of the last hour.
    Seasonal,
    /// ARIMA(3,1,2) on the last 60 means of five minutes.
    Arima,
    /// The larger of `LastPeak` and `Seasonal`.
    Max,
    /// The model with the least pinball loss over the last 48 windows; `Max` until there are 12.
    #[default]
    Best,
    /// The last forecast that [`Sample::Forecast`](crate::Sample::Forecast) supplied: experiments with a known future.
    Supplied,
}

/// Cost of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRules {
    /// Kind of the GPUs, which [`PlannerConfig::gpus_max`] bounds.
    pub kind: String,
    /// GPUs of a replica.
    pub gpus: u32,
    /// Price of one GPU for an hour (the paper's α for a replica: `gpus × per_hour`).
    pub per_hour: f64,
}

impl Default for CostRules {
    fn default() -> Self {
        Self {
            kind: "gpu".to_owned(),
            gpus: 1,
            per_hour: 1.0,
        }
    }
}

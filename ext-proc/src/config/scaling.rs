//! The sections `pools[].scaling` and `scaling`: how many replicas each pool needs, and who learns it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_planner::{
    CostRules, ForecastModel, ForecastRules, Pace, PoolRules, ReplicaBounds, STARTUP_PRESUMED,
    Signal, UtilisationRules,
};
use strum::{AsRefStr, VariantArray};

use super::decimal::{Decimal, decimal};
use super::errors::{Reader, UniqueNames};
use super::kind::{
    choice, list, millis, number, optional, path, required, section as section_kind,
};
use super::section::section;
use super::text::{model_name, socket_address, webhook_url};

/// The most kinds of GPU.
const KINDS_MAX: usize = 64;

/// Use of the number of replicas that the service computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AsRefStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ScalingMode {
    /// Nothing: the service computes no number.
    Off,
    /// The metrics, the admin interface and `isotherm scaling` show the number.
    #[default]
    Advise,
    /// Autoscalers get the number, too, and surplus replicas drain.
    Act,
}

section! {
    /// `scaling`.
    pub struct ScalingConfig {
        /// The address on which KEDA reads the numbers of pools in mode `act` (`externalscaler.ExternalScaler`, without TLS).
        keda_listen as "keda_listen": Option<SocketAddr> = None, optional(socket_address());
        /// The GPUs that the pools share, of each kind. A kind that is not listed has no bound.
        gpus as "gpus": Vec<GpuConfig> = Vec::new(), list(section_kind(), KINDS_MAX);
        /// A file that keeps the history of demand over a restart. Relative to the configuration file. Without it, a restarted service plans only after two hours, and knows no season for a day.
        state_file as "state_file": Option<PathBuf> = None, optional(path());
    }
}

section! {
    /// GPUs of one kind.
    pub struct GpuConfig {
        /// The kind, as `pools[].scaling.cost.kind` names it.
        kind as "kind": String = String::new(), required(model_name());
        /// The GPUs that the pools of this region may have together.
        count as "count": u32 = 0, required(number("GPUs", 0..=1_000_000));
    }
}

section! {
    /// `pools[].scaling`.
    pub(super) struct RawScaling {
        /// The use of the number. `advise`: the metrics, `GET /api/scaling` and `isotherm scaling` show it. `act`: KEDA and the webhook get it, too, and surplus replicas drain.
        mode as "mode": ScalingMode = ScalingMode::Advise,
            choice(ScalingMode::VARIANTS.iter().map(|mode| (mode.as_ref(), *mode)));
        /// The pace at which the number follows the plan. `forecast`: up one start-up time before the forecast demand, down after `stabilisation_ms`. The other four are SageServe's: at once (LT-I), by utilisation up to the plan (LT-U), the same and beyond the plan where the forecast was far off (LT-UA), by utilisation alone.
        pace as "pace": Pace = Pace::default(), choice(Pace::VARIANTS.iter().map(|pace| (pace.as_ref(), *pace)));
        /// Bounds of the number.
        replicas as "replicas": RawReplicaBounds = RawReplicaBounds::default(), section_kind();
        /// The time between two plans, and the length of the window that a plan covers. The paper's is an hour.
        interval as "interval_ms": Duration = PoolRules::default().interval, millis(300_000..=43_200_000);
        /// Thresholds of the effective memory utilisation: the used share of the KV caches.
        utilisation as "utilisation": RawUtilisation = RawUtilisation::default(), section_kind();
        /// The time for which all wishes must be lower before the number falls, and the time between two steps down.
        stabilisation as "stabilisation_ms": Duration = PoolRules::default().stabilisation, millis(0..=86_400_000);
        /// The signal of the demand: `work`, measured in busy replicas, or `input_tokens` a second, as in the paper.
        signal as "signal": Signal = Signal::default(), choice(Signal::VARIANTS.iter().map(|signal| (signal.as_ref(), *signal)));
        /// The forecast of the demand.
        forecast as "forecast": RawForecast = RawForecast::default(), section_kind();
        /// The weight of the pool where GPUs do not suffice: pools of lower weight give up replicas first.
        weight as "weight": Decimal = Decimal::nearest(1.0), decimal(0.01..=1_000.0);
        /// The cost of a replica.
        cost as "cost": RawCost = RawCost::default(), section_kind();
        /// The presumed time from a higher number to the first good probe of the new replica, until the service has measured it.
        startup as "startup_ms": Duration = STARTUP_PRESUMED, millis(1_000..=7_200_000);
        /// An address that gets each change of the number in mode `act`.
        webhook as "webhook": Option<WebhookConfig> = None, optional(section_kind());
    }
}

section! {
    /// `pools[].scaling.replicas`.
    pub(super) struct RawReplicaBounds {
        /// The fewest replicas.
        min as "min": u32 = ReplicaBounds::default().min, number("replicas", 0..=10_000);
        /// The most replicas.
        max as "max": u32 = ReplicaBounds::default().max, number("replicas", 1..=10_000);
    }
}

section! {
    /// `pools[].scaling.utilisation`.
    pub(super) struct RawUtilisation {
        /// The utilisation above which the number rises, and to which a plan fills the caches.
        up as "up": Decimal = Decimal::nearest(UtilisationRules::default().up), decimal(0.05..=1.0);
        /// The utilisation below which the number falls.
        down as "down": Decimal = Decimal::nearest(UtilisationRules::default().down), decimal(0.0..=0.95);
        /// With `signal: work`: the share of the time for which a plan lets a replica be busy.
        busy as "busy": Decimal = Decimal::nearest(UtilisationRules::default().busy), decimal(0.05..=1.0);
        /// The time between two steps by utilisation.
        cooldown as "cooldown_ms": Duration = UtilisationRules::default().cooldown, millis(1_000..=3_600_000);
    }
}

section! {
    /// `pools[].scaling.forecast`.
    pub(super) struct RawForecast {
        /// The model. `best` is the one with the least loss over the last 48 windows, `max` until there are 12; `max` is the larger of `last_peak` and `seasonal`.
        model as "model": ForecastModel = ForecastModel::default(),
            choice(
                ForecastModel::VARIANTS
                    .iter()
                    .filter(|model| **model != ForecastModel::Supplied)
                    .map(|model| (model.as_ref(), *model)),
            );
        /// The share of the windows whose peak the forecast covers.
        quantile as "quantile": Decimal = Decimal::nearest(ForecastRules::default().quantile), decimal(0.5..=0.99);
    }
}

section! {
    /// `pools[].scaling.cost`.
    pub(super) struct RawCost {
        /// The kind of a replica's GPUs, which `scaling.gpus` may bound.
        kind as "kind": String = CostRules::default().kind, model_name();
        /// The GPUs of a replica.
        gpus as "gpus": u32 = CostRules::default().gpus, number("GPUs", 1..=1_024);
        /// The price of a GPU for an hour, in any currency.
        per_hour as "per_hour": Decimal = Decimal::nearest(CostRules::default().per_hour), decimal(0.0001..=10_000.0);
    }
}

section! {
    /// An address that gets each change of the number.
    pub struct WebhookConfig {
        /// The URL, which gets a POST of JSON. Without TLS: a proxy on this machine or in this pod adds it.
        url as "url": String = String::new(), required(webhook_url());
        /// A file with the bearer token that each call carries. The service reads it for each call. Relative to the configuration file.
        token_file as "token_file": Option<PathBuf> = None, optional(path());
    }
}

/// How the service scales a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolScalingConfig {
    /// Use of the number.
    pub mode: ScalingMode,
    /// Rules of the planner.
    pub rules: PoolRules,
    /// An address that gets each change of the number.
    pub webhook: Option<WebhookConfig>,
}

impl PoolScalingConfig {
    /// Whether an empty pool gets a replica when requests wait for one.
    pub(super) fn starts_from_zero(&self) -> bool {
        self.mode == ScalingMode::Act && self.rules.replicas.min == 0
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        if let Some(file) = self
            .webhook
            .as_mut()
            .and_then(|webhook| webhook.token_file.as_mut())
        {
            *file = folder.join(&file);
        }
    }
}

impl ScalingConfig {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        if let Some(file) = &mut self.state_file {
            *file = folder.join(&file);
        }
    }

    /// GPUs by kind.
    pub fn gpus_max(&self) -> BTreeMap<String, u32> {
        self.gpus
            .iter()
            .map(|gpu| (gpu.kind.clone(), gpu.count))
            .collect()
    }
}

/// Checks the shared GPUs: every kind once, and enough for the fewest replicas of all pools.
pub(super) fn check(scaling: &ScalingConfig, pools: &[&PoolScalingConfig], reader: &mut Reader) {
    let mut kinds = UniqueNames::new("kind");
    for (entry, gpu) in reader.entries("scaling.gpus", &scaling.gpus) {
        kinds.claim(&gpu.kind, &format!("{entry}.kind"), reader);
        let of_kind = pools.iter().filter(|pool| pool.rules.cost.kind == gpu.kind);
        let fewest: u64 = of_kind
            .map(|pool| u64::from(pool.rules.replicas.min) * u64::from(pool.rules.cost.gpus))
            .sum();
        if fewest > u64::from(gpu.count) {
            let message = format!(
                "{} GPUs do not suffice for the fewest replicas of the pools, which take {fewest}: lower \
                 `scaling.replicas.min` of a pool",
                gpu.count
            );
            reader.error(&format!("{entry}.count"), message);
        }
    }
}

/// Resolves the section of a pool.
pub(super) fn resolve(raw: RawScaling, option: &str, reader: &mut Reader) -> PoolScalingConfig {
    if raw.replicas.min > raw.replicas.max {
        let message = format!(
            "{} is more than max ({})",
            raw.replicas.min, raw.replicas.max
        );
        reader.error(&format!("{option}.replicas.min"), message);
    }
    if raw.utilisation.down >= raw.utilisation.up {
        let message = format!(
            "{} is not below up ({})",
            raw.utilisation.down, raw.utilisation.up
        );
        reader.error(&format!("{option}.utilisation.down"), message);
    }
    PoolScalingConfig {
        mode: raw.mode,
        rules: rules(&raw),
        webhook: raw.webhook,
    }
}

fn rules(raw: &RawScaling) -> PoolRules {
    PoolRules {
        pace: raw.pace,
        replicas: ReplicaBounds {
            min: raw.replicas.min,
            max: raw.replicas.max,
            ..ReplicaBounds::default()
        },
        interval: raw.interval,
        utilisation: UtilisationRules {
            up: raw.utilisation.up.to_f64(),
            busy: raw.utilisation.busy.to_f64(),
            down: raw.utilisation.down.to_f64(),
            cooldown: raw.utilisation.cooldown,
            ..UtilisationRules::default()
        },
        stabilisation: raw.stabilisation,
        signal: raw.signal,
        forecast: ForecastRules {
            model: raw.forecast.model,
            quantile: raw.forecast.quantile.to_f64(),
            ..ForecastRules::default()
        },
        cost: CostRules {
            kind: raw.cost.kind.clone(),
            gpus: raw.cost.gpus,
            per_hour: raw.cost.per_hour.to_f64(),
        },
        weight: raw.weight.to_f64(),
        startup: raw.startup,
        ..PoolRules::default()
    }
}

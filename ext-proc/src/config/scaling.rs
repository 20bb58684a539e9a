//! The sections `pools[].scaling` and `scaling`: how many replicas each pool needs, and who learns it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_planner::{CostRules, PoolRules, ReplicaBounds, STARTUP_PRESUMED, UtilisationRules};
use strum::{AsRefStr, VariantArray};

use super::decimal::{Decimal, decimal};
use super::errors::Reader;
use super::kind::{choice, map_of, millis, number, optional, path};
use super::section::section;
use super::text::{model_name, socket_address, webhook_url};

/// The most kinds of GPU.
const KINDS_MAX: usize = 64;
/// Between two steps by utilisation passes a part of the stabilisation time.
const COOLDOWN_DIVISOR: u32 = 20;
const COOLDOWN_MIN: Duration = Duration::from_secs(1);

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
        /// The GPUs that the pools of this region may have together, of each kind (`pools[].scaling.gpu_kind`). A kind that is not listed has no bound.
        gpus as "gpus": BTreeMap<String, u32> = BTreeMap::new(), map_of(model_name(), number("GPUs", 0..=1_000_000), KINDS_MAX);
        /// A file that keeps the history of demand over a restart. Relative to the configuration file. Without it, a restarted service plans only after two hours, and knows no season for a day.
        state_file as "state_file": Option<PathBuf> = None, optional(path());
    }
}

section! {
    /// `pools[].scaling`.
    pub(super) struct RawScaling {
        /// The use of the number. `advise`: the metrics, `GET /api/scaling` and `isotherm scaling` show it. `act`: KEDA and the webhook get it, too, and surplus replicas drain.
        mode as "mode": ScalingMode = ScalingMode::Advise,
            choice(ScalingMode::VARIANTS.iter().map(|mode| (mode.as_ref(), *mode)));
        /// The fewest replicas.
        replicas_min as "replicas_min": u32 = ReplicaBounds::default().min, number("replicas", 0..=10_000);
        /// The most replicas.
        replicas_max as "replicas_max": u32 = ReplicaBounds::default().max, number("replicas", 1..=10_000);
        /// The share of the time for which a plan lets a replica be busy. A lower one gives shorter times with more replicas.
        utilisation_max as "utilisation_max": Decimal = Decimal::nearest(UtilisationRules::default().busy), decimal(0.05..=1.0);
        /// The time for which all wishes must be lower before the number falls, and the time between two steps down. Between two steps by utilisation a twentieth of it passes, a second at least.
        stabilisation as "stabilisation_ms": Duration = PoolRules::default().stabilisation, millis(0..=86_400_000);
        /// The presumed time from a higher number to the first good probe of the new replica, until the service has measured it.
        startup as "startup_ms": Duration = STARTUP_PRESUMED, millis(1_000..=7_200_000);
        /// The weight of the pool where GPUs do not suffice: pools of lower weight give up replicas first.
        weight as "weight": Decimal = Decimal::nearest(1.0), decimal(0.01..=1_000.0);
        /// The kind of a replica's GPUs, which `scaling.gpus` may bound.
        gpu_kind as "gpu_kind": String = CostRules::default().kind, model_name();
        /// The GPUs of a replica.
        gpus as "gpus": u32 = CostRules::default().gpus, number("GPUs", 1..=1_024);
        /// A URL that gets each change of the number in mode `act`, as a POST of JSON. Without TLS: a proxy on this machine or in this pod adds it.
        webhook as "webhook": Option<String> = None, optional(webhook_url());
        /// A file with the bearer token that each call of `webhook` carries. The service reads it for each call. Relative to the configuration file.
        webhook_token_file as "webhook_token_file": Option<PathBuf> = None, optional(path());
    }
}

/// An address that gets each change of the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// URL, which gets a POST of JSON.
    pub url: String,
    /// File with the bearer token that each call carries.
    pub token_file: Option<PathBuf>,
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
}

/// Checks that the shared GPUs suffice for the fewest replicas of all pools.
pub(super) fn check(scaling: &ScalingConfig, pools: &[&PoolScalingConfig], reader: &mut Reader) {
    for (kind, count) in &scaling.gpus {
        let of_kind = pools.iter().filter(|pool| pool.rules.cost.kind == *kind);
        let fewest: u64 = of_kind
            .map(|pool| u64::from(pool.rules.replicas.min) * u64::from(pool.rules.cost.gpus))
            .sum();
        if fewest > u64::from(*count) {
            let message = format!(
                "{count} GPUs do not suffice for the fewest replicas of the pools, which take {fewest}: lower \
                 `scaling.replicas_min` of a pool"
            );
            reader.error(&format!("scaling.gpus.{kind}"), message);
        }
    }
}

/// Resolves the section of a pool.
pub(super) fn resolve(raw: RawScaling, option: &str, reader: &mut Reader) -> PoolScalingConfig {
    if raw.replicas_min > raw.replicas_max {
        let message = format!(
            "{} is more than replicas_max ({})",
            raw.replicas_min, raw.replicas_max
        );
        reader.error(&format!("{option}.replicas_min"), message);
    }
    let token_file = format!("{option}.webhook_token_file");
    if raw.webhook.is_none()
        && raw.webhook_token_file.is_some()
        && reader.is_valid(&format!("{option}.webhook"))
    {
        let message = "has no effect without `webhook`: give both, or remove it";
        reader.error(&token_file, message);
    }
    PoolScalingConfig {
        mode: raw.mode,
        rules: rules(&raw),
        webhook: raw.webhook.map(|url| WebhookConfig {
            url,
            token_file: raw.webhook_token_file,
        }),
    }
}

fn rules(raw: &RawScaling) -> PoolRules {
    PoolRules {
        replicas: ReplicaBounds {
            min: raw.replicas_min,
            max: raw.replicas_max,
            ..ReplicaBounds::default()
        },
        utilisation: UtilisationRules {
            busy: raw.utilisation_max.to_f64(),
            cooldown: COOLDOWN_MIN.max(raw.stabilisation / COOLDOWN_DIVISOR),
            ..UtilisationRules::default()
        },
        stabilisation: raw.stabilisation,
        cost: CostRules {
            kind: raw.gpu_kind.clone(),
            gpus: raw.gpus,
            ..CostRules::default()
        },
        weight: raw.weight.to_f64(),
        startup: raw.startup,
        ..PoolRules::default()
    }
}

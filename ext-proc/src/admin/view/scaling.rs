//! The JSON of `/api/scaling`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /api/scaling`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScalingView {
    /// Name of the region; empty without regions.
    pub region: String,
    /// Whether this service leads its siblings.
    pub is_leader: bool,
    /// Method of the last solution: `closed_form`, `integer` or `cut`.
    pub method: Option<String>,
    /// Pools with a section `scaling`.
    pub pools: Vec<PoolScalingView>,
}

/// Number of replicas of one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolScalingView {
    pub pool: String,
    pub mode: String,
    /// Number of replicas; absent until the pool knows its replicas.
    pub desired: Option<u32>,
    /// Version of the number.
    pub epoch: u64,
    /// Reason of the last change.
    pub reason: String,
    pub is_held: bool,
    pub ready: u32,
    pub starting: u32,
    pub surplus: u32,
    /// Number by the program; absent without a valid plan.
    pub target: Option<u32>,
    /// Effective memory utilisation, as a share.
    pub utilisation: Option<f64>,
    /// Demand of the last five minutes, in full replicas.
    pub demand_replicas: Option<f64>,
    /// Forecasts of the coming window by model, in full replicas.
    pub forecasts: BTreeMap<String, ForecastView>,
    /// Model in use.
    pub model: Option<String>,
    /// Demand of the last window over its forecast.
    pub forecast_error: Option<f64>,
    /// Demand beyond bounds and GPUs, in full replicas.
    pub unmet_replicas: f64,
    pub startup_ms: u64,
    pub waiting: usize,
    pub drain: Vec<String>,
    pub undrain: Vec<String>,
    pub donate: Vec<String>,
    pub removal_order: Vec<String>,
}

/// Forecast of one model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForecastView {
    pub point: f64,
    pub upper: f64,
}

/// `POST /api/scaling/hold`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewHold {
    /// Model of the pool; may be absent if there is one pool.
    #[serde(default)]
    pub pool: Option<String>,
    /// Number of replicas; absent to end the hold.
    #[serde(default)]
    pub replicas: Option<u32>,
    /// Duration of the hold.
    #[serde(default)]
    pub seconds: Option<u64>,
}

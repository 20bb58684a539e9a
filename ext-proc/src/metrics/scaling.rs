//! Metrics of the numbers of replicas.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::page::Page;
use crate::scaling::{PoolScalingStatus, ScalingHandle, ScalingStatus};

/// Reads the state of scaling at each scrape. A service without a section `scaling` has no samples.
#[derive(Debug)]
pub struct ScalingCollector(
    /// The planner's published state.
    pub ScalingHandle,
);

impl Collector for ScalingCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        encode(encoder, &self.0.status())
    }
}

/// A gauge: its name, its help, and how to read its value.
type Gauge = (
    &'static str,
    &'static str,
    fn(&PoolScalingStatus) -> Option<f64>,
);

const GAUGES: [Gauge; 5] = [
    (
        "desired_replicas",
        "Replicas that the pool should have; absent until it knows its replicas",
        |s| s.desired().map(f64::from),
    ),
    (
        "demand_replicas",
        "Demand of the last five minutes, in full replicas",
        |s| s.plan.demand_replicas,
    ),
    (
        "unmet_replicas",
        "Demand that the plan cannot meet within its bounds and GPUs, in full replicas",
        |s| Some(s.plan.unmet),
    ),
    (
        "forecast_error_ratio",
        "Demand of the last complete window over its forecast by the model in use",
        |s| s.plan.forecast_error,
    ),
    (
        "replica_startup_seconds",
        "Start-up time that plans assume: measured, or presumed before the first measurement",
        |s| Some(s.plan.startup.as_secs_f64()),
    ),
];

pub(super) fn encode(encoder: DescriptorEncoder<'_>, status: &ScalingStatus) -> fmt::Result {
    let mut page = Page::new(encoder);
    for (name, help, read) in GAUGES {
        let samples = status.pools.iter();
        let samples =
            samples.filter_map(|(pool, status)| Some(([("pool", &**pool)], read(status)?)));
        page.gauges(name, help, samples)?;
    }
    let forecasts = status.pools.iter().flat_map(|(pool, status)| {
        status
            .plan
            .forecasts
            .iter()
            .flat_map(move |(model, forecast)| {
                let kinds = [("point", forecast.point), ("upper", forecast.upper)];
                let labels =
                    move |kind| [("pool", &**pool), ("model", model.as_ref()), ("kind", kind)];
                kinds.map(|(kind, value)| (labels(kind), value))
            })
    });
    page.gauges(
        "forecast_replicas",
        "Forecast of the peak demand of the coming window, in full replicas, by model: the model's own value, and the one that \
         covers the configured share of the windows",
        forecasts,
    )
}

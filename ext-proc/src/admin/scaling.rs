//! `/api/scaling`: the number of replicas of each pool, its forecast, and a hold on it.

use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::Json;

use super::AdminState;
use super::error::ApiError;
use super::view::{ForecastView, NewHold, PoolScalingView, ScalingView};
use crate::scaling::PoolScalingStatus;

/// The longest hold.
const HOLD_SECONDS_MAX: u64 = 7 * 24 * 3_600;
/// The most replicas of a hold.
const HOLD_REPLICAS_MAX: u32 = 10_000;

pub(super) async fn show(State(admin): AdminState) -> Json<ScalingView> {
    let status = admin.scaling.status();
    Json(ScalingView {
        region: status.region.clone(),
        is_leader: status.is_leader,
        method: status.method.map(|method| method.as_ref().to_owned()),
        pools: status
            .pools
            .iter()
            .map(|(name, pool)| pool_view(name, pool))
            .collect(),
    })
}

/// Holds the number of a pool, or ends the hold.
pub(super) async fn hold(
    State(admin): AdminState,
    body: Result<Json<NewHold>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(hold) = body?;
    let pool = super::pools::find(&admin.pool_registry, hold.pool.as_deref())?;
    let wanted = match (hold.replicas, hold.seconds) {
        (None, None) => None,
        (Some(replicas), Some(seconds))
            if replicas <= HOLD_REPLICAS_MAX && (1..=HOLD_SECONDS_MAX).contains(&seconds) =>
        {
            Some((replicas, Duration::from_secs(seconds)))
        }
        _ => {
            return Err(ApiError::bad_request(format!(
                "give `replicas` (to {HOLD_REPLICAS_MAX}) and `seconds` (1 to {HOLD_SECONDS_MAX}), or neither of them to end the hold"
            )));
        }
    };
    let status = admin.scaling.status();
    if !status.pools.is_empty() && !status.is_leader {
        let message = "a sibling leads, and this service publishes its numbers: send the hold to each of the siblings";
        return Err(ApiError::new(StatusCode::CONFLICT, "not_leader", message));
    }
    if !admin.scaling.hold(pool.name(), wanted) {
        let message = format!(
            "pool `{}` has no section `scaling` with another mode than `off`",
            pool.name()
        );
        return Err(ApiError::new(StatusCode::CONFLICT, "no_scaling", message));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a body.
pub(super) fn read_body(body: &[u8]) {
    let _ = Json::<NewHold>::from_bytes(body);
}

fn pool_view(name: &str, status: &PoolScalingStatus) -> PoolScalingView {
    let plan = &status.plan;
    let forecasts = plan.forecasts.iter().map(|(model, forecast)| {
        let view = ForecastView {
            point: forecast.point,
            upper: forecast.upper,
        };
        (model.as_ref().to_owned(), view)
    });
    PoolScalingView {
        pool: name.to_owned(),
        mode: status.mode.as_ref().to_owned(),
        desired: status.desired(),
        epoch: plan.epoch,
        reason: plan.reason.as_ref().to_owned(),
        is_held: plan.hold.is_some(),
        ready: plan.ready,
        starting: plan.starting,
        surplus: plan.surplus,
        target: plan.target,
        utilisation: status.utilisation,
        demand_replicas: plan.demand_replicas,
        forecasts: forecasts.collect(),
        model: plan.model.map(|model| model.as_ref().to_owned()),
        forecast_error: plan.forecast_error,
        unmet_replicas: plan.unmet,
        startup_ms: crate::clock::millis(plan.startup),
        waiting: status.waiting,
        drain: plan.drain.clone(),
        undrain: plan.undrain.clone(),
        donate: plan.donate.clone(),
        removal_order: plan.removal_order.clone(),
    }
}

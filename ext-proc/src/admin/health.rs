//! Liveness, readiness and metrics.

use std::fmt;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

use super::AdminState;
use crate::pool::PoolRegistry;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(admin): AdminState) -> Response {
    if *admin.serving.borrow() {
        return Json(json!({ "ready": true, "reason": null })).into_response();
    }
    let reason = not_ready(&admin.pool_registry);
    let reason = reason.unwrap_or_else(|| "the service starts or stops".into());
    let body = Json(json!({ "ready": false, "reason": reason }));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

/// Returns the reason why a starting service waits: the replicas of a pool, or the first probe of a replica.
fn not_ready(pools: &PoolRegistry) -> Option<String> {
    pools.pools().iter().find_map(|pool| {
        if !pool.has_synced() {
            let problem = pool.source_problem();
            let reason = problem
                .as_deref()
                .unwrap_or("their source has not answered");
            let name = pool.name();
            return Some(format!(
                "the replicas of pool `{name}` are not known yet: {reason}"
            ));
        }
        let replica = pool.unprobed()?;
        Some(format!("replica {replica} has not been probed yet"))
    })
}

pub(super) async fn metrics(State(admin): AdminState) -> Response {
    let mut page = String::new();
    let encoded = prometheus_client::encoding::text::encode(&mut page, &admin.registry);
    metrics_response(encoded.map(|()| page))
}

/// The response of a scrape.
pub(crate) fn metrics_response(page: Result<String, fmt::Error>) -> Response {
    match page {
        Ok(page) => ([(header::CONTENT_TYPE, OPENMETRICS)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

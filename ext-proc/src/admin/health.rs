//! Is it alive, can it route, what are its figures.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};

use super::{AdminState, view};
use crate::pool::PoolRegistry;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(admin): AdminState) -> Response {
    let ready = *admin.serving.borrow();
    let why = (!ready).then(|| {
        unknown(&admin.pool_registry).unwrap_or_else(|| "the service starts or stops".into())
    });
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(view::Ready { ready, why })).into_response()
}

/// A pool or a replica of which nothing is known yet: what a service waits for that starts.
fn unknown(pool_registry: &PoolRegistry) -> Option<String> {
    pool_registry.pools().iter().find_map(|pool| {
        if !pool.has_synced() {
            return Some(format!(
                "the replicas of pool `{}` are not known yet: can its name be resolved?",
                pool.name()
            ));
        }
        let new = pool.unprobed()?;
        Some(format!("replica {new} has not been probed yet"))
    })
}

pub(super) async fn metrics(State(admin): AdminState) -> Response {
    let mut page = String::new();
    match prometheus_client::encoding::text::encode(&mut page, &admin.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

//! Liveness and readiness.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::{Api, auth};
use crate::store::Store;

/// Path of liveness: the health of the database.
pub(super) const ALIVE: &str = "/healthz";
/// Path of readiness: whether requests can be served.
pub(super) const READY: &str = "/readyz";

/// The answer to an orchestrator, which needs no key: so it names no host and no file.
pub type HealthPage = (StatusCode, String);

/// The health of the database.
#[must_use]
pub fn health(store: &Store) -> HealthPage {
    match store.problem() {
        Some(problem) => failed(&problem.to_string()),
        None => (StatusCode::OK, "ok\n".to_owned()),
    }
}

pub(super) async fn alive(State(api): State<Arc<Api>>) -> HealthPage {
    health(&api.store)
}

pub(super) async fn ready(State(api): State<Arc<Api>>) -> HealthPage {
    match auth::are_keys_readable(&api).await {
        true => alive(State(api)).await,
        false => failed("the server cannot read its keys"),
    }
}

fn failed(reason: &str) -> HealthPage {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

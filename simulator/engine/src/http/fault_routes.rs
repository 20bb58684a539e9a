//! Fault injection over HTTP: the route that sets faults, the middleware that applies them.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api_error::ApiError;
use super::fault::{Fate, FaultOrder};
use super::replica::Replica;

/// `POST /fault`
/// 400 for a body that is not a [`FaultOrder`].
pub async fn set(
    State(replica): State<Arc<Replica>>,
    body: Bytes,
) -> Result<Json<FaultOrder>, ApiError> {
    let order: FaultOrder = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("not a fault order: {error}"), None))?;
    replica.order(order)?;
    Ok(Json(order))
}

/// Applies the faults to every request.
pub async fn apply(State(replica): State<Arc<Replica>>, request: Request, next: Next) -> Response {
    match replica.faults.fate(request.method(), request.uri().path()) {
        Fate::Pass => next.run(request).await,
        Fate::Hang => core::future::pending().await,
        Fate::Fail(status) => ApiError::server(status, "an injected fault").into_response(),
    }
}

impl Replica {
    /// Applies an order.
    /// 400 when a value is out of its range; no fault changes then.
    pub fn order(&self, order: FaultOrder) -> Result<(), ApiError> {
        self.faults.set(order)?;
        if let Some(factor) = order.slow {
            self.slow_down(factor);
        }
        Ok(())
    }
}

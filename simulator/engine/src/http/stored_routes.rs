//! Routes of stored responses.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::Value;

use super::api_error::ApiError;
use super::replica::Replica;

/// Returns a stored response.
/// 404 where this engine does not have the response.
pub async fn get(
    State(replica): State<Arc<Replica>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(replica.stored.get(&id)?))
}

/// Refuses to cancel a response: all of them are synchronous, as those of vLLM without `background`.
/// 404 where this engine does not have the response, else 400.
pub async fn cancel(
    State(replica): State<Arc<Replica>>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    replica.stored.get(&id)?;
    Err(ApiError::bad_request(
        "Cannot cancel a synchronous response.",
        Some("response_id"),
    ))
}

//! Ids of clients (`x-client-request-id`, as OpenAI's API has it): the server returns an id, and counts the requests that carry it.
//!
//! A load generator learns from the counts whether a request reached engines more often than retries explain.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderName;
use axum::middleware::Next;
use axum::response::Response;

use super::replica::Replica;

/// The header that carries the id.
pub const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");

/// Counts the id of a request, and returns it in the response.
pub async fn count(State(replica): State<Arc<Replica>>, request: Request, next: Next) -> Response {
    let Some(id) = request.headers().get(CLIENT_REQUEST_ID).cloned() else {
        return next.run(request).await;
    };
    if let Ok(id) = id.to_str() {
        replica.received_ids.count(id);
    }
    let mut response = next.run(request).await;
    response.headers_mut().insert(CLIENT_REQUEST_ID, id);
    response
}

/// `GET /debug/requests`: how many requests carried each id.
pub async fn list(State(replica): State<Arc<Replica>>) -> Json<HashMap<String, u32>> {
    Json(replica.received_ids.all())
}

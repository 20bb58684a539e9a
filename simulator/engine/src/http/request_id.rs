//! Request ids: the middleware that assigns them, and their use by handlers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use twox_hash::XxHash3_64;

use super::replica::Replica;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The request id, which [`assign`] has set before a handler runs.
pub fn request_id(headers: &HeaderMap) -> &str {
    headers
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .unwrap_or("unnamed")
}

/// Keeps the request id of the client or assigns a new one, and returns it in the response.
pub async fn assign(
    State(replica): State<Arc<Replica>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request.headers().get(REQUEST_ID).cloned().or_else(|| {
        let count = replica.next_name();
        let random = XxHash3_64::oneshot_with_seed(replica.settings.seed, &count.to_le_bytes());
        HeaderValue::try_from(format!("{random:016x}{count:08x}")).ok()
    });
    let Some(id) = id else {
        return next.run(request).await;
    };
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

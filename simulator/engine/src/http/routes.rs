//! Routes of the server.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use twox_hash::XxHash3_64;

use super::dialect::{Chat, Completions, Messages, Native, Responses};
use super::replica::Replica;
use super::{debug, embeddings, fault, generate, metrics, models};

/// The longest body that is read, bytes. Images inlined by a client make bodies of tens of megabytes.
pub const BODY_BYTES_MAX: usize = 256 << 20;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Everything that one engine serves.
pub fn router(replica: Arc<Replica>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(generate::handle::<Chat>))
        .route("/v1/completions", post(generate::handle::<Completions>))
        .route("/v1/responses", post(generate::handle::<Responses>))
        .route("/v1/messages", post(generate::handle::<Messages>))
        .route("/generate", post(generate::handle::<Native>))
        .route("/v1/embeddings", post(embeddings::handle))
        .route("/v1/models", get(models::list))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/ping", get(|| async { StatusCode::OK }))
        .route("/metrics", get(metrics::page))
        .route("/v1/loads", get(metrics::loads))
        .route("/load", get(metrics::server_load))
        .route("/debug/load", get(debug::load))
        .route("/fault", post(fault::set))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&replica),
            fault::apply,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&replica),
            name_request,
        ))
        .with_state(replica)
}

/// The id that every request has by the time a handler sees it.
#[must_use]
pub fn request_id(headers: &HeaderMap) -> &str {
    headers
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .unwrap_or("unnamed")
}

/// Gives every request an id, its own or a new one, and returns it in the answer.
async fn name_request(
    State(replica): State<Arc<Replica>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request.headers().get(REQUEST_ID).cloned().or_else(|| {
        let count = replica.next_name();
        let draw = XxHash3_64::oneshot_with_seed(replica.settings.seed, &count.to_le_bytes());
        HeaderValue::try_from(format!("{draw:016x}{count:08x}")).ok()
    });
    let Some(id) = id else {
        return next.run(request).await;
    };
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

//! Routes of the server.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};

use super::dialect::{Chat, Completions, Messages, Native, Responses};
use super::replica::Replica;
use super::{
    client_request_id, count_tokens, debug, embeddings, fault_routes, generate, metrics, models,
    request_id, spans, stored_routes,
};

/// Longest body of a request, in bytes. Inlined images make bodies of tens of megabytes.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// The routes of an engine.
pub fn router(replica: Arc<Replica>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(generate::handle::<Chat>))
        .route("/v1/completions", post(generate::handle::<Completions>))
        .route("/v1/responses", post(generate::handle::<Responses>))
        .route("/v1/responses/{id}", get(stored_routes::get))
        .route("/v1/responses/{id}/cancel", post(stored_routes::cancel))
        .route("/v1/messages", post(generate::handle::<Messages>))
        .route("/v1/messages/count_tokens", post(count_tokens::handle))
        .route("/generate", post(generate::handle::<Native>))
        .route("/v1/embeddings", post(embeddings::handle))
        .route("/v1/models", get(models::list))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/ping", get(|| async { StatusCode::OK }))
        .route("/metrics", get(metrics::page))
        .route("/debug/load", get(debug::load))
        .route("/debug/requests", get(client_request_id::list))
        .route("/fault", post(fault_routes::set))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&replica),
            fault_routes::apply,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&replica),
            spans::record,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&replica),
            request_id::assign,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&replica),
            client_request_id::count,
        ))
        .with_state(replica)
}

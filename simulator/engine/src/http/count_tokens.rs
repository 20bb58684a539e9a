//! `/v1/messages/count_tokens`: the length of a prompt of Anthropic's API, without a place in the engine.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::dialect::message_prompts;
use super::generate::read_json;
use super::models;
use super::replica::Replica;

/// Counts the tokens of a request as the messages API would read it.
/// As the messages API has them; `max_tokens` is not needed.
pub async fn handle(
    State(replica): State<Arc<Replica>>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let body = read_json(&body)?;
    let selector = models::select(&replica.settings, &body)?;
    let prompts = message_prompts(&body, &selector)?;
    let tokens: u64 = prompts
        .iter()
        .map(|prompt| u64::from(prompt.tokens()))
        .sum();
    Ok(Json(json!({ "input_tokens": tokens })))
}

//! `/v1/embeddings`: each input goes through the engine as a prefill with one step, then a vector drawn from its digest.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use twox_hash::XxHash3_64;

use super::api_error::ApiError;
use super::dialect::prompts;
use super::generate::{PROMPTS_MAX, read_json};
use super::replica::Replica;
use super::request_id::request_id;
use super::{models, orca};
use crate::model::Request;
use crate::text::Reply;

/// Numbers in a vector.
const DIMENSIONS: u64 = 64;

/// Handles one request.
/// In OpenAI's form, as the generating APIs do.
pub async fn handle(
    State(replica): State<Arc<Replica>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body = read_json(&body)?;
    let selector = models::select(&replica.settings, &body)?;
    let inputs = prompts(&selector, body.get("input"))?;
    if inputs.is_empty() || inputs.len() > PROMPTS_MAX {
        let message = format!("give 1 to {PROMPTS_MAX} inputs");
        return Err(ApiError::bad_request(message, Some("input")));
    }
    let adapter = models::adapter(&replica.settings, &selector);
    let mut guards = Vec::with_capacity(inputs.len());
    for input in inputs {
        let (digest, prompt_tokens) = (input.digest(), input.tokens());
        let blocks = input.blocks(&Reply::new(digest), 0, replica.settings.config.block_tokens);
        let guard = replica.submit(|id| Request {
            id,
            prompt_tokens,
            output_tokens: 1,
            blocks,
            adapter,
            stream_interval_tokens: None,
        });
        guards.push((digest, guard));
    }
    let (mut data, mut tokens) = (Vec::with_capacity(guards.len()), 0_u64);
    for (index, (digest, mut guard)) in guards.into_iter().enumerate() {
        let usage = guard
            .after(u32::MAX)
            .await
            .end
            .ok_or_else(ApiError::gone)??;
        tokens += u64::from(usage.prompt_tokens);
        let vector = vector(&body, digest);
        data.push(json!({"object": "embedding", "index": index, "embedding": vector}));
    }
    let answer = json!({
        "id": format!("embd-{}", request_id(&headers)),
        "object": "list",
        "model": selector.model,
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    let mut response = Json(answer).into_response();
    orca::report(&headers, &replica.stats(), response.headers_mut());
    Ok(response)
}

/// A unit vector that depends on the text alone, as a list or (what the Python client asks for) as base64 of its floats.
fn vector(body: &Value, digest: u64) -> Value {
    let scale = 1.0 / f64::from(u32::try_from(DIMENSIONS).unwrap_or(1)).sqrt();
    let numbers = (0..DIMENSIONS).map(|index| {
        let random = XxHash3_64::oneshot_with_seed(digest, &index.to_le_bytes());
        if random.is_multiple_of(2) {
            scale
        } else {
            -scale
        }
    });
    if body.get("encoding_format").and_then(Value::as_str) != Some("base64") {
        return numbers.collect();
    }
    let bytes = numbers.flat_map(|number| (number as f32).to_le_bytes());
    Value::String(STANDARD.encode(bytes.collect::<Vec<u8>>()))
}

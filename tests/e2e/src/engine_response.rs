//! What a scripted replica says, in the form in which vLLM says it.

use serde_json::{Value, json};

/// How long it takes every prompt to be.
pub const PROMPT_TOKENS: u64 = 8;

/// Whether a request asks for a streamed answer.
pub(crate) fn wants_stream(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body)
        .is_ok_and(|body| body.get("stream").and_then(Value::as_bool) == Some(true))
}

/// A whole answer.
pub(crate) fn completion(cached: bool) -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "one two" }, "finish_reason": "stop" }],
        "usage": usage(cached),
    })
}

/// What the engine counted.
pub(crate) fn usage(cached: bool) -> Value {
    let cached_tokens = if cached { PROMPT_TOKENS } else { 0 };
    json!({
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": 2,
        "total_tokens": PROMPT_TOKENS + 2,
        "prompt_tokens_details": { "cached_tokens": cached_tokens },
    })
}

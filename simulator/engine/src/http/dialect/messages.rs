//! `/v1/messages`: Anthropic's API, which vLLM serves too.

use serde_json::{Value, json};

use super::{Dialect, Job, Meta, Part, limit, named, prompt, render_messages, render_tools, sum};
use crate::http::api_error::ApiError;
use crate::text::{Prompt, RenderedPrompt, Selector};

/// Anthropic's messages.
#[derive(Debug)]
pub struct Messages;

impl Dialect for Messages {
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError> {
        let prompts = message_prompts(body, selector)?;
        let max_tokens = limit(body, "max_tokens")?;
        if max_tokens.is_none() {
            let message = "`max_tokens` is required in this API";
            return Err(ApiError::bad_request(message, Some("max_tokens")));
        }
        Job::new(body, prompts, max_tokens)
    }

    fn whole(meta: &Meta, parts: &[Part]) -> Value {
        let content = parts.iter();
        let content = content.map(|part| json!({"type": "text", "text": part.text}));
        let stop_reason = json!(stop_reason(parts));
        message(meta, content.collect(), stop_reason, usage(parts))
    }

    fn opening(meta: &Meta) -> String {
        let usage = json!({"input_tokens": 0, "output_tokens": 0});
        let message = message(meta, Vec::new(), Value::Null, usage);
        let block = json!({"type": "text", "text": ""});
        named(&json!({"type": "message_start", "message": message}))
            + &named(&json!({"type": "content_block_start", "index": 0, "content_block": block}))
    }

    fn delta(_meta: &Meta, index: usize, text: &str) -> String {
        let delta = json!({"type": "text_delta", "text": text});
        named(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
    }

    fn ending(_meta: &Meta, part: &Part) -> String {
        named(&json!({"type": "content_block_stop", "index": part.index}))
    }

    fn closing(_meta: &Meta, parts: &[Part]) -> String {
        let delta = json!({"stop_reason": stop_reason(parts), "stop_sequence": null});
        named(&json!({"type": "message_delta", "delta": delta, "usage": usage(parts)}))
            + &named(&json!({"type": "message_stop"}))
    }
}

/// Reads the prompt of a request: tools, system prompt, messages.
/// 400 for messages that are missing or of the wrong type.
pub(crate) fn message_prompts(body: &Value, selector: &Selector) -> Result<Vec<Prompt>, ApiError> {
    let mut rendered = RenderedPrompt::default();
    render_tools(&mut rendered, body);
    if let Some(system) = body.get("system").filter(|system| !system.is_null()) {
        rendered.message("system", system);
    }
    render_messages(&mut rendered, body.get("messages"))?;
    Ok(prompt(selector, rendered))
}

fn message(meta: &Meta, content: Vec<Value>, stop_reason: Value, usage: Value) -> Value {
    json!({
        "id": format!("msg_{}", meta.id),
        "type": "message",
        "role": "assistant",
        "model": meta.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": usage,
    })
}

fn stop_reason(parts: &[Part]) -> &'static str {
    if parts.first().is_some_and(|part| part.stopped) {
        "end_turn"
    } else {
        "max_tokens"
    }
}

/// This API counts cached tokens apart from the input.
fn usage(parts: &[Part]) -> Value {
    let sum = sum(parts);
    json!({
        "input_tokens": sum.prompt_tokens - sum.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": sum.cached_tokens,
        "output_tokens": sum.completion_tokens,
    })
}

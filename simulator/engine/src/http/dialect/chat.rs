//! `/v1/chat/completions`.

use serde_json::{Value, json};

use super::{
    Dialect, Job, Meta, Part, data, frame, limit, openai_closing, prompt, render_messages,
    render_tools, single_choice, with_usage,
};
use crate::http::api_error::ApiError;
use crate::text::{RenderedPrompt, Selector};

const ID_PREFIX: &str = "chatcmpl";
const CHUNK: &str = "chat.completion.chunk";

/// OpenAI's chat completions.
#[derive(Debug)]
pub struct Chat;

impl Dialect for Chat {
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError> {
        single_choice(body)?;
        let mut rendered = RenderedPrompt::default();
        render_tools(&mut rendered, body);
        render_messages(&mut rendered, body.get("messages"))?;
        let max_tokens = match limit(body, "max_completion_tokens")? {
            None => limit(body, "max_tokens")?,
            newer => newer,
        };
        Job::new(body, prompt(selector, rendered), max_tokens)
    }

    fn whole(meta: &Meta, parts: &[Part]) -> Value {
        let choices = parts.iter().map(|part| {
            json!({
                "index": part.index,
                "message": {"role": "assistant", "content": part.text, "refusal": null, "tool_calls": []},
                "logprobs": null,
                "finish_reason": part.finish_reason(),
                "stop_reason": null,
            })
        });
        let response = frame(meta, ID_PREFIX, "chat.completion", choices.collect());
        with_usage(response, meta, parts)
    }

    fn opening(meta: &Meta) -> String {
        let role = json!({"role": "assistant", "content": ""});
        chunk(meta, 0, role, None)
    }

    fn delta(meta: &Meta, index: usize, text: &str) -> String {
        chunk(meta, index, json!({"content": text}), None)
    }

    fn ending(meta: &Meta, part: &Part) -> String {
        let reason = Some(part.finish_reason());
        chunk(meta, part.index, json!({"content": ""}), reason)
    }

    fn closing(meta: &Meta, parts: &[Part]) -> String {
        openai_closing(meta, frame(meta, ID_PREFIX, CHUNK, Vec::new()), parts)
    }
}

fn chunk(meta: &Meta, index: usize, delta: Value, finish_reason: Option<&str>) -> String {
    let choice =
        json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
    data(&frame(meta, ID_PREFIX, CHUNK, vec![choice]))
}

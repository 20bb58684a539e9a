//! `/v1/chat/completions`.

use serde_json::{Value, json};

use super::{
    Dialect, Job, Meta, Part, data, flag, include_usage, limit, number, openai_closing, prompt,
    render_messages, render_tools, single_choice, usage,
};
use crate::http::api_error::ApiError;
use crate::text::{RenderedPrompt, Selector};

/// OpenAI's chat completions.
#[derive(Debug)]
pub struct Chat;

impl Dialect for Chat {
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError> {
        single_choice(body)?;
        let mut rendered = RenderedPrompt::default();
        render_tools(&mut rendered, body);
        render_messages(&mut rendered, body.get("messages"))?;
        let newer = limit(body, "max_completion_tokens")?;
        Ok(Job {
            prompts: prompt(selector, rendered),
            max_tokens: if newer.is_some() {
                newer
            } else {
                limit(body, "max_tokens")?
            },
            min_tokens: number(body, "min_tokens")?.unwrap_or(0),
            ignore_eos: flag(body, "ignore_eos")?,
            stream: flag(body, "stream")?,
            include_usage: include_usage(body),
        })
    }

    fn whole(meta: &Meta, parts: &[Part]) -> Value {
        let choices: Vec<Value> = parts
            .iter()
            .map(|part| {
                json!({
                    "index": part.index,
                    "message": {"role": "assistant", "content": part.text, "refusal": null, "tool_calls": []},
                    "logprobs": null,
                    "finish_reason": part.finish_reason(),
                    "stop_reason": null,
                })
            })
            .collect();
        json!({
            "id": format!("chatcmpl-{}", meta.id),
            "object": "chat.completion",
            "created": meta.created,
            "model": meta.model,
            "choices": choices,
            "usage": usage(parts),
        })
    }

    fn opening(meta: &Meta) -> String {
        chunk(
            meta,
            json!({"role": "assistant", "content": ""}),
            0,
            Value::Null,
        )
    }

    fn delta(meta: &Meta, index: usize, text: &str) -> String {
        chunk(meta, json!({"content": text}), index, Value::Null)
    }

    fn ending(meta: &Meta, part: &Part) -> String {
        chunk(
            meta,
            json!({"content": ""}),
            part.index,
            json!(part.finish_reason()),
        )
    }

    fn closing(meta: &Meta, parts: &[Part]) -> String {
        openai_closing(meta, frame(meta, json!([])), parts)
    }
}

fn chunk(meta: &Meta, delta: Value, index: usize, finish_reason: Value) -> String {
    let choices =
        json!([{"index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason}]);
    data(&frame(meta, choices))
}

fn frame(meta: &Meta, choices: Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", meta.id),
        "object": "chat.completion.chunk",
        "created": meta.created,
        "model": meta.model,
        "choices": choices,
    })
}

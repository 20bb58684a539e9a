//! `/v1/responses`.

use serde_json::{Value, json};

use super::{Dialect, Job, Meta, Part, limit, named, prompt, render_tools, sum};
use crate::http::api_error::ApiError;
use crate::http::stored::StoredResponses;
use crate::text::{RenderedPrompt, Selector};

/// OpenAI's responses.
#[derive(Debug)]
pub struct Responses;

impl Dialect for Responses {
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError> {
        let mut rendered = RenderedPrompt::default();
        render_tools(&mut rendered, body);
        if let Some(instructions) = body.get("instructions").filter(|value| !value.is_null()) {
            rendered.message("system", instructions);
        }
        match body.get("input") {
            Some(text @ Value::String(_)) => rendered.message("user", text),
            Some(Value::Array(items)) if !items.is_empty() => {
                items.iter().for_each(|item| item_of(&mut rendered, item))
            }
            _ => {
                return Err(ApiError::bad_request(
                    "`input` must be a string or a list of items",
                    Some("input"),
                ));
            }
        }
        let max_tokens = limit(body, "max_output_tokens")?;
        Job::new(body, prompt(selector, rendered), max_tokens)
    }

    fn complete(stored: &StoredResponses, body: &mut Value) -> Result<(), ApiError> {
        stored.continue_conversation(body)
    }

    fn keep(stored: &StoredResponses, body: &Value, meta: &Meta, parts: &[Part]) {
        stored.keep(body, Self::whole(meta, parts));
    }

    fn whole(meta: &Meta, parts: &[Part]) -> Value {
        let sum = sum(parts);
        let output: Vec<Value> = parts.iter().map(|part| message(meta, part)).collect();
        let (status, details) = if parts.iter().all(|part| part.stopped) {
            ("completed", Value::Null)
        } else {
            ("incomplete", json!({"reason": "max_output_tokens"}))
        };
        json!({
            "id": id(meta),
            "object": "response",
            "created_at": meta.created,
            "status": status,
            "error": null,
            "incomplete_details": details,
            "model": meta.model,
            "output": output,
            "parallel_tool_calls": true,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": sum.prompt_tokens,
                "input_tokens_details": {"cached_tokens": sum.cached_tokens},
                "output_tokens": sum.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": u64::from(sum.prompt_tokens) + u64::from(sum.completion_tokens),
            },
        })
    }

    fn opening(meta: &Meta) -> String {
        let response = json!({"id": id(meta), "object": "response", "created_at": meta.created, "status": "in_progress",
            "model": meta.model, "output": []});
        let item = json!({"id": item_id(meta), "type": "message", "role": "assistant", "status": "in_progress", "content": []});
        let part = json!({"type": "output_text", "text": "", "annotations": []});
        named(&json!({"type": "response.created", "response": response}))
            + &item_event("added", item)
            + &part_event(meta, "content_part.added", "part", part)
    }

    fn delta(meta: &Meta, _index: usize, text: &str) -> String {
        part_event(meta, "output_text.delta", "delta", json!(text))
    }

    fn ending(meta: &Meta, part: &Part) -> String {
        part_event(meta, "output_text.done", "text", json!(part.text))
            + &item_event("done", message(meta, part))
    }

    fn closing(meta: &Meta, parts: &[Part]) -> String {
        let is_complete = parts.iter().all(|part| part.stopped);
        let name = if is_complete {
            "completed"
        } else {
            "incomplete"
        };
        named(&json!({"type": format!("response.{name}"), "response": Self::whole(meta, parts)}))
    }
}

/// An event about the output item.
fn item_event(name: &str, item: Value) -> String {
    let name = format!("response.output_item.{name}");
    named(&json!({"type": name, "output_index": 0, "item": item}))
}

/// An event about the text of the output item; `key` names its content.
fn part_event(meta: &Meta, name: &str, key: &str, content: Value) -> String {
    let name = format!("response.{name}");
    named(
        &json!({"type": name, "item_id": item_id(meta), "output_index": 0, "content_index": 0, key: content}),
    )
}

/// An input item: a message, or the call and the result of a tool.
fn item_of(rendered: &mut RenderedPrompt, item: &Value) {
    match (
        item.get("role").and_then(Value::as_str),
        item.get("content"),
    ) {
        (Some(role), Some(content)) => rendered.message(role, content),
        _ => {
            rendered.open("tool");
            rendered.json(item);
            rendered.close();
        }
    }
}

fn message(meta: &Meta, part: &Part) -> Value {
    json!({
        "id": item_id(meta),
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": part.text, "annotations": []}],
    })
}

fn id(meta: &Meta) -> String {
    format!("resp_{}", meta.id)
}

fn item_id(meta: &Meta) -> String {
    format!("msg_{}", meta.id)
}

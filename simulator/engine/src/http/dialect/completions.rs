//! `/v1/completions`.

use serde_json::{Value, json};

use super::{
    Dialect, Job, Meta, Part, data, flag, include_usage, limit, number, openai_closing,
    single_choice, with_usage,
};
use crate::http::api_error::ApiError;
use crate::text::{Prompt, RenderedPrompt, Selector};

/// Tokens of a reply when the request does not say: OpenAI's and vLLM's default for this API.
const MAX_TOKENS_DEFAULT: u32 = 16;

/// OpenAI's plain completions.
#[derive(Debug)]
pub struct Completions;

impl Dialect for Completions {
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError> {
        single_choice(body)?;
        Ok(Job {
            prompts: prompts(selector, body.get("prompt"))?,
            max_tokens: limit(body, "max_tokens")?.or(Some(MAX_TOKENS_DEFAULT)),
            min_tokens: number(body, "min_tokens")?.unwrap_or(0),
            ignore_eos: flag(body, "ignore_eos")?,
            stream: flag(body, "stream")?,
            include_usage: include_usage(body),
        })
    }

    fn whole(meta: &Meta, parts: &[Part]) -> Value {
        let choices: Vec<Value> = parts
            .iter()
            .map(|part| choice(part.index, &part.text, json!(part.finish_reason())))
            .collect();
        with_usage(frame(meta, json!(choices)), parts)
    }

    fn opening(_meta: &Meta) -> String {
        String::new()
    }

    fn delta(meta: &Meta, index: usize, text: &str) -> String {
        data(&frame(meta, json!([choice(index, text, Value::Null)])))
    }

    fn ending(meta: &Meta, part: &Part) -> String {
        data(&frame(
            meta,
            json!([choice(part.index, "", json!(part.finish_reason()))]),
        ))
    }

    fn closing(meta: &Meta, parts: &[Part]) -> String {
        openai_closing(meta, frame(meta, json!([])), parts)
    }
}

/// A string, a list of strings, a list of token ids, or a list of such lists. Also what embeddings take as input.
pub(crate) fn prompts(
    selector: &Selector,
    prompt: Option<&Value>,
) -> Result<Vec<Prompt>, ApiError> {
    let wrong = || {
        let message = "the prompt must be a string, a list of strings, a list of token ids, or a list of lists of token ids";
        ApiError::bad_request(message, Some("prompt"))
    };
    match prompt {
        Some(Value::String(text)) => Ok(vec![of_text(selector, text)]),
        Some(Value::Array(list)) if list.iter().all(Value::is_u64) && !list.is_empty() => {
            Ok(vec![of_ids(selector, list)])
        }
        Some(Value::Array(list)) => list
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(of_text(selector, text)),
                Value::Array(ids) if ids.iter().all(Value::is_u64) => Ok(of_ids(selector, ids)),
                _ => Err(wrong()),
            })
            .collect(),
        _ => Err(wrong()),
    }
}

fn of_text(selector: &Selector, text: &str) -> Prompt {
    let mut rendered = RenderedPrompt::default();
    rendered.text(text);
    Prompt::new(selector, rendered)
}

fn of_ids(selector: &Selector, ids: &[Value]) -> Prompt {
    let ids: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
    Prompt::from_ids(selector, &ids)
}

fn choice(index: usize, text: &str, finish_reason: Value) -> Value {
    json!({"index": index, "text": text, "logprobs": null, "finish_reason": finish_reason, "stop_reason": null})
}

fn frame(meta: &Meta, choices: Value) -> Value {
    json!({
        "id": format!("cmpl-{}", meta.id),
        "object": "text_completion",
        "created": meta.created,
        "model": meta.model,
        "choices": choices,
    })
}

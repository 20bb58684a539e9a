//! `/v1/completions`.

use serde_json::{Value, json};

use super::{
    Dialect, Job, Meta, Part, data, frame, limit, openai_closing, single_choice, with_usage,
};
use crate::http::api_error::ApiError;
use crate::text::{Prompt, RenderedPrompt, Selector};

/// Default bound on the tokens of a reply, as OpenAI's and vLLM's for this API.
const MAX_TOKENS_DEFAULT: u32 = 16;

/// OpenAI's plain completions.
#[derive(Debug)]
pub struct Completions;

impl Dialect for Completions {
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError> {
        single_choice(body)?;
        let prompts = prompts(selector, body.get("prompt"))?;
        let max_tokens = limit(body, "max_tokens")?.or(Some(MAX_TOKENS_DEFAULT));
        Job::new(body, prompts, max_tokens)
    }

    fn whole(meta: &Meta, parts: &[Part]) -> Value {
        let choices = parts
            .iter()
            .map(|part| choice(part.index, &part.text, Some(part.finish_reason())));
        with_usage(completion(meta, choices.collect()), meta, parts)
    }

    fn delta(meta: &Meta, index: usize, text: &str) -> String {
        data(&completion(meta, vec![choice(index, text, None)]))
    }

    fn ending(meta: &Meta, part: &Part) -> String {
        let last = choice(part.index, "", Some(part.finish_reason()));
        data(&completion(meta, vec![last]))
    }

    fn closing(meta: &Meta, parts: &[Part]) -> String {
        openai_closing(meta, completion(meta, Vec::new()), parts)
    }
}

/// Reads a string, a list of strings, a list of token ids, or a list of such lists. Embeddings have the same input.
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

fn choice(index: usize, text: &str, finish_reason: Option<&str>) -> Value {
    json!({"index": index, "text": text, "logprobs": null, "finish_reason": finish_reason, "stop_reason": null})
}

fn completion(meta: &Meta, choices: Vec<Value>) -> Value {
    frame(meta, "cmpl", "text_completion", choices)
}

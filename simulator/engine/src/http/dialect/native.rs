//! `/generate`: SGLang's own API.

use serde_json::{Value, json};

use super::completions::prompts;
use super::{DONE, Dialect, Job, Meta, Part, data, flag, limit, number};
use crate::http::api_error::ApiError;
use crate::text::Selector;

/// Default bound on the tokens of a reply, as SGLang's.
const MAX_TOKENS_DEFAULT: u32 = 128;

/// SGLang's generate.
#[derive(Debug)]
pub struct Native;

impl Dialect for Native {
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError> {
        let none = Value::Null;
        let sampling = body.get("sampling_params").unwrap_or(&none);
        let prompt = body.get("text").or_else(|| body.get("input_ids"));
        let max_tokens = limit(sampling, "max_new_tokens")?.or(Some(MAX_TOKENS_DEFAULT));
        Ok(Job {
            min_tokens: number(sampling, "min_new_tokens")?.unwrap_or(0),
            ignore_eos: flag(sampling, "ignore_eos")?,
            ..Job::new(body, prompts(selector, prompt)?, max_tokens)?
        })
    }

    fn whole(meta: &Meta, parts: &[Part]) -> Value {
        match parts {
            [part] => answer(meta, part),
            _ => parts.iter().map(|part| answer(meta, part)).collect(),
        }
    }

    fn delta(meta: &Meta, index: usize, text: &str) -> String {
        let meta_info = json!({"id": meta.id, "finish_reason": null});
        data(&json!({"text": text, "index": index, "meta_info": meta_info}))
    }

    fn ending(meta: &Meta, part: &Part) -> String {
        let mut value = answer(meta, part);
        if let Some(object) = value.as_object_mut() {
            object.insert("index".to_owned(), json!(part.index));
        }
        data(&value)
    }

    fn closing(_meta: &Meta, _parts: &[Part]) -> String {
        DONE.to_owned()
    }
}

fn answer(meta: &Meta, part: &Part) -> Value {
    json!({
        "text": part.text,
        "meta_info": {
            "id": meta.id,
            "finish_reason": {"type": part.finish_reason()},
            "prompt_tokens": part.usage.prompt_tokens,
            "cached_tokens": part.usage.cached_tokens,
            "completion_tokens": part.usage.completion_tokens,
        },
    })
}

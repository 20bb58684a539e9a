//! The generating APIs: each reads its own requests and writes its own responses; they share the handler that runs them.

mod chat;
mod completions;
mod messages;
mod native;
mod responses;

use serde_json::{Value, json};

pub use chat::Chat;
pub use completions::Completions;
pub(crate) use completions::prompts;
pub use messages::Messages;
pub(crate) use messages::message_prompts;
pub use native::Native;
pub use responses::Responses;

use super::api_error::ApiError;
use super::stored::StoredResponses;
use crate::model::Usage;
use crate::text::{Prompt, RenderedPrompt, Selector};

/// An API: reads its requests and writes its responses.
pub trait Dialect: 'static {
    /// Reads a request.
    /// 400 for members that are missing or of the wrong type.
    fn read(body: &Value, selector: &Selector) -> Result<Job, ApiError>;

    /// Completes a request with what the engine has stored.
    /// 404 where the engine does not have what the request names.
    fn complete(_stored: &StoredResponses, _body: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// Keeps what later requests may name.
    fn keep(_stored: &StoredResponses, _body: &Value, _meta: &Meta, _parts: &[Part]) {}

    /// A whole response.
    fn whole(meta: &Meta, parts: &[Part]) -> Value;

    /// Beginning of a stream, sent together with the first token.
    fn opening(_meta: &Meta) -> String {
        String::new()
    }

    /// More text of the reply to the prompt at `index`.
    fn delta(meta: &Meta, index: usize, text: &str) -> String;

    /// The end of one prompt's reply.
    fn ending(meta: &Meta, part: &Part) -> String;

    /// End of a stream.
    fn closing(meta: &Meta, parts: &[Part]) -> String;
}

/// A parsed generation request.
#[derive(Debug)]
pub struct Job {
    /// Prompts; each gets a reply of its own.
    pub prompts: Vec<Prompt>,
    /// Bound on the tokens of a reply.
    pub max_tokens: Option<u32>,
    /// Tokens that a reply has at least.
    pub min_tokens: u32,
    /// Whether the reply runs up to the limit.
    pub ignore_eos: bool,
    /// Whether the response is a stream.
    pub stream: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
}

impl Job {
    /// Reads the members that all APIs share.
    fn new(body: &Value, prompts: Vec<Prompt>, max_tokens: Option<u32>) -> Result<Self, ApiError> {
        let include_usage = body.pointer("/stream_options/include_usage");
        Ok(Self {
            prompts,
            max_tokens,
            min_tokens: number(body, "min_tokens")?.unwrap_or(0),
            ignore_eos: flag(body, "ignore_eos")?,
            stream: flag(body, "stream")?,
            include_usage: include_usage == Some(&Value::Bool(true)),
        })
    }
}

/// When the usage of chat and completions tells the hits of the prefix cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CachedTokens {
    /// In every answer.
    #[default]
    Always,
    /// When there are any: SGLang with `--enable-cache-report`.
    Found,
    /// Never: vLLM and SGLang without flags.
    Never,
}

/// Fields that every chunk of a response repeats.
#[derive(Debug, Clone)]
pub struct Meta {
    /// Request id without the prefix of the API.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Requested model.
    pub model: String,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
    /// When the usage tells the hits of the prefix cache.
    pub cached_tokens: CachedTokens,
}

/// A finished reply to one prompt.
#[derive(Debug, Clone)]
pub struct Part {
    /// Index of the prompt.
    pub index: usize,
    /// Text.
    pub text: String,
    /// Tokens that the engine counted.
    pub usage: Usage,
    /// Whether the generation ended by itself and not at a limit.
    pub stopped: bool,
}

impl Part {
    /// OpenAI's reason for the end.
    pub fn finish_reason(&self) -> &'static str {
        if self.stopped { "stop" } else { "length" }
    }
}

/// Server-sent event without a name.
fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// Server-sent event that is named by its `type`.
fn named(event: &Value) -> String {
    let name = event.get("type").and_then(Value::as_str);
    format!("event: {}\ndata: {event}\n\n", name.unwrap_or_default())
}

/// The closing line of OpenAI's streams.
const DONE: &str = "data: [DONE]\n\n";

/// Sums over all replies of a request.
fn sum(parts: &[Part]) -> Usage {
    parts.iter().fold(Usage::default(), |sum, part| Usage {
        prompt_tokens: sum.prompt_tokens.saturating_add(part.usage.prompt_tokens),
        cached_tokens: sum.cached_tokens.saturating_add(part.usage.cached_tokens),
        completion_tokens: sum
            .completion_tokens
            .saturating_add(part.usage.completion_tokens),
        ..sum
    })
}

/// OpenAI's usage object, with the hits of the prefix cache if the engine tells them.
fn usage(meta: &Meta, parts: &[Part]) -> Value {
    let sum = sum(parts);
    let details = match meta.cached_tokens {
        CachedTokens::Never => None,
        CachedTokens::Found if sum.cached_tokens == 0 => None,
        _ => Some(json!({"cached_tokens": sum.cached_tokens})),
    };
    json!({
        "prompt_tokens": sum.prompt_tokens,
        "total_tokens": u64::from(sum.prompt_tokens) + u64::from(sum.completion_tokens),
        "completion_tokens": sum.completion_tokens,
        "prompt_tokens_details": details,
    })
}

/// A response of OpenAI's completions, or a chunk of it.
fn frame(meta: &Meta, id_prefix: &str, object: &str, choices: Vec<Value>) -> Value {
    json!({
        "id": format!("{id_prefix}-{}", meta.id),
        "object": object,
        "created": meta.created,
        "model": meta.model,
        "choices": choices,
    })
}

/// Adds the usage to a response or a chunk.
fn with_usage(mut value: Value, meta: &Meta, parts: &[Part]) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("usage".to_owned(), usage(meta, parts));
    }
    value
}

/// The end of OpenAI's streams: a last chunk with the usage, if the client wants it, and the closing line.
fn openai_closing(meta: &Meta, frame: Value, parts: &[Part]) -> String {
    let usage = meta
        .include_usage
        .then(|| data(&with_usage(frame, meta, parts)));
    usage.unwrap_or_default() + DONE
}

/// A member that must be a whole number if it is there.
fn number(body: &Value, name: &'static str) -> Result<Option<u32>, ApiError> {
    let Some(value) = body.get(name).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let message = || format!("`{name}` must be a whole number, not {value}");
    let number = number.ok_or_else(|| ApiError::bad_request(message(), Some(name)))?;
    Ok(Some(number))
}

/// A limit of tokens: at least one.
fn limit(body: &Value, name: &'static str) -> Result<Option<u32>, ApiError> {
    match number(body, name)? {
        Some(0) => Err(ApiError::bad_request(
            format!("`{name}` must be at least 1"),
            Some(name),
        )),
        other => Ok(other),
    }
}

/// A member that must be a truth value if it is there.
fn flag(body: &Value, name: &'static str) -> Result<bool, ApiError> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(ApiError::bad_request(
            format!("`{name}` must be true or false, not {other}"),
            Some(name),
        )),
    }
}

/// Rejects requests for several choices; this engine makes a single choice.
fn single_choice(body: &Value) -> Result<(), ApiError> {
    match number(body, "n")? {
        None | Some(1) => Ok(()),
        Some(_) => Err(ApiError::bad_request(
            "this engine makes one choice per prompt; leave out `n` or set it to 1",
            Some("n"),
        )),
    }
}

/// Renders the messages of a conversation; system messages stay where they are.
fn render_messages(
    rendered: &mut RenderedPrompt,
    messages: Option<&Value>,
) -> Result<(), ApiError> {
    let wrong = |message: &str| ApiError::bad_request(message, Some("messages"));
    let messages = messages.and_then(Value::as_array);
    let messages = messages
        .filter(|messages| !messages.is_empty())
        .ok_or_else(|| wrong("`messages` must be a list with at least one message"))?;
    for message in messages {
        let role = message.get("role").and_then(Value::as_str);
        let role = role.ok_or_else(|| wrong("each message needs a `role`"))?;
        rendered.open(role);
        rendered.content(message.get("content").unwrap_or(&Value::Null));
        if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
            rendered.json(calls);
        }
        rendered.close();
    }
    Ok(())
}

/// Renders tool definitions, which come before everything else.
fn render_tools(rendered: &mut RenderedPrompt, body: &Value) {
    let has_tools = |tools: &&Value| tools.as_array().is_some_and(|list| !list.is_empty());
    if let Some(tools) = body.get("tools").filter(has_tools) {
        rendered.open("tools");
        rendered.json(tools);
        rendered.close();
    }
}

/// Finishes a conversation: the model speaks next.
fn prompt(selector: &Selector, mut rendered: RenderedPrompt) -> Vec<Prompt> {
    rendered.open("assistant");
    vec![Prompt::new(selector, rendered)]
}

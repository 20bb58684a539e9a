//! What the members of a request mean, a table for each request shape.
//!
//! Tables rather than parsers: every shape is walked by the same code, so a shape cannot have a bug of its own, and a new
//! member is one line. What is in no table does not reach the engine's cache: sampling parameters, stop words, user names.

mod chat;
mod completions;
mod embeddings;
mod generate;
pub(crate) mod item;
mod messages;
mod responses;

use crate::Api;
use crate::sections::Section;

/// What a member of a request means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// A section of the prompt, and how to read it.
    Prompt(Section, Reading),
    /// It selects the cache: nothing is shared between two values of it.
    Selects(Selector),
    /// The most output tokens.
    OutputMax,
    /// Whether the answer is to be streamed.
    Stream,
    /// An object with such members.
    Holds(&'static [(&'static str, Field)]),
}

/// How to read a section of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As the JSON value that it is: engines render it as JSON.
    Json,
    /// As text, or a list of parts.
    Parts,
    /// As a list of messages, or the text of one.
    Messages,
    /// As text or token ids, or a list of those.
    Texts,
    /// As images, audio or video: the address or the data of each.
    Media,
}

/// What selects the cache, besides the API's own state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// The model, or the LoRA adapter that vLLM serves under a model's name.
    Model,
    /// A LoRA adapter named beside the model.
    Adapter,
    /// A salt that separates the caches of tenants.
    Salt,
    /// What the engine puts in front by itself: an earlier response, a stored conversation.
    Previous,
    /// A template in place of the model's own, or a stored prompt.
    Template,
}

/// How many selectors there are.
pub(crate) const SELECTORS: usize = Selector::Template as usize + 1;

/// What every shape has.
const COMMON: &[(&str, Field)] = &[
    ("model", Field::Selects(Selector::Model)),
    ("lora_path", Field::Selects(Selector::Adapter)),
    ("cache_salt", Field::Selects(Selector::Salt)),
    ("chat_template", Field::Selects(Selector::Template)),
    ("stream", Field::Stream),
];

/// What a member of a request's own object means; `None` when it does not matter here.
pub(crate) fn field(api: Api, name: &[u8]) -> Option<Field> {
    let own = match api {
        Api::ChatCompletions => chat::MEMBERS,
        Api::Completions => completions::MEMBERS,
        Api::Responses => responses::MEMBERS,
        Api::Embeddings => embeddings::MEMBERS,
        Api::Messages => messages::MEMBERS,
        Api::Generate => generate::MEMBERS,
    };
    find(own, name).or_else(|| find(COMMON, name))
}

/// What a member means by this table.
pub(crate) fn find(table: &[(&str, Field)], name: &[u8]) -> Option<Field> {
    table
        .iter()
        .find(|(known, _)| known.as_bytes() == name)
        .map(|(_, field)| *field)
}

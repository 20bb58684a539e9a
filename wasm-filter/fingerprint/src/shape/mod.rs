//! The members of a request that matter, as one table for each API.
//!
//! Tables rather than parsers: one visitor reads every API, so no API can have a bug of its own, and a new member is one
//! line. A member in no table does not affect the engine's cache: sampling parameters, stop words, user names.

pub(crate) mod message;
mod mode;

pub(crate) use mode::{ATTRIBUTES, Attribute, CACHE_KEYS, CacheKey, Mode};

use crate::Api;
use crate::sections::Section::{self, Audio, Content, Images, Suffix, System, Tools, Video};
use Mode::{Json, Media, Messages, OutputMax, Parts, Stream, Texts};

pub(crate) type Members = [(&'static str, Member)];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// The section of the prompt that the member fills, if any.
    pub(crate) section: Option<Section>,
    pub(crate) mode: Mode,
}

const fn prompt(section: Section, mode: Mode) -> Member {
    Member {
        section: Some(section),
        mode,
    }
}

const fn value(mode: Mode) -> Member {
    Member {
        section: None,
        mode,
    }
}

const fn cache_key(key: CacheKey) -> Member {
    value(Mode::CacheKey(key))
}

/// Members of every API.
const COMMON: &Members = &[
    ("model", cache_key(CacheKey::Model)),
    ("lora_path", cache_key(CacheKey::Adapter)),
    ("cache_salt", cache_key(CacheKey::Salt)),
    ("chat_template", cache_key(CacheKey::Template)),
    ("stream", value(Stream)),
];

/// OpenAI `/v1/chat/completions`, with the additions of vLLM and SGLang.
const CHAT: &Members = &[
    ("messages", prompt(Content, Messages)),
    ("tools", prompt(Tools, Json)),
    ("functions", prompt(Tools, Json)),
    // vLLM's; templates render it before the messages.
    ("documents", prompt(System, Json)),
    ("max_completion_tokens", value(OutputMax)),
    // The older name of `max_completion_tokens`.
    ("max_tokens", value(OutputMax)),
];

/// OpenAI `/v1/completions`: text, token ids, or a list of either.
const COMPLETIONS: &Members = &[
    ("prompt", prompt(Content, Texts)),
    ("suffix", prompt(Suffix, Parts)),
    ("max_tokens", value(OutputMax)),
];

/// OpenAI `/v1/responses`.
///
/// `previous_response_id` and `conversation` make the server prepend text that the request does not contain. The filter
/// cannot know that text, so two values share no prefix. The session key, usually `conversation` too, keeps the turns
/// together.
const RESPONSES: &Members = &[
    ("input", prompt(Content, Messages)),
    ("instructions", prompt(System, Parts)),
    ("tools", prompt(Tools, Json)),
    ("previous_response_id", cache_key(CacheKey::Previous)),
    ("conversation", cache_key(CacheKey::Previous)),
    ("prompt", cache_key(CacheKey::Template)),
    ("max_output_tokens", value(OutputMax)),
];

/// OpenAI `/v1/embeddings`: the input of completions, or vLLM's chat form.
const EMBEDDINGS: &Members = &[
    ("input", prompt(Content, Texts)),
    ("messages", prompt(Content, Messages)),
];

/// Anthropic `/v1/messages`.
const ANTHROPIC: &Members = &[
    ("messages", prompt(Content, Messages)),
    ("system", prompt(System, Parts)),
    ("tools", prompt(Tools, Json)),
    ("max_tokens", value(OutputMax)),
];

/// `/generate` of SGLang and of text-generation-inference.
///
/// Engines render images where placeholders in the text say. Here images come last, so that prompts with a common
/// instruction and different images share the instruction.
const GENERATE: &Members = &[
    ("text", prompt(Content, Texts)),
    ("input_ids", prompt(Content, Texts)),
    ("inputs", prompt(Content, Texts)),
    ("image_data", prompt(Images, Media)),
    ("audio_data", prompt(Audio, Media)),
    ("video_data", prompt(Video, Media)),
    ("extra_key", cache_key(CacheKey::Salt)),
    ("sampling_params", value(Mode::Object(SAMPLING_PARAMS))),
    ("parameters", value(Mode::Object(PARAMETERS))),
];

const SAMPLING_PARAMS: &Members = &[("max_new_tokens", value(OutputMax))];

const PARAMETERS: &Members = &[
    ("max_new_tokens", value(OutputMax)),
    ("adapter_id", cache_key(CacheKey::Adapter)),
];

/// The member of a request of this API with this name; `None` when the member does not matter.
pub(crate) fn request_member(api: Api, name: &[u8]) -> Option<Member> {
    let own = match api {
        Api::ChatCompletions => CHAT,
        Api::Completions => COMPLETIONS,
        Api::Responses => RESPONSES,
        Api::Embeddings => EMBEDDINGS,
        Api::Messages => ANTHROPIC,
        Api::Generate => GENERATE,
    };
    find(own, name).or_else(|| find(COMMON, name))
}

pub(crate) fn find(members: &Members, name: &[u8]) -> Option<Member> {
    members
        .iter()
        .find(|(known, _)| known.as_bytes() == name)
        .map(|(_, member)| *member)
}

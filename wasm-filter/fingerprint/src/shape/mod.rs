//! The members of a request that matter, as one table for each API.
//!
//! Tables rather than parsers: one visitor reads every API, so no API can have a bug of its own, and a new member is one
//! line. A member in no table does not affect the engine's cache: sampling parameters, stop words, user names.

pub(crate) mod message;
mod mode;

pub(crate) use mode::{ATTRIBUTES, Attribute, CACHE_KEYS, CacheKey, Mode};

use crate::Api;
use crate::sections::Section::{self, Audio, Content, Images, Suffix, System, Tools, Video};
use Mode::{Json, Media, Messages, OutputMax, Parts, RenderOption, Stream, Texts};

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

const fn option() -> Member {
    value(RenderOption)
}

/// Members of every API.
///
/// The options change how engines render a prompt, some of them from its first token on. `add_generation_prompt` and
/// `continue_final_message` are no options here, since they change only the end of a prompt. `tool_choice` is none either, since
/// vLLM and llama.cpp render the same prompt for every value (SGLang drops tools for some: one corrected prediction).
const COMMON: &Members = &[
    ("model", cache_key(CacheKey::Model)),
    ("lora_path", cache_key(CacheKey::Adapter)),
    ("cache_salt", cache_key(CacheKey::Salt)),
    // vLLM, SGLang, llama.cpp.
    ("chat_template", cache_key(CacheKey::Template)),
    ("chat_template_kwargs", option()),
    // Templates of gpt-oss, DeepSeek, Qwen and GLM; Anthropic's API.
    ("reasoning_effort", option()),
    ("reasoning", option()),
    ("thinking", option()),
    ("enable_thinking", option()),
    // text-generation-inference.
    ("tool_prompt", option()),
    // vLLM.
    ("truncate_prompt_tokens", option()),
    ("truncation_side", option()),
    ("truncation", option()),
    ("add_special_tokens", option()),
    // vLLM, SGLang.
    ("mm_processor_kwargs", option()),
    ("media_io_kwargs", option()),
    ("prompt_embeds", option()),
    ("input_embeds", option()),
];
/// The first place of [`COMMON`]; the members of an API have the places before.
const COMMON_PLACE: u32 = 32;

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
    ("stream", value(Stream)),
];

/// OpenAI `/v1/completions`: text, token ids, or a list of either.
const COMPLETIONS: &Members = &[
    ("prompt", prompt(Content, Texts)),
    ("suffix", prompt(Suffix, Parts)),
    ("max_tokens", value(OutputMax)),
    ("stream", value(Stream)),
];

/// OpenAI `/v1/responses`.
///
/// `previous_response_id` and `conversation` make the server prepend text that the request does not contain. The filter
/// cannot know that text, so two values share no prefix. A request goes to the replica that has its previous response
/// ([`crate::stored_response`]); the session key, usually `conversation` too, keeps the other turns together.
const RESPONSES: &Members = &[
    ("input", prompt(Content, Messages)),
    ("instructions", prompt(System, Parts)),
    ("tools", prompt(Tools, Json)),
    ("previous_response_id", cache_key(CacheKey::Previous)),
    ("conversation", cache_key(CacheKey::Previous)),
    ("prompt", cache_key(CacheKey::Template)),
    ("max_output_tokens", value(OutputMax)),
    ("stream", value(Stream)),
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
    ("stream", value(Stream)),
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
    ("stream", value(Stream)),
];

const SAMPLING_PARAMS: &Members = &[("max_new_tokens", value(OutputMax))];

const PARAMETERS: &Members = &[
    ("max_new_tokens", value(OutputMax)),
    ("adapter_id", cache_key(CacheKey::Adapter)),
    ("truncate", option()),
    ("add_special_tokens", option()),
];

/// The member of a request of this API with this name and its place, below 64; `None` when the member does not matter.
pub(crate) fn request_member(api: Api, name: &[u8]) -> Option<(u32, Member)> {
    let own = match api {
        Api::ChatCompletions => CHAT,
        Api::Completions => COMPLETIONS,
        Api::Responses => RESPONSES,
        Api::Embeddings => EMBEDDINGS,
        Api::Messages => ANTHROPIC,
        Api::Generate => GENERATE,
    };
    find(own, name)
        .or_else(|| find(COMMON, name).map(|(place, member)| (COMMON_PLACE + place, member)))
}

/// The member with this name and its place in the table.
pub(crate) fn find(members: &Members, name: &[u8]) -> Option<(u32, Member)> {
    (0..)
        .zip(members)
        .find(|(_, (known, _))| known.as_bytes() == name)
        .map(|(place, (_, member))| (place, *member))
}

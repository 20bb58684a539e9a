//! The ways in which the extractor reads a JSON value.

use super::Members;
use crate::json::Container;

/// The way in which a value is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// The value does not matter.
    Skip,
    Request,
    Object(&'static Members),
    /// A JSON value that engines render as JSON.
    Json,
    /// Text, or a list of parts.
    Parts,
    /// A list of messages, or the text of one message.
    Messages,
    Message,
    /// Text, token ids, or a list of either.
    Texts,
    /// Images, audio or video: the address or the data of each.
    Media,
    CacheKey(CacheKey),
    /// A value that changes how the prompt renders, read as JSON.
    RenderOption,
    /// A second member that states the same section of the prompt. It must be empty.
    Excess,
    Attribute(Attribute),
    /// The limit of output tokens.
    OutputMax,
    Stream,
}

/// A value on which the engine's prefix cache depends besides the text: two values share no cached prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheKey {
    /// The model, or the LoRA adapter that vLLM serves under a model's name.
    Model,
    /// A LoRA adapter named beside the model.
    Adapter,
    /// A salt that separates the caches of tenants.
    Salt,
    /// Text that the server prepends: an earlier response, a stored conversation.
    Previous,
    /// A template that replaces the model's own, or a stored prompt.
    Template,
}

pub(crate) const CACHE_KEYS: usize = CacheKey::Template as usize + 1;

/// A member that identifies the author of a message or the call that the message answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Role,
    Name,
    /// `tool_call_id`, `call_id`
    Call,
}

pub(crate) const ATTRIBUTES: usize = Attribute::Call as usize + 1;

impl Mode {
    /// The mode of an object or array in the position of a value of this mode.
    pub(crate) fn of_container(self, kind: Container) -> Self {
        match (self, kind) {
            (Self::Messages, Container::Object) => Self::Message,
            (Self::OutputMax | Self::Stream | Self::Attribute(_), _)
            | (Self::Message, Container::Array) => Self::Skip,
            (mode, _) => mode,
        }
    }

    /// Whether an object of this mode may have members with any name.
    pub(crate) fn has_any_names(self) -> bool {
        matches!(
            self,
            Self::Json
                | Self::Message
                | Self::Parts
                | Self::Texts
                | Self::Media
                | Self::CacheKey(_)
                | Self::RenderOption
        )
    }

    pub(crate) fn of_element(self) -> Self {
        match self {
            Self::Messages => Self::Message,
            Self::Json
            | Self::Parts
            | Self::Texts
            | Self::Media
            | Self::CacheKey(_)
            | Self::RenderOption
            | Self::Excess => self,
            Self::Skip
            | Self::Request
            | Self::Object(_)
            | Self::Message
            | Self::Attribute(_)
            | Self::OutputMax
            | Self::Stream => Self::Skip,
        }
    }
}

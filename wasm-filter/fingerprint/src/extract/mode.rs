//! How a value is read, by where it stands.

use crate::json::Kind;
use crate::shape::item::Trailer;
use crate::shape::{Field, Reading, Selector};

/// How a value is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// Not at all.
    Skip,
    /// The request itself.
    Request,
    /// An object with these members.
    Holds(&'static [(&'static str, Field)]),
    /// As [`Reading::Json`].
    Json,
    /// As [`Reading::Parts`].
    Parts,
    /// As [`Reading::Messages`].
    Messages,
    /// One message.
    Message,
    /// As [`Reading::Texts`].
    Texts,
    /// As [`Reading::Media`].
    Media,
    /// Into a selector.
    Selects(Selector),
    /// Into a trailer of the message.
    Trailer(Trailer),
    /// As the most output tokens.
    OutputMax,
    /// As whether to stream.
    Stream,
}

/// An object or array that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) mode: Mode,
    pub(super) kind: Kind,
    /// Whether token ids were seen in it.
    pub(super) tokens: bool,
}

impl Mode {
    /// How to read an object or array that stands where this is expected.
    pub(super) fn of_container(self, kind: Kind) -> Self {
        match (self, kind) {
            (Self::Messages, Kind::Object) => Self::Message,
            (Self::OutputMax | Self::Stream | Self::Trailer(_), _)
            | (Self::Message, Kind::Array) => Self::Skip,
            (mode, _) => mode,
        }
    }

    /// How to read an element of an array that is read like this.
    pub(super) fn of_element(self) -> Self {
        match self {
            Self::Messages => Self::Message,
            Self::Json | Self::Parts | Self::Texts | Self::Media | Self::Selects(_) => self,
            Self::Skip
            | Self::Request
            | Self::Holds(_)
            | Self::Message
            | Self::Trailer(_)
            | Self::OutputMax
            | Self::Stream => Self::Skip,
        }
    }
}

impl From<Reading> for Mode {
    fn from(reading: Reading) -> Self {
        match reading {
            Reading::Json => Self::Json,
            Reading::Parts => Self::Parts,
            Reading::Messages => Self::Messages,
            Reading::Texts => Self::Texts,
            Reading::Media => Self::Media,
        }
    }
}

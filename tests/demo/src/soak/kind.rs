//! The kinds of requests that clients send.

use strum::{EnumIter, IntoEnumIterator as _};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter)]
pub(super) enum RequestKind {
    /// A turn of a conversation, whose answer is streamed.
    Streamed,
    /// A turn of a conversation, whose answer comes whole.
    Whole,
    /// The client goes away before the answer has ended.
    Aborted,
    /// The body arrives byte by byte.
    SlowBody,
    /// The body is not JSON.
    NotJson,
    /// A member of the body stands twice.
    DoubledMember,
    /// A header is longer than Envoy accepts.
    GiantHeader,
    /// The path is none that clients may use.
    UnknownPath,
    /// The bytes are not HTTP.
    NotHttp,
}

impl RequestKind {
    /// The kinds that are no turn of a conversation.
    pub(super) fn odd() -> Vec<Self> {
        let is_odd = |kind: &Self| !matches!(kind, Self::Streamed | Self::Whole);
        Self::iter().filter(is_odd).collect()
    }

    /// The kind in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Streamed => "turn, streamed",
            Self::Whole => "turn, whole",
            Self::Aborted => "aborted",
            Self::SlowBody => "slow body",
            Self::NotJson => "not JSON",
            Self::DoubledMember => "doubled member",
            Self::GiantHeader => "giant header",
            Self::UnknownPath => "unknown path",
            Self::NotHttp => "not HTTP",
        }
    }

    /// The status of the response when nothing fails. Envoy may also close the connection of a request that is not HTTP or
    /// too large while the client still sends.
    pub(super) const fn expected_status(self) -> u16 {
        match self {
            Self::NotJson | Self::NotHttp => 400,
            Self::GiantHeader => 431,
            Self::UnknownPath => 404,
            _ => 200,
        }
    }

    /// Whether Envoy may close the connection without a response.
    pub(super) const fn may_be_closed(self) -> bool {
        matches!(self, Self::NotHttp | Self::GiantHeader)
    }
}

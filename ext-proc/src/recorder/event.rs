//! What `POST /api/recording` answers with: one JSON object a line.
//!
//! Lengths of the prompt are in bytes here, as the fingerprint has them; how many bytes are a token is known at the end
//! of the recording ([`super::trace`]). Requests come in the order in which they end.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingEvent {
    /// A request that has ended.
    Request(RecordedRequest),
    /// The recording has, in this way.
    End(RecordingSummary),
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// When it came, in milliseconds since the recording began.
    pub at_ms: u64,
    /// The id of its session, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The region that was asked, where there are regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The prompt's prefixes, shortest first: an id, and the length in bytes.
    pub blocks: Vec<(u64, u32)>,
    /// The length of the whole prompt, in bytes.
    pub bytes: u32,
    /// The prompt's tokens, as the engine counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// The answer's tokens, as the engine counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u32>,
    /// The most output tokens that the request allowed, where it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
}

/// How a recording went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingSummary {
    /// What ended it.
    pub why: EndReason,
    /// Requests that were recorded.
    pub recorded: u64,
    /// Requests that were left out, since they came faster than they could be written.
    pub dropped: u64,
    /// Requests that were left out, since the engine answered them with an error.
    pub failed: u64,
    /// Requests that had not ended when the recording did.
    pub unfinished: u64,
}

/// What ends a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// As many requests as asked for.
    Requests,
    /// The time is over.
    #[default]
    Time,
    /// It has become too long.
    Size,
    /// The configuration does not allow it any more.
    Disabled,
    /// The service stops.
    Stopping,
}

impl EndReason {
    /// For people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "there are as many requests as asked for",
            Self::Time => "the time is over",
            Self::Size => "the recording has reached its largest size",
            Self::Disabled => "`recording.enabled` was taken back",
            Self::Stopping => "the service stops",
        }
    }
}

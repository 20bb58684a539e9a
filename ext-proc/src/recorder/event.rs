//! The response body of `POST /api/recording`: a JSON object on each line.
//!
//! Prompt lengths are in bytes, as in the fingerprint: the mean bytes per token are known at the end of the recording
//! ([`super::trace`]). Requests are in the order in which they end.

use serde::{Deserialize, Serialize};

/// A line of the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingEvent {
    /// A request that has ended.
    Request(RecordedRequest),
    /// The end of the recording.
    End(RecordingSummary),
}

/// A recorded request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// Arrival time in milliseconds since the start of the recording.
    pub at_ms: u64,
    /// Id of the session, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Region of the service, if there are regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Prefixes of the prompt, shortest first: id and length in bytes.
    pub blocks: Vec<(u64, u32)>,
    /// Prompt length in bytes.
    pub bytes: u32,
    /// Prompt length in tokens, as the engine counted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// Output length in tokens, as the engine counted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u32>,
    /// Output limit of the request in tokens, if it sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
}

/// Summary of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingSummary {
    /// Reason of the end.
    pub why: EndReason,
    /// Recorded requests.
    pub recorded: u64,
    /// Requests that were dropped because the reader was too slow.
    pub dropped: u64,
    /// Requests that were left out because the engine responded with an error.
    pub failed: u64,
    /// Requests that ended after the recording.
    pub unfinished: u64,
}

/// Reason why a recording ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The limit of requests.
    Requests,
    /// The time limit.
    #[default]
    Time,
    /// The size limit.
    Size,
    /// A reload that forbids recordings.
    Disabled,
    /// The stop of the service.
    Stopping,
}

impl EndReason {
    /// Describes the reason to an operator.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "there are as many requests as asked for",
            Self::Time => "the time is over",
            Self::Size => "the recording has reached its largest size",
            Self::Disabled => "`recording` was taken back",
            Self::Stopping => "the service stops",
        }
    }
}

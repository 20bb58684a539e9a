//! Input and output of the engine model: requests, events, usage.

use core::time::Duration;
use std::sync::Arc;

use thiserror::Error;

use super::blocks::BlockHash;

/// The caller's name for a request; unique among the requests that are in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The caller's number of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u32);

/// A generation as the engine sees it: sizes and block hashes, no text.
#[derive(Debug, Clone)]
pub struct Request {
    /// The caller's name for it.
    pub id: RequestId,
    /// Tokens in the prompt.
    pub prompt_tokens: u32,
    /// Tokens that the model will generate. A simulated model knows; the scheduler does not look at it before the end.
    pub output_tokens: u32,
    /// The hash of each full block of the prompt, and of the output that will follow it, as one chain. It may stop early:
    /// what has no hash is computed and never cached.
    pub blocks: Arc<[BlockHash]>,
    /// The adapter that the request uses.
    pub adapter: Option<AdapterId>,
    /// Report [`EventKind::Tokens`] at least every so many tokens; `None` reports only the first token and the end, which lets
    /// the model advance in large strides.
    pub stream_interval_tokens: Option<u32>,
}

/// Tokens that the engine counted for a finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens in the prompt.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the cache when the request first started.
    pub cached_tokens: u32,
    /// Tokens generated.
    pub completion_tokens: u32,
    /// Number of times that the request lost its blocks and began again.
    pub preemptions: u32,
    /// From arrival to the first time it was scheduled.
    pub queued: Duration,
}

/// Something that happened, at an exact virtual time (which may lie before the `now` that revealed it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Duration,
    /// Request of the event.
    pub id: RequestId,
    /// Kind of the event.
    pub kind: EventKind,
}

/// The kinds of [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The prompt is computed and the first token is out.
    FirstToken {
        /// Prompt tokens that were found in the cache.
        cached_tokens: u32,
    },
    /// More tokens are out; `generated` counts all so far.
    Tokens {
        /// Tokens generated so far, the first included.
        generated: u32,
    },
    /// The last token is out and the request's place is free.
    Finished(Usage),
    /// The request was never accepted.
    Rejected(Rejection),
}

/// The reason for which the engine rejects a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The prompt or the output has no tokens.
    #[error("the prompt is empty, or the request asks for no output tokens")]
    Empty,
    /// Prompt and output together exceed the model's context.
    #[error(
        "This model's maximum context length is {tokens_max} tokens. However, you requested {tokens} tokens (prompt and output \
         together). Please reduce the length of the input messages or of the output."
    )]
    TooLong {
        /// Requested tokens: prompt and output.
        tokens: u64,
        /// Bound on the tokens of one request.
        tokens_max: u32,
    },
    /// Too many requests are waiting already.
    #[error("{requests_max} requests are waiting already; try again later or on another replica")]
    QueueFull {
        /// The limit that was reached.
        requests_max: usize,
    },
    /// A request with the same id is in the engine.
    #[error("a request with this id is in the engine already")]
    Duplicate,
}

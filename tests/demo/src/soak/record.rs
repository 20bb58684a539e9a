//! Records of requests, and the clock of the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::kind::RequestKind;

/// The clock of a run; its times are those since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock(Instant);

impl RunClock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Prompt tokens of an answer, and those among them that the engine found in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PromptTokens {
    pub(super) prompt: u64,
    pub(super) cached: u64,
}

/// How a request ended, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestEnd {
    /// A complete answer.
    Answered(PromptTokens),
    /// Another status than 200, or an error in a stream, with the code in the body or its first words.
    Refused { status: u16, reason: String },
    /// The connection broke.
    Broken {
        after_first_byte: bool,
        error: String,
    },
    /// The client went away on purpose.
    Aborted,
    /// Nothing came for a long time.
    Unanswered,
    /// The response is not the one answer to this request.
    Wrong(String),
}

/// The record of a request.
#[derive(Clone, Debug)]
pub(super) struct RequestRecord {
    pub(super) id: String,
    pub(super) kind: RequestKind,
    /// Index of the Envoy.
    pub(super) envoy: usize,
    pub(super) sent: Duration,
    pub(super) ended: Duration,
    /// Whether an earlier turn of the conversation has an answer.
    pub(super) is_follow_up: bool,
    pub(super) ending: RequestEnd,
}

/// The records of all clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Records(Arc<Mutex<Vec<RequestRecord>>>);

impl Records {
    /// Locks the records. A panic of another task leaves no record half written.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<RequestRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Records of requests, from which every report is computed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Failure messages that a program prints; one cause may fail thousands of requests.
const FAILURES_SHOWN_MAX: usize = 5;

/// The record of a request.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Index of the client's region.
    pub region: usize,
    /// Index of the region whose replica responded; `None` when the response does not name a replica or a region.
    pub served: Option<usize>,
    /// Time of sending since the start of the run.
    pub sent: Duration,
    /// Time of the end of the response since the start of the run.
    pub ended: Duration,
    /// Bytes of the prompt's text; 0 in a simulation, which has none.
    pub prompt_bytes: u64,
    /// Whether an earlier turn of the conversation has a response.
    pub is_follow_up: bool,
    /// The complete response, or the message of the failure.
    pub outcome: Result<Outcome, String>,
}

/// The measurements of a complete response.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Time from the request to the first piece of text.
    pub ttft: Duration,
    /// Time in the service's queue, when the service reports it.
    pub queued: Option<Duration>,
    /// Token counts of the engine.
    pub usage: Usage,
}

/// Token counts of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: u64,
    /// Prompt tokens that the engine found in its cache.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
}

impl RequestRecord {
    /// The record as it is in a run that begins later.
    pub(crate) fn later(self, offset: Duration) -> Self {
        Self {
            sent: self.sent + offset,
            ended: self.ended + offset,
            ..self
        }
    }

    /// Whether a replica of another region than the client's responded.
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.served.is_some_and(|served| served != self.region)
    }
}

/// The requests that have ended so far, shared with the progress display.
#[derive(Clone, Debug, Default)]
pub struct RequestLog(Arc<Mutex<Vec<RequestRecord>>>);

impl RequestLog {
    /// Locks the records. A panic of another thread leaves no record half written.
    pub fn read(&self) -> MutexGuard<'_, Vec<RequestRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the records out, and prints the first failures on standard error.
    pub(crate) fn take(&self, label: &str) -> Vec<RequestRecord> {
        let records = std::mem::take(&mut *self.read());
        let failures = records
            .iter()
            .filter_map(|record| record.outcome.as_ref().err());
        for failure in failures.take(FAILURES_SHOWN_MAX) {
            eprintln!("{label}: failed: {failure}");
        }
        records
    }
}

//! Records of requests, from which the report is computed.

use std::time::Duration;

use crate::client::Usage;

/// The record of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// The number of the client's region.
    pub region: usize,
    /// The number of the region whose replica answered; nothing when that was not said.
    pub served: Option<usize>,
    /// Time of sending since the start of the run.
    pub sent: Duration,
    /// Time of its end since the start of the run.
    pub ended: Duration,
    /// Whether an earlier turn of the conversation was answered.
    pub follow_up: bool,
    /// Whether the last answer before came from another region than the client's.
    pub after_forwarded: bool,
    /// Outcome; `None` without a complete response.
    pub outcome: Option<Outcome>,
}

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// From the request to the first piece of text.
    pub ttft: Duration,
    /// Token counts of the engine.
    pub usage: Usage,
}

impl RequestRecord {
    /// Whether another region answered than the client's.
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.served.is_some_and(|served| served != self.region)
    }
}

/// The part of a run that counts: caches are filled before it, and it ends while all clients are still busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start.
    pub from: Duration,
    /// End.
    pub to: Duration,
}

impl Window {
    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from).as_secs_f64()
    }

    /// Whether a moment lies in it.
    #[must_use]
    pub fn holds(&self, moment: Duration) -> bool {
        (self.from..self.to).contains(&moment)
    }
}

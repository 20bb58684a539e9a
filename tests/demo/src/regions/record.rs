//! What is known of each request once it has ended; everything a report says is computed from these.

use std::time::Duration;

use crate::client::Usage;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// The number of the client's region.
    pub region: usize,
    /// The number of the region whose replica answered; nothing when that was not said.
    pub served: Option<usize>,
    /// When it was sent, since the beginning of the run.
    pub sent: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Whether an earlier turn of the conversation was answered.
    pub follow_up: bool,
    /// Whether the last answer before came from another region than the client's.
    pub after_forwarded: bool,
    /// What came of it.
    pub outcome: Option<Outcome>,
}

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// From the request to the first piece of text.
    pub ttft: Duration,
    /// What the engine counted.
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
    /// Its beginning.
    pub from: Duration,
    /// Its end.
    pub to: Duration,
}

impl Window {
    /// Its length, s.
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

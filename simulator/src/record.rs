//! What a run leaves behind: every request, every replica's totals, and how the load lay over time.

use core::time::Duration;

use isotherm_router::RejectReason;

use crate::summary::Summary;

/// All that a run has shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Every request that was sent, in the order of sending.
    pub requests: Vec<RequestRecord>,
    /// Every replica, in the order of its number.
    pub replicas: Vec<ReplicaTotals>,
    /// The load over time.
    pub samples: Vec<Sample>,
    /// When the workload's clients stopped sending, where it says so.
    pub sends_until: Option<Duration>,
    /// When the last response ended, or the run was cut.
    pub ended: Duration,
    /// Requests that the run's limit cut off.
    pub cut: usize,
    /// Whether the limit came before the end: requests were on their way, or still to be sent.
    pub reached_limit: bool,
    /// Cached prompt tokens as the routers predicted them, for requests whose engine told the truth.
    pub predicted_cached_tokens: u64,
    /// Absolute difference between that and what engines found, summed.
    pub prediction_error_tokens: u64,
    /// Prompt tokens of those requests.
    pub predicted_prompt_tokens: u64,
    /// Events of the simulation: a measure of its own work.
    pub events: u64,
}

impl Outcome {
    /// The figures, warm-up left out.
    #[must_use]
    pub fn summary(&self, slo: Duration) -> Summary {
        Summary::new(self, slo)
    }
}

/// One request, as its client saw it. Times are from the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Its session, from 0.
    pub session: usize,
    /// Its step in the session.
    pub step: usize,
    /// The client's region.
    pub region: usize,
    /// When the client sent it.
    pub sent: Duration,
    /// When a router last chose a replica for it.
    pub dispatched: Option<Duration>,
    /// When the first token reached the client.
    pub first_token: Option<Duration>,
    /// When the response ended, at the client; none when the run was cut before.
    pub ended: Option<Duration>,
    /// The replica that it was sent to.
    pub replica: Option<usize>,
    /// Length of its prompt.
    pub prompt_tokens: u32,
    /// What of it the engine found in its cache.
    pub cached_tokens: u32,
    /// Length of its answer, as far as it was generated.
    pub output_tokens: u32,
    /// How long it waited in routers' queues.
    pub queued: Duration,
    /// Why a router refused it.
    pub refused: Option<RejectReason>,
    /// The engine refused it: too long for it, or too many wait there.
    pub engine_refused: bool,
    /// It was served in another region than its own.
    pub forwarded: bool,
    /// It only warms the caches, and counts in no figure.
    pub warmup: bool,
}

impl RequestRecord {
    /// Whether its answer came to its end.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.first_token.is_some() && self.ended.is_some()
    }

    /// From sending to the first token's arrival, queueing and network included.
    #[must_use]
    pub fn ttft(&self) -> Option<Duration> {
        Some(self.first_token?.saturating_sub(self.sent))
    }

    /// From sending to the end of the answer.
    #[must_use]
    pub fn e2e(&self) -> Option<Duration> {
        self.first_token?;
        Some(self.ended?.saturating_sub(self.sent))
    }
}

/// What one replica did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaTotals {
    /// Its region.
    pub region: usize,
    /// Requests that came to their end.
    pub requests: u64,
    /// Prompt tokens looked up in its cache.
    pub prompt_tokens: u64,
    /// Of those, found.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Requests that lost their blocks to another and began again.
    pub preemptions: u64,
    /// Time spent in steps.
    pub busy: Duration,
}

/// The load at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Duration,
    /// Requests that wait in routers' queues.
    pub queued: u32,
    /// Every replica that is in the pool, in the order of its number.
    pub replicas: Vec<ReplicaSample>,
}

/// One replica's load at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSample {
    /// Which one.
    pub replica: u32,
    /// Requests in the engine.
    pub outstanding: u32,
    /// Of those, not in the batch.
    pub waiting: u32,
    /// Prompt tokens still to be computed.
    pub pending_prefill_tokens: u64,
}

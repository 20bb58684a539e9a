//! Records of a run: every request, the totals of every replica, and the load over time.

use core::time::Duration;

use isotherm_router::{RejectReason, Tier};

/// Result of a run.
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
    /// Whether the limit of time or events came before the end: requests were on their way, or still to be sent.
    pub reached_limit: bool,
    /// Events of the simulation: a measure of its own work.
    pub events: u64,
}

/// A request as its client saw it. Times are from the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRecord {
    /// Index of the session, from 0.
    pub session: usize,
    /// Index of the step in the session.
    pub step: usize,
    /// The client's region.
    pub region: usize,
    /// Workload tier of the request.
    pub tier: Tier,
    /// Tenant of the request; 0 is the common one.
    pub tenant: u64,
    /// When the client sent the request.
    pub sent: Duration,
    /// When a router last chose a replica for the request.
    pub dispatched: Option<Duration>,
    /// When the first token reached the client.
    pub first_token: Option<Duration>,
    /// When the response ended, at the client; none when the run was cut before.
    pub ended: Option<Duration>,
    /// Replica that served the request.
    pub replica: Option<usize>,
    /// Prompt length in tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens that the engine found in its cache.
    pub cached_tokens: u32,
    /// Generated tokens.
    pub output_tokens: u32,
    /// Time in routers' queues.
    pub queued: Duration,
    /// Reason for which a router rejected the request.
    pub refused: Option<RejectReason>,
    /// Whether the engine rejected the request: it is too long, or the engine's queue is full.
    pub engine_refused: bool,
    /// Whether another region than the client's served the request.
    pub forwarded: bool,
    /// Whether the request counts in no figure: it only warms the caches, or another router serves it.
    pub warmup: bool,
}

impl RequestRecord {
    /// Whether its answer came to its end.
    pub fn is_answered(&self) -> bool {
        self.first_token.is_some() && self.ended.is_some()
    }

    /// From sending to the first token's arrival, queueing and network included.
    pub fn ttft(&self) -> Option<Duration> {
        Some(self.first_token?.saturating_sub(self.sent))
    }

    /// From sending to the end of the answer.
    pub fn e2e(&self) -> Option<Duration> {
        self.first_token?;
        Some(self.ended?.saturating_sub(self.sent))
    }
}

/// Totals of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaTotals {
    /// Region of the replica.
    pub region: usize,
    /// Requests that came to their end.
    pub requests: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Requests that lost their blocks to another and began again.
    pub preemptions: u64,
    /// Adapters that the engine loaded.
    pub adapter_loads: u64,
    /// Time spent in steps.
    pub busy: Duration,
}

/// Load at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time from the start of the run.
    pub at: Duration,
    /// Requests that wait in routers' queues.
    pub queued: u32,
    /// Every replica that is in the pool, in the order of its number.
    pub replicas: Vec<ReplicaSample>,
}

/// Load of a replica at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSample {
    /// Index of the replica.
    pub replica: u32,
    /// Requests in the engine.
    pub outstanding: u32,
    /// Requests in the engine but outside its batch.
    pub waiting: u32,
    /// Prompt tokens still to be computed.
    pub pending_prefill_tokens: u64,
    /// Blocks of the KV pool that running requests hold.
    pub blocks_held: u32,
}

//! Statistics of the engine: the numbers behind its metrics page.

use super::request::AdapterId;
use super::sequence::Sequence;

/// Adapters of the requests in the engine, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterUse {
    /// Adapters of running requests.
    pub running: Vec<AdapterId>,
    /// Adapters of waiting requests.
    pub waiting: Vec<AdapterId>,
}

/// Gauges and counters of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// Requests that a scheduling pass has looked at and left waiting. This is what vLLM publishes as waiting: its gauge is
    /// taken after a pass, so what arrives during a step shows only when that step is over.
    pub waiting: usize,
    /// Requests that arrived since the last pass.
    pub arrived: usize,
    /// Requests in the batch.
    pub running: usize,
    /// Blocks held by running requests.
    pub blocks_held: u32,
    /// Blocks in the pool.
    pub blocks: u32,
    /// Counters.
    pub totals: Totals,
}

impl Stats {
    /// Share of the pool that is held, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        if self.blocks == 0 {
            0.0
        } else {
            f64::from(self.blocks_held) / f64::from(self.blocks)
        }
    }
}

/// Counters since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_query_tokens: u64,
    /// Prompt tokens found in the cache.
    pub prefix_hit_tokens: u64,
    /// Prompt tokens of requests that got their first token.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Requests that lost their blocks to another and began again.
    pub preemptions: u64,
    /// Requests that came to their end.
    pub finished: u64,
    /// Requests that were aborted.
    pub aborted: u64,
    /// Requests that were never accepted.
    pub rejected: u64,
    /// Adapters that were loaded.
    pub adapter_loads: u64,
    /// Time spent in steps, ns.
    pub busy_ns: u64,
    /// Times to first token, from the arrival of a request.
    pub first_tokens: Durations,
    /// Times in the queue of requests that came to their end.
    pub queued: Durations,
    /// Times from the first step of such a request to its first token.
    pub prefill: Durations,
    /// Times from the first token of such a request to its last one.
    pub decode: Durations,
}

impl Totals {
    /// Counts a request that came to its end at `at_ns`, and the time of each of its phases.
    pub(super) fn record_end(&mut self, sequence: &Sequence, at_ns: u64) {
        let (started_ns, first_ns) = (sequence.started_ns, sequence.first_token_ns);
        self.finished += 1;
        self.queued
            .record(started_ns.saturating_sub(sequence.arrived_ns));
        self.prefill.record(first_ns.saturating_sub(started_ns));
        self.decode.record(at_ns.saturating_sub(first_ns));
    }
}

/// A histogram of durations without its buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Durations {
    /// Sum of the durations, ns.
    pub sum_ns: u64,
    /// Number of durations.
    pub count: u64,
}

impl Durations {
    pub(super) fn record(&mut self, duration_ns: u64) {
        self.sum_ns += duration_ns;
        self.count += 1;
    }
}

//! Latencies in vLLM's buckets, in the engine's own (virtual) time.

use core::time::Duration;

use crate::model::Usage;

/// Upper edges of all latency buckets, seconds; a subset of vLLM's that serves each of its histograms.
const EDGES_S: [f64; 21] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0,
];

/// Counts of durations.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    counts: [u64; EDGES_S.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    fn record(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(bucket) = EDGES_S.iter().position(|&edge| seconds <= edge)
            && let Some(count) = self.counts.get_mut(bucket)
        {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    pub(super) fn cumulative(&self) -> impl Iterator<Item = (String, u64)> {
        let mut total = 0;
        let finite = EDGES_S.iter().zip(self.counts).map(move |(edge, count)| {
            total += count;
            (format!("{edge:?}"), total)
        });
        finite.chain(core::iter::once(("+Inf".to_owned(), self.count)))
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum.as_secs_f64()
    }
}

/// The latencies that the metrics page shows.
#[derive(Debug, Clone, Default)]
pub struct Histograms {
    pub(super) time_to_first_token: Histogram,
    pub(super) time_per_output_token: Histogram,
    pub(super) end_to_end: Histogram,
    pub(super) queue_time: Histogram,
}

impl Histograms {
    /// A request got its first token this long after it came.
    pub fn first_token(&mut self, since_arrival: Duration) {
        self.time_to_first_token.record(since_arrival);
    }

    /// A request ended this long after it came, and after its first token.
    pub fn finished(&mut self, usage: &Usage, since_arrival: Duration, since_first: Duration) {
        self.end_to_end.record(since_arrival);
        self.queue_time.record(usage.queued);
        if let Some(later @ 1..) = usage.completion_tokens.checked_sub(1) {
            self.time_per_output_token.record(since_first / later);
        }
    }
}

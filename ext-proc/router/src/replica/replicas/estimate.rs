//! Estimates that policies use: queued prefill, time to first token, decode time. [`crate::replica`] learns the models.

use core::time::Duration;

use super::cost_inputs::{CostInputs, Memory};
use super::{LatencyModel, Replica, Replicas};
use crate::replica::RequestMeasurement;
use crate::replica_index::ReplicaIndex;
use crate::{ReplicaId, Time};

/// Presumed answer length, in tokens.
pub(super) const OUTPUT_TOKENS: f64 = 200.0;
/// Weight of one answer.
const LEARNING_RATE: f64 = 0.03;

impl Replicas {
    /// Estimated prompt tokens that were sent to a replica and are not computed yet.
    pub(crate) fn pending_prefill_tokens(&self, slot: ReplicaIndex, now: Time) -> f64 {
        self.get(slot)
            .map_or(0.0, |replica| replica.backlog.tokens(now))
    }

    /// Estimated time until a replica has computed what was sent to it, in seconds.
    pub(crate) fn backlog_s(&self, slot: ReplicaIndex, now: Time) -> f64 {
        match self.cost_inputs_of(slot) {
            Some(cost_inputs) if cost_inputs.ready > now => {
                cost_inputs.ready.since(now).as_secs_f64()
            }
            Some(_) | None => 0.0,
        }
    }

    /// Estimated time that a replica takes to compute so many prompt tokens, in seconds.
    pub(crate) fn prefill_s(&self, slot: ReplicaIndex, tokens: f64) -> f64 {
        tokens * self.latency_of(slot).prefill.each_s
    }

    /// Estimated time that the replicas of this pool take to compute so many prompt tokens, in seconds; once something was
    /// measured.
    pub(crate) fn prefill_of_pool_s(&self, tokens: f64) -> Option<f64> {
        let takes_s = tokens * self.latency.prefill.each_s;
        self.speed.is_measured().then_some(takes_s)
    }

    /// Estimated time until the first token of a request with so many uncached prompt tokens, sent now, in seconds.
    pub(crate) fn ttft_s(&self, slot: ReplicaIndex, uncached_tokens: f64, now: Time) -> f64 {
        let line = self.latency_of(slot).prefill;
        self.backlog_s(slot, now) + line.fixed_s + line.each_s * uncached_tokens
    }

    /// Requests that each replica is sent a second, on average, and the share of their time that they compute prompts, by
    /// estimate.
    pub(crate) fn rates(&self, now: Time) -> (f64, f64) {
        let (requests_per_s, work) = self.arrivals.rates(now);
        (requests_per_s / self.size(), work / self.size())
    }

    /// The share of its time that one replica computes prompts, by estimate.
    pub(crate) fn utilisation_of(&self, slot: ReplicaIndex, now: Time) -> f64 {
        self.cost_inputs_of(slot)
            .map_or(0.0, |cost_inputs| cost_inputs.arrivals.work(now))
    }

    /// Mean time to compute a prompt, in seconds.
    pub(crate) fn work_s(&self, now: Time) -> f64 {
        let (requests, work) = self.arrivals.rates(now);
        if requests > 0.0 { work / requests } else { 0.0 }
    }

    /// Estimated wait of a request with so many uncached prompt tokens for memory on a replica, in seconds: each request
    /// of its own that ends, one in `service_s` for each outstanding one, gives back its share.
    pub(crate) fn memory_wait_s(
        &self,
        slot: ReplicaIndex,
        uncached_tokens: f64,
        service_s: f64,
    ) -> f64 {
        let Some(Memory { capacity, free }) = self
            .cost_inputs_of(slot)
            .and_then(|cost_inputs| cost_inputs.memory)
        else {
            return 0.0;
        };
        let missing = uncached_tokens + self.output_tokens - free;
        if missing <= 0.0 || capacity <= 0.0 {
            return 0.0;
        }
        // A finished request frees `capacity / outstanding`, and one finishes every `service_s / outstanding`.
        missing / capacity * service_s
    }

    /// Whether a replica admits nothing until one of its requests ends.
    pub(crate) fn is_full(&self, slot: ReplicaIndex) -> bool {
        self.get(slot).is_some_and(Replica::is_full)
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of replicas")]
    fn size(&self) -> f64 {
        self.staying().len().max(1) as f64
    }

    /// Estimated time that a replica with so many other requests takes to write an answer, and by how much all of theirs
    /// take longer for it, in seconds.
    pub(crate) fn writing_s(&self, slot: ReplicaIndex, others: f64) -> (f64, f64) {
        self.writing_at_s(self.latency_of(slot), others)
    }

    /// Estimate of [`Self::writing_s`] for a replica with this latency model.
    pub(crate) fn writing_at_s(&self, latency: &LatencyModel, others: f64) -> (f64, f64) {
        let decode = latency.decode;
        let own_s = decode.fixed_s + decode.each_s * (others + 1.0);
        let theirs_s = decode.each_s * others;
        (own_s * self.output_tokens, theirs_s * self.output_tokens)
    }

    /// Learns the measurements of a finished request.
    pub(crate) fn learn(&mut self, id: ReplicaId, measured: RequestMeasurement) {
        self.latency = self.speed.learn(measured, LatencyModel::default());
        if let Some(output) = measured.output {
            self.output_tokens += LEARNING_RATE * (output.tokens - self.output_tokens);
        }
        let pool = self.latency;
        if let Some(slot) = self.slot_of(id)
            && let Some(Some(replica)) = self.replicas.get_mut(slot.index())
        {
            replica.backlog.learn(measured, pool);
            if let Some(place) = self.cost_inputs.get_mut(slot.index()) {
                *place = CostInputs::of(replica);
            }
        }
        self.lower_latency_bound(id);
    }

    /// Registers the time of a first token.
    pub(crate) fn computed(&mut self, id: ReplicaId, at: Time) {
        if let Some(slot) = self.slot_of(id)
            && let Some(Some(replica)) = self.replicas.get_mut(slot.index())
        {
            replica.stall.computed(at);
        }
    }

    /// Time for which requests have waited inside a replica that began none; zero if none waits.
    pub(crate) fn stalled_for(&self, slot: ReplicaIndex, now: Time) -> Duration {
        self.get(slot)
            .and_then(|replica| replica.stall.stalled_since())
            .map(|since| now.since(since))
            .unwrap_or_default()
    }

    fn latency_of(&self, slot: ReplicaIndex) -> &LatencyModel {
        self.cost_inputs_of(slot)
            .and_then(|cost_inputs| cost_inputs.latency.as_ref())
            .unwrap_or(&self.latency)
    }

    pub(super) fn cost_inputs_of(&self, slot: ReplicaIndex) -> Option<&CostInputs> {
        self.cost_inputs.get(slot.index())
    }
}

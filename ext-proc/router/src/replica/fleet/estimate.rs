//! What a policy may ask of the pool's speed: see `replica/backlog.rs` for how it is learned.

use core::time::Duration;

use super::{Fleet, Line};
use crate::slots::Slot;
use crate::{ReplicaId, Time};

impl Fleet {
    /// Estimated prompt tokens that were sent to a replica and are not computed yet.
    pub(crate) fn pending_prefill_tokens(&self, slot: Slot, now: Time) -> f64 {
        self.get(slot)
            .map_or(0.0, |replica| replica.backlog.tokens(now))
    }

    /// Estimated time until a replica has computed what was sent to it, in seconds.
    pub(crate) fn backlog_s(&self, slot: Slot, now: Time) -> f64 {
        self.get(slot)
            .map_or(0.0, |replica| replica.backlog.wait_s(now))
    }

    /// Estimated time that a replica takes to compute so many prompt tokens, in seconds.
    pub(crate) fn prefill_s(&self, slot: Slot, tokens: f64) -> f64 {
        tokens * self.line_of(slot).token_s
    }

    /// Estimated time until the first token of a request with so many uncached prompt tokens, sent now, in seconds.
    pub(crate) fn ttft_s(&self, slot: Slot, uncached_tokens: f64, now: Time) -> f64 {
        let line = self.line_of(slot);
        self.backlog_s(slot, now) + line.fixed_s + line.token_s * uncached_tokens
    }

    /// Requests that each replica is sent a second, on average.
    pub(crate) fn requests_per_s(&self, now: Time) -> f64 {
        self.flow.requests_per_s(now) / self.size()
    }

    /// The share of their time that the replicas compute prompts, by estimate.
    pub(crate) fn utilisation(&self, now: Time) -> f64 {
        self.flow.work(now) / self.size()
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of replicas")]
    fn size(&self) -> f64 {
        self.staying().len().max(1) as f64
    }

    /// A first token took so long, with so many tokens to compute before it, those of others included.
    pub(crate) fn learn(&mut self, id: ReplicaId, tokens: f64, ttft: Duration) {
        let seconds = ttft.as_secs_f64();
        self.speed.learn(tokens, seconds);
        self.line = self.speed.line(Line::default());
        let pool = self.line;
        if let Some(slot) = self.slot_of(id)
            && let Some(Some(replica)) = self.replicas.get_mut(slot.index())
        {
            replica.backlog.learn(tokens, seconds, pool);
        }
    }

    fn line_of(&self, slot: Slot) -> Line {
        self.get(slot)
            .map_or(self.line, |replica| replica.backlog.line())
    }
}

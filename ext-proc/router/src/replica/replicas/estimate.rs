//! Estimates that policies use: queued prefill, and time to first token. [`crate::replica`] learns the models.

use super::{LinearModel, Replica, Replicas};
use crate::constant::constants;
use crate::replica::latency::LatencyModel;
use crate::replica_index::ReplicaIndex;
use crate::{Load, Time};

constants! {
    /// Presumed answer length, in tokens.
    pub(super) OUTPUT_TOKENS: f64 = 200.0;
}

/// Inputs of the cost model, side by side: a [`Replica`] spans a dozen cache lines. The default is an idle replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CostInputs {
    /// When all dispatched prompts will be computed.
    ready: Time,
    /// The replica's own prefill line, once it has measured enough.
    prefill: Option<LinearModel>,
    /// KV cache of the engine, if it reports it.
    memory: Option<Memory>,
    /// Share by which predicted cache hits are discounted.
    hit_discount: f64,
}

/// KV cache of an engine, in tokens.
#[derive(Clone, Copy, Debug)]
struct Memory {
    capacity: f64,
    free: f64,
}

impl CostInputs {
    #[expect(clippy::cast_precision_loss, reason = "a size in tokens")]
    pub(super) fn of(replica: &Replica) -> Self {
        let memory = |load: &Load| {
            let capacity = load.kv_capacity_tokens? as f64;
            Some(Memory {
                capacity,
                free: capacity * (1.0 - f64::from(load.kv_usage?)),
            })
        };
        Self {
            ready: replica.work.backlog.ready(),
            prefill: replica.work.speed.own(),
            memory: replica.load().and_then(memory),
            hit_discount: replica.counts.hit_discount,
        }
    }
}

/// A prefill line that no replica is faster than, which lets a decision skip most replicas. The bound may be too low until
/// it is computed anew, after as many changes as there are replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatencyBound {
    prefill: LinearModel,
    /// Number of changes since it was computed.
    changes: usize,
}

impl Default for LatencyBound {
    fn default() -> Self {
        Self {
            prefill: LatencyModel::default().prefill,
            changes: 0,
        }
    }
}

impl LatencyBound {
    /// Lowers the bound to the line of a replica.
    pub(super) fn lower(&mut self, inputs: &CostInputs) {
        if let Some(prefill) = inputs.prefill {
            self.prefill = self.prefill.least(prefill);
        }
    }
}

impl Replicas {
    /// A prefill line that no replica is faster than, neither in intercept nor in slope.
    pub(crate) const fn fastest(&self) -> LinearModel {
        self.model.bound.prefill
    }

    /// The pool's latency model.
    pub(crate) const fn latency(&self) -> &LatencyModel {
        &self.model.speed.model
    }

    /// Mean answer length, in tokens.
    pub(crate) const fn output_tokens(&self) -> f64 {
        self.model.output_tokens
    }

    /// Fewest requests at an available replica.
    pub(crate) fn least_requests(&self) -> u32 {
        self.by_load.first().map_or(0, |rank| rank.requests())
    }

    /// Lowers the bound after a change of the pool's line and of the line of the replica at `slot`.
    pub(super) fn lower_latency_bound(&mut self, slot: Option<ReplicaIndex>) {
        let bound = &mut self.model.bound;
        bound.changes += 1;
        let pool = self.model.speed.model.prefill;
        if bound.changes < self.cost_inputs.len() {
            let inputs = slot.and_then(|slot| self.cost_inputs.get(slot.index()));
            let own = inputs.and_then(|inputs| inputs.prefill);
            bound.prefill = bound.prefill.least(pool).least(own.unwrap_or(pool));
            return;
        }
        let own = self.cost_inputs.iter().filter_map(|inputs| inputs.prefill);
        *bound = LatencyBound {
            prefill: own.fold(pool, LinearModel::least),
            changes: 0,
        };
    }

    /// Estimated prompt tokens that were sent to a replica and are not computed yet.
    pub(crate) fn pending_prefill_tokens(&self, slot: ReplicaIndex, now: Time) -> f64 {
        self.get(slot).map_or(0.0, |replica| {
            replica.work.backlog.wait_s(now) / replica.token_s()
        })
    }

    /// Estimated time until a replica has computed what was sent to it, in seconds.
    pub(crate) fn backlog_s(&self, slot: ReplicaIndex, now: Time) -> f64 {
        match self.cost_inputs.get(slot.index()) {
            Some(inputs) if inputs.ready > now => inputs.ready.since(now).as_secs_f64(),
            Some(_) | None => 0.0,
        }
    }

    /// Estimated time that a replica takes to compute so many prompt tokens, in seconds.
    pub(crate) fn prefill_s(&self, slot: ReplicaIndex, tokens: f64) -> f64 {
        tokens * self.prefill_of(slot).each_s
    }

    /// Estimated time that the pool takes to compute so many prompt tokens, in seconds; `None` before a measurement.
    pub(crate) fn prefill_of_pool_s(&self, tokens: f64) -> Option<f64> {
        let takes_s = tokens * self.model.speed.model.prefill.each_s;
        self.model.speed.is_measured().then_some(takes_s)
    }

    /// Estimated time until the first token of a request with so many uncached prompt tokens, sent now, in seconds.
    pub(crate) fn ttft_s(&self, slot: ReplicaIndex, uncached_tokens: f64, now: Time) -> f64 {
        let line = self.prefill_of(slot);
        self.backlog_s(slot, now) + line.fixed_s + line.each_s * uncached_tokens
    }

    /// Mean time to compute a prompt, in seconds.
    pub(crate) fn work_s(&self) -> f64 {
        self.model.work.mean_s()
    }

    /// Estimated wait of a request for memory on a replica, in seconds: each request that ends gives back its share.
    pub(crate) fn memory_wait_s(
        &self,
        slot: ReplicaIndex,
        uncached_tokens: f64,
        service_s: f64,
    ) -> f64 {
        let inputs = self.cost_inputs.get(slot.index());
        let Some(Memory { capacity, free }) = inputs.and_then(|inputs| inputs.memory) else {
            return 0.0;
        };
        let missing = uncached_tokens + self.model.output_tokens - free;
        if missing <= 0.0 || capacity <= 0.0 {
            return 0.0;
        }
        // A finished request frees `capacity / outstanding`, and one finishes every `service_s / outstanding`.
        missing / capacity * service_s
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of replicas")]
    pub(crate) fn size(&self) -> f64 {
        self.staying().len().max(1) as f64
    }

    /// Estimated tokens that a replica has to compute where `uncached` are beyond a match of `matched` tokens: an engine whose
    /// counters show fewer hits than predicted has to compute a part of the match, too.
    pub(crate) fn uncached_on(&self, slot: ReplicaIndex, uncached: f64, matched: f64) -> f64 {
        let inputs = self.cost_inputs.get(slot.index());
        uncached + inputs.map_or(0.0, |inputs| inputs.hit_discount) * matched
    }

    /// The prefill line of a replica, or the pool's line for a replica without its own.
    pub(crate) fn prefill_of(&self, slot: ReplicaIndex) -> LinearModel {
        let inputs = self.cost_inputs.get(slot.index());
        let own = inputs.and_then(|inputs| inputs.prefill);
        own.unwrap_or(self.model.speed.model.prefill)
    }
}

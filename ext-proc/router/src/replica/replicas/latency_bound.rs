//! The least that anything takes on any replica of a pool: whoever knows it need not ask them one by one.
//!
//! It is a bound, so it may be too low for a while: a pace that changes only lowers it, and after as many changes as there are
//! replicas it is worked out anew. So a change costs as little as a comparison, on average.

use super::{LatencyModel, Replicas};
use crate::ReplicaId;

/// A pace that no replica is faster than.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatencyBound {
    latency: LatencyModel,
    /// How often it was only lowered.
    changes: usize,
}

impl Replicas {
    /// A pace that no replica is faster than, neither in what it takes for all nor in what it takes for each.
    pub(crate) const fn fastest(&self) -> &LatencyModel {
        &self.latency_bound.latency
    }

    /// Fewer requests than this are outstanding on no available replica.
    pub(crate) fn least_outstanding(&self) -> u32 {
        self.by_load.first().map_or(0, |rank| rank.key().0)
    }

    /// The pool's pace is another one now, and maybe this one's.
    pub(super) fn lower_latency_bound(&mut self, id: ReplicaId) {
        self.latency_bound.changes += 1;
        if self.latency_bound.changes < self.cost_inputs.len() {
            let cost_inputs = self.slot_of(id).and_then(|slot| self.cost_inputs_of(slot));
            let own = cost_inputs.and_then(|cost_inputs| cost_inputs.latency);
            let latency_bound = self.latency_bound.latency.least(self.latency);
            self.latency_bound.latency = own.map_or(latency_bound, |own| latency_bound.least(own));
            return;
        }
        let own = self
            .cost_inputs
            .iter()
            .filter_map(|cost_inputs| cost_inputs.latency);
        self.latency_bound = LatencyBound {
            latency: own.fold(self.latency, LatencyModel::least),
            changes: 0,
        };
    }
}

//! A lower bound of the latency of all replicas, which lets a decision skip most of them.
//!
//! The bound may be too low for a while. A changed model lowers it at the cost of one comparison; after as many changes as
//! there are replicas it is computed anew.

use super::{LatencyModel, Replicas};
use crate::ReplicaId;

/// A latency model that no replica is faster than.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatencyBound {
    latency: LatencyModel,
    /// Number of changes since it was computed.
    changes: usize,
}

impl Replicas {
    /// A latency model that no replica is faster than, neither in intercept nor in slope.
    pub(crate) const fn fastest(&self) -> &LatencyModel {
        &self.latency_bound.latency
    }

    /// Fewest outstanding requests of an available replica.
    pub(crate) fn least_outstanding(&self) -> u32 {
        self.by_load.first().map_or(0, |rank| rank.key().0)
    }

    /// Lowers the bound after a change of the pool's model and of this replica's.
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

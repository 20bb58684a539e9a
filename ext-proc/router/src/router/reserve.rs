//! A reserve of each replica for tenants that use little.
//!
//! An order of service decides who goes next, and takes nothing back: with the memory of every replica full of one tenant's requests,
//! the next request waits inside an engine until one of them ends, and its cached prompts are evicted meanwhile. So a tenant with much
//! more than an equal share of the requests in flight leaves the last part of each replica's memory to the others. It takes that part
//! only in place of a rejection.
//!
//! A tenant alone is never large. A replica of whose memory nothing is known keeps no reserve.
//!
//! Rejected: a smaller quantum. The order is then stricter, and the engines are as full.

use super::Router;
use crate::queue::QueuedRequest;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::tenants::TenantSlot;

/// Share of a replica's memory in use from which it takes no request of a large tenant.
const RESERVED_FROM: f64 = 0.6;

impl Router {
    /// Finds out whether a tenant is large now: it has more than twice the share of the requests in flight that it would have beside one
    /// more tenant.
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of requests and tenants"
    )]
    pub(super) fn measure_tenant(&mut self, slot: TenantSlot) {
        if self.pool.config.fairness.is_none() {
            return;
        }
        let (in_flight, active) = self.pool.tenants.in_flight_of(slot);
        let share = in_flight as f64 / self.weight_of(slot);
        let large_from = 2.0 * self.pool.in_flight.len() as f64 / (active + 1) as f64;
        self.pool.queue.set_large(slot, share > large_from);
    }

    /// Looks up which of these replicas keep their reserve now.
    pub(super) fn update_reserves(&mut self, replicas: &[ReplicaIndex]) {
        if !self.pool.queue.has_large() {
            return;
        }
        for &replica in replicas {
            let is_reserving = self.is_reserving(replica);
            self.pool.queue.set_reserving(replica, is_reserving);
        }
    }

    fn is_reserving(&self, replica: ReplicaIndex) -> bool {
        let memory = self.pool.replicas.memory_use(replica);
        memory.is_some_and(|memory| memory.share >= RESERVED_FROM)
    }

    /// The candidates of a request without those whose reserve is closed to it; `None` where no reserve is.
    pub(super) fn outside_reserves(
        &self,
        queued: &QueuedRequest,
        candidates: &ReplicaSet,
    ) -> Option<ReplicaSet> {
        if !self.pool.queue.is_large(queued) {
            return None;
        }
        let mut outside = ReplicaSet::default();
        for replica in candidates.iter() {
            outside.set(replica, !self.is_reserving(replica));
        }
        Some(outside)
    }
}

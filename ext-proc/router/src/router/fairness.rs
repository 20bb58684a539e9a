//! Fairness among queued requests: how often, and how long, later requests may go first.
//!
//! A request is overtaken when a later one goes to a replica that it would have taken itself. A replica that it leaves free
//! for a warmer one is no loss to it, so dispatches to that replica do not count. A pool with more replicas dispatches more
//! requests in the same time, so the overtake limit grows with the pool. No bound depends on the rate of requests alone: a
//! request that has waited half of the longest wait goes next, to any replica that it may use.

use super::Router;
use crate::policy::{Dispatch, LOOKED_AT_MAX};
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

/// Overtake limit of a queued request in a small pool,
const OVERTAKES_MIN: u32 = 64;
/// and for each replica of a large one.
const OVERTAKES_PER_REPLICA: u32 = 8;
/// A request goes next after the longest wait, divided by this.
const ENTITLED_AFTER: u32 = 2;

impl Router {
    /// The overtake limit of a queued request.
    pub(super) fn overtakes_max(&self) -> u32 {
        let replicas = u32::try_from(self.pool.replicas.staying().len()).unwrap_or(u32::MAX);
        replicas
            .saturating_mul(OVERTAKES_PER_REPLICA)
            .max(OVERTAKES_MIN)
    }

    /// The queued request that must go next to this replica: one at the overtake limit, or one that has waited too long.
    pub(super) fn entitled(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        let queue = &self.pool.queue;
        let after = self.pool.config.queue.wait_max / ENTITLED_AFTER;
        let oldest = queue.within_slo(replica).next();
        let has_waited = oldest.filter(|(_, oldest)| oldest.arrived.after(after) <= self.pool.now);
        let has_waited = has_waited.map(|(seq, _)| seq);
        let at_limit = queue.at_overtake_limit(replica);
        has_waited.into_iter().chain(at_limit).min()
    }

    /// Whether a queued request must go next, to any replica that it may use.
    pub(super) fn is_entitled(&self, seq: QueueSeq) -> bool {
        let queue = &self.pool.queue;
        let after = self.pool.config.queue.wait_max / ENTITLED_AFTER;
        queue.get(seq).is_some_and(|queued| {
            queue.is_within_slo(seq)
                && (queued.overtaken >= self.overtakes_max()
                    || queued.arrived.after(after) <= self.pool.now)
        })
    }

    /// The queued request that must go to a replica before an arriving one does.
    pub(super) fn entitled_before(&self, dispatch: Dispatch) -> Option<QueueSeq> {
        let oldest = || {
            let mut eligible = self.pool.queue.within_slo(dispatch.replica);
            eligible.next().map(|(seq, _)| seq)
        };
        let entitled = self.entitled(dispatch.replica);
        entitled.or_else(|| self.is_crowded().then(oldest).flatten())
    }

    /// Whether so many requests wait for particular replicas that the others would idle beside a long queue.
    pub(super) fn is_crowded(&self) -> bool {
        self.pool.queue.delayed() >= self.overtakes_max() as usize
            && !self.policy.rules().is_bound_to_candidates
    }

    /// Counts an overtake for the older requests that would have taken the replica of a dispatched one.
    pub(super) fn count_overtakes(&mut self, seq: QueueSeq, replica: ReplicaIndex) {
        let overtakes_max = self.overtakes_max();
        let policy = &self.policy;
        self.pool
            .queue
            .count_overtakes(seq, replica, LOOKED_AT_MAX, overtakes_max, |queued| {
                policy.would_take(queued, replica)
            });
    }
}

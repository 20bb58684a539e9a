//! Rejections of requests that wait: for too long, for replicas that left, or during a shutdown.
//!
//! Thousands of requests may arrive at once, and expire at once. One event rejects a bounded number of them, and the rest is
//! due at once. A replica that left stays in the restrictions of such requests for that long. Nothing is dispatched to it,
//! and its index is not reused before.

use core::time::Duration;
use std::collections::BTreeMap;

use super::Router;
use crate::queue::{Band, QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;
use crate::{Effect, RejectReason, RequestId, Time};

/// Shortest time after which a client is told to retry a rejected request.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// Longest time after which a client is told to retry a rejected request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Limit of expired requests that one event rejects; the next event rejects more.
const EXPIRED_PER_EVENT_MAX: usize = 1_024;
/// Limit of restricted requests from whose restriction one event removes a replica.
const UNPINNED_PER_EVENT_MAX: usize = 1_024;

/// Replicas that events are removing from the restrictions of queued requests.
#[derive(Debug, Default)]
pub(super) struct UnpinQueue(BTreeMap<ReplicaIndex, UnpinReason>);

/// Reason for removing a replica from the restrictions of queued requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnpinReason {
    /// The replica gets no requests, and stays in the pool.
    Unavailable,
    /// The replica was removed, and its index is to be retired.
    Removed,
}

impl UnpinQueue {
    pub(super) fn is_pending(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Router {
    /// Removes a replica from the restrictions of queued requests: a bounded number now, and the others with later events.
    pub(super) fn unpin(&mut self, replica: ReplicaIndex, reason: UnpinReason) {
        self.unpinning.0.insert(replica, reason);
        self.unpin_some(replica, reason);
    }

    /// Removes the next replica that left from more restrictions.
    pub(super) fn unpin_more(&mut self) {
        if let Some((replica, reason)) = self.unpinning.0.first_key_value() {
            let (replica, reason) = (*replica, *reason);
            self.unpin_some(replica, reason);
        }
    }

    /// Removes a replica from all restrictions before it gets requests again: the queued requests that it lost must not go to it.
    pub(super) fn finish_unpin(&mut self, replica: ReplicaIndex) {
        while let Some(reason) = self.unpinning.0.get(&replica).copied() {
            self.unpin_some(replica, reason);
        }
    }

    fn unpin_some(&mut self, replica: ReplicaIndex, reason: UnpinReason) {
        for seq in self.pool.queue.unpin(replica, UNPINNED_PER_EVENT_MAX) {
            self.reject_queued(seq, RejectReason::EmptySubset);
        }
        if self.pool.queue.has_pinned_to(replica) {
            return;
        }
        self.unpinning.0.remove(&replica);
        if reason == UnpinReason::Removed {
            self.pool.index.leave(replica);
        }
    }

    /// The time at which the next queued request is rejected.
    pub(super) fn next_rejection(&self) -> Option<Time> {
        let (expires, _) = self.pool.next_expiry()?;
        Some(if self.pool.is_shutting_down {
            self.pool.now
        } else {
            expires
        })
    }

    /// Rejects the requests that have waited too long, and during a shutdown all others, oldest first.
    pub(super) fn reject_expired(&mut self) {
        if self.next_expired().is_none() {
            return;
        }
        let reason = if self.pool.is_shutting_down {
            RejectReason::ShuttingDown
        } else if self.pool.replicas.staying().is_empty() {
            RejectReason::NoReplica
        } else if self.pool.replicas.any_healthy() {
            RejectReason::WaitedTooLong
        } else {
            RejectReason::NoHealthyReplica
        };
        for _ in 0..EXPIRED_PER_EVENT_MAX {
            let Some(seq) = self.next_expired() else {
                return;
            };
            let is_held = |queued: &QueuedRequest| queued.band == Band::Held;
            let was_held = self.pool.queue.get(seq).is_some_and(is_held);
            let reason = match reason {
                RejectReason::WaitedTooLong if was_held => RejectReason::NoSpareCapacity,
                other => other,
            };
            self.reject_queued(seq, reason);
        }
    }

    fn next_expired(&self) -> Option<QueueSeq> {
        let queue = &self.pool.queue;
        if self.pool.is_shutting_down {
            return queue.oldest().map(|(seq, _)| seq);
        }
        let (expires, seq) = self.pool.next_expiry()?;
        (expires <= self.pool.now).then_some(seq)
    }

    pub(super) fn reject_queued(&mut self, seq: QueueSeq, reason: RejectReason) {
        if let Some(queued) = self.dequeue(seq) {
            let tier = self.tier_of(queued.request.tier);
            self.tier_counts.of(tier).rejected += 1;
            self.reject(queued.request.id, reason);
        }
    }

    pub(super) fn reject(&mut self, id: RequestId, reason: RejectReason) {
        // A new request has to expect the wait of the oldest one, which is a held one where requests are held.
        let oldest_wait = self
            .pool
            .queue
            .oldest()
            .map(|(_, queued)| self.pool.now.since(queued.arrived))
            .unwrap_or_default();
        let retry_after = oldest_wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
        self.reject_after(id, reason, retry_after);
    }

    /// Rejects a request, and names the time after which its client may try again.
    pub(super) fn reject_after(
        &mut self,
        id: RequestId,
        reason: RejectReason,
        retry_after: Duration,
    ) {
        *self.counters.rejects.entry(reason).or_default() += 1;
        self.effects.push_back(Effect::Reject {
            id,
            reason,
            retry_after,
        });
    }
}

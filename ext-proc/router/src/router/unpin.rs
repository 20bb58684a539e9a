//! Replicas that leave the restrictions of queued requests.
//!
//! One event changes a bounded number of requests, and the rest is due at once. A replica that left stays in the restrictions of such
//! requests for that long. Nothing is dispatched to it, and its index is not reused before.

use std::collections::BTreeMap;

use crate::index::PrefixIndex;
use crate::queue::{Queue, QueueSeq};
use crate::replica_index::ReplicaIndex;

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
    pub(super) fn add(&mut self, replica: ReplicaIndex, reason: UnpinReason) {
        self.0.insert(replica, reason);
    }

    pub(super) fn contains(&self, replica: ReplicaIndex) -> bool {
        self.0.contains_key(&replica)
    }

    /// The replica that leaves next.
    pub(super) fn first(&self) -> Option<ReplicaIndex> {
        self.0.first_key_value().map(|(replica, _)| *replica)
    }

    /// Removes a replica from a bounded number of restrictions. Returns the requests that no replica may serve any more.
    pub(super) fn unpin(
        &mut self,
        replica: ReplicaIndex,
        queue: &mut Queue,
        index: &mut PrefixIndex,
    ) -> Vec<QueueSeq> {
        let unroutable = queue.unpin(replica, UNPINNED_PER_EVENT_MAX);
        if !queue.has_pinned_to(replica) && self.0.remove(&replica) == Some(UnpinReason::Removed) {
            index.leave(replica);
        }
        unroutable
    }
}

//! Queued requests by the replicas that may serve them.
//!
//! A request that any replica may serve is in one set, a restricted request under each of its replicas. A search for one
//! replica then meets no request of another one.

use std::collections::BTreeSet;

use itertools::Itertools;

use super::QueueSeq;
use crate::replica_index::ReplicaIndex;

#[derive(Debug, Default)]
pub(super) struct EligibleSet {
    /// The requests that any replica may serve.
    open: BTreeSet<QueueSeq>,
    /// The restricted requests, under each replica that may serve them.
    pinned: BTreeSet<(ReplicaIndex, QueueSeq)>,
}

impl EligibleSet {
    pub(super) fn insert(&mut self, seq: QueueSeq, pinned: Option<&[ReplicaIndex]>) {
        match pinned {
            None => {
                self.open.insert(seq);
            }
            Some(replicas) => self
                .pinned
                .extend(replicas.iter().map(|replica| (*replica, seq))),
        }
    }

    pub(super) fn remove(&mut self, seq: QueueSeq, pinned: Option<&[ReplicaIndex]>) {
        if self.open.is_empty() && self.pinned.is_empty() {
            return;
        }
        match pinned {
            None => {
                self.open.remove(&seq);
            }
            Some(replicas) => {
                for replica in replicas {
                    self.pinned.remove(&(*replica, seq));
                }
            }
        }
    }

    /// Removes a restricted request from one of its replicas.
    pub(super) fn unpin(&mut self, seq: QueueSeq, replica: ReplicaIndex) {
        self.pinned.remove(&(replica, seq));
    }

    /// Number of pairs of a restricted request and a replica that may serve it.
    pub(super) fn pins(&self) -> usize {
        self.pinned.len()
    }

    /// The oldest restricted requests of a replica, up to so many.
    pub(super) fn pinned_to(&self, replica: ReplicaIndex, at_most: usize) -> Vec<QueueSeq> {
        self.all_pinned_to(replica).take(at_most).collect()
    }

    pub(super) fn has_pinned_to(&self, replica: ReplicaIndex) -> bool {
        self.all_pinned_to(replica).next().is_some()
    }

    fn all_pinned_to(&self, replica: ReplicaIndex) -> impl Iterator<Item = QueueSeq> + '_ {
        self.pinned
            .range((replica, QueueSeq::FIRST)..=(replica, QueueSeq::LAST))
            .map(|(_, seq)| *seq)
    }

    /// The requests between two positions that a replica may serve, oldest first.
    pub(super) fn between(
        &self,
        replica: ReplicaIndex,
        from: QueueSeq,
        to: QueueSeq,
    ) -> impl Iterator<Item = QueueSeq> + '_ {
        let pinned = self.pinned.range((replica, from)..=(replica, to));
        let open = self.open.range(from..=to).copied();
        open.merge(pinned.map(|(_, seq)| *seq))
    }
}

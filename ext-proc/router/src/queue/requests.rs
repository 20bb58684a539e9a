//! The queued requests themselves: found by position in one step, and listed in the order of arrival.
//!
//! A search of the queue looks up about a hundred requests. In a tree over 100,000 of them, each lookup waits for memory several times.

use core::ops::RangeBounds;
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::{QueueSeq, QueuedRequest};

/// Requests by their position in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Boxed, which keeps the table small.
    by_seq: HashMap<QueueSeq, Box<QueuedRequest>, FixedState>,
    order: BTreeSet<QueueSeq>,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn get(&self, seq: QueueSeq) -> Option<&QueuedRequest> {
        self.by_seq.get(&seq).map(|queued| &**queued)
    }

    pub(super) fn get_mut(&mut self, seq: QueueSeq) -> Option<&mut QueuedRequest> {
        self.by_seq.get_mut(&seq).map(|queued| &mut **queued)
    }

    pub(super) fn insert(&mut self, queued: QueuedRequest) {
        self.order.insert(queued.seq);
        self.by_seq.insert(queued.seq, Box::new(queued));
    }

    pub(super) fn remove(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        self.order.remove(&seq);
        self.by_seq.remove(&seq).map(|queued| *queued)
    }

    /// All requests, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuedRequest> + '_ {
        self.order.iter().filter_map(|seq| self.get(*seq))
    }

    /// Changes all requests, oldest first.
    pub(super) fn for_each_by_arrival(&mut self, mut change: impl FnMut(&mut QueuedRequest)) {
        for seq in &self.order {
            if let Some(queued) = self.by_seq.get_mut(seq) {
                change(queued);
            }
        }
    }

    /// The requests of a range, oldest first.
    pub(super) fn range(
        &self,
        range: impl RangeBounds<QueueSeq>,
    ) -> impl Iterator<Item = &QueuedRequest> + '_ {
        let seqs = self.order.range(range);
        seqs.filter_map(|seq| self.get(*seq))
    }
}

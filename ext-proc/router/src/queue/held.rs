//! The second band: batch requests that the gate holds, by deadline (SageServe 6.2).

use super::eligible::EligibleSet;
use super::forwardable::ForwardableSet;
use super::{LinePlace, Queue, QueueSeq, QueuedRequest};
use crate::{PeerId, Time};

#[derive(Debug, Default)]
pub(super) struct HeldRequests {
    pub(super) eligible: EligibleSet,
    forwardable: ForwardableSet,
}

impl HeldRequests {
    pub(super) fn place(queued: &QueuedRequest) -> LinePlace {
        LinePlace::new(0, queued.deadline().as_nanos(), queued.seq)
    }

    pub(super) fn insert(&mut self, queued: &QueuedRequest) {
        let pinned = queued.pinned.as_deref();
        self.eligible.insert(queued.place, pinned);
        self.forwardable.insert(queued.seq, &queued.request);
    }

    pub(super) fn remove(&mut self, queued: &QueuedRequest) {
        let pinned = queued.pinned.as_deref();
        self.eligible.remove(queued.place, pinned);
        self.forwardable.remove(queued.seq, &queued.request);
    }
}

impl Queue {
    /// Number of held requests.
    pub(crate) fn held_len(&self) -> usize {
        self.held.eligible.len()
    }

    /// The held requests in the order of their deadlines.
    pub(crate) fn held_in_order(&self) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let seqs = self.held.eligible.all().map(LinePlace::seq);
        seqs.filter_map(|seq| Some((seq, self.get(seq)?)))
    }

    /// The held request with the nearest deadline, and that deadline.
    pub(crate) fn next_deadline(&self) -> Option<(Time, QueueSeq)> {
        let place = self.held.eligible.first()?;
        Some((Time::from_nanos(place.key()), place.seq()))
    }

    /// The held request with the last deadline, which gives way when the queue is full.
    pub(crate) fn last_held(&self) -> Option<QueueSeq> {
        self.held.eligible.last().map(LinePlace::seq)
    }

    /// The oldest held request that may be forwarded; `is_open_to` says whether a peer is left for a set of tried ones.
    pub(crate) fn next_held_forwardable(
        &self,
        is_open_to: impl Fn(&[PeerId]) -> bool,
    ) -> Option<QueueSeq> {
        self.held.forwardable.next(QueueSeq::FIRST, is_open_to)
    }
}

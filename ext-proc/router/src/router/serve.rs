//! Who is served next: what an event has freed is offered to those that wait.
//!
//! The policy says who takes a freed replica, and where that one goes. The bounds on fairness are kept here.

use core::time::Duration;
use smallvec::SmallVec;

use super::Router;
use super::admit::{Dispatch, Routing};
use crate::Time;
use crate::policy::{DelayedRequests, LOOKED_AT_MAX, NextRequest};
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

/// How often those are asked again that wait for one replica although others are free.
const REVIEW_INTERVAL: Duration = Duration::from_millis(50);

/// How many replicas they are offered each time.
const REVIEWED_MAX: usize = 16;

/// What came of offering a replica to those that wait.
enum OfferResult {
    /// One of them went somewhere.
    Dispatched,
    /// The one that was asked wants to wait for another replica.
    Declined,
    /// Nobody is to take it.
    NotTaken,
}

impl Router {
    /// Serves whoever waits for what this event has freed, oldest first: here, and then elsewhere.
    pub(super) fn pump(&mut self) {
        self.serve_freed();
        self.forward_queued();
    }

    fn serve_freed(&mut self) {
        if self.queue.len() == 0 {
            self.replicas.forget_freed();
            self.offer_declined = false;
            return;
        }
        let mut freed = self.replicas.take_freed();
        if self.is_review_due() {
            self.offer_declined = false;
            freed = self.under_review();
        }
        let mut skipped: SmallVec<[QueueSeq; 8]> = SmallVec::new();
        loop {
            if self.replicas.take_throttle_ended() {
                // The last idle one has been given something to do.
                freed = self.replicas.available().iter().collect();
            }
            freed.retain(|slot| self.replicas.available().contains(*slot));
            let offer = freed
                .iter()
                .filter_map(|slot| Some((self.first_eligible(*slot, &skipped)?, *slot)))
                .min();
            let Some((_, slot)) = offer else {
                return;
            };
            match self.serve(slot, &mut skipped) {
                OfferResult::Dispatched | OfferResult::Declined => {}
                OfferResult::NotTaken => freed.retain(|other| *other != slot),
            }
        }
    }

    /// Whether it is time to ask those again that wait for one replica although others are free.
    fn is_review_due(&mut self) -> bool {
        let due = self.next_review().is_some_and(|next| next <= self.now);
        if due {
            self.reviewed = self.now;
        }
        due
    }

    /// Some of the available replicas, in turn from one review to the next.
    fn under_review(&mut self) -> Vec<ReplicaIndex> {
        let available = self.replicas.available();
        let mut offered = Vec::new();
        let mut from = self.review_from;
        for _ in 0..available.len().min(REVIEWED_MAX) {
            let Some(slot) = available.next_round(from) else {
                break;
            };
            offered.push(slot);
            from = ReplicaIndex(slot.0.wrapping_add(1));
        }
        self.review_from = from;
        offered
    }

    /// When that is.
    pub(super) fn next_review(&self) -> Option<Time> {
        let is_choosy = self.queue.has_preferences() || self.offer_declined;
        let is_due = is_choosy && !self.replicas.available().is_empty();
        is_due.then(|| self.reviewed.after(REVIEW_INTERVAL))
    }

    /// Asks who takes a freed replica, and where that one wants to go.
    fn serve(&mut self, slot: ReplicaIndex, skipped: &mut SmallVec<[QueueSeq; 8]>) -> OfferResult {
        let at_overtake_limit = if skipped.len() >= LOOKED_AT_MAX {
            self.first_eligible(slot, &[])
        } else {
            self.queue.at_overtake_limit(slot)
        };
        let mut delayed = DelayedRequests::new();
        let taken = at_overtake_limit.map(NextRequest::AnyReplica).or_else(|| {
            let candidates = self.replicas.available();
            let view = self.view(candidates);
            let mut queued = self
                .queue
                .eligible(slot)
                .filter(|(seq, _)| !skipped.contains(seq))
                .take(LOOKED_AT_MAX);
            self.policy
                .select_request(slot, &mut queued, &view, &mut delayed)
        });
        for (seq, home) in &delayed {
            self.queue.set_preferred(*seq, Some(*home), self.now);
        }
        let seq = match taken {
            None if delayed.len() >= LOOKED_AT_MAX => {
                // So many decline it that it would idle behind a long line: the oldest has to take it.
                let oldest = delayed.first().map(|(seq, _)| *seq);
                let forced =
                    oldest.and_then(|seq| Some((seq, self.settle(self.queue.get(seq)?, true))));
                let Some((seq, Routing::Dispatch(settled))) = forced else {
                    return OfferResult::NotTaken;
                };
                self.go(seq, settled);
                return OfferResult::Dispatched;
            }
            None => {
                self.offer_declined = true;
                return OfferResult::NotTaken;
            }
            Some(NextRequest::ThisReplica {
                seq,
                reason,
                matched,
            }) => {
                if !self.queue.may_go(seq, slot) {
                    skipped.push(seq);
                    return OfferResult::Declined;
                }
                let settled = Dispatch {
                    slot,
                    reason,
                    matched,
                };
                self.go(seq, settled);
                return OfferResult::Dispatched;
            }
            Some(NextRequest::AnyReplica(seq)) => seq,
        };
        let Some(queued) = self.queue.get(seq) else {
            return OfferResult::NotTaken;
        };
        match self.settle(queued, at_overtake_limit.is_some()) {
            Routing::Dispatch(settled) => {
                self.go(seq, settled);
                OfferResult::Dispatched
            }
            Routing::Wait(preferred) => {
                self.queue.set_preferred(seq, preferred, self.now);
                skipped.push(seq);
                OfferResult::Declined
            }
        }
    }

    /// A waiting request goes; older ones that could have gone there are passed over.
    pub(super) fn go(&mut self, seq: QueueSeq, settled: Dispatch) {
        let max_overtakes = self.policy.max_overtakes();
        self.queue
            .count_overtakes(seq, settled.slot, LOOKED_AT_MAX, max_overtakes);
        if let Some(queued) = self.dequeue(seq) {
            self.dispatch(queued, settled);
        }
    }

    fn first_eligible(&self, slot: ReplicaIndex, skipped: &[QueueSeq]) -> Option<QueueSeq> {
        self.queue
            .eligible(slot)
            .map(|(seq, _)| seq)
            .find(|seq| !skipped.contains(seq))
    }
}

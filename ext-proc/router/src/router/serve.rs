//! Service of queued requests: an event frees replicas, and the policy selects the requests that they serve.
//!
//! The router keeps the bounds on fairness: a request at its overtake limit goes first, and when too many requests leave a
//! replica free, the oldest has to take it.

use core::time::Duration;
use smallvec::SmallVec;

use super::Router;
use super::decide::RoutingDecision;
use crate::Time;
use crate::policy::{DelayedRequests, LOOKED_AT_MAX, NextRequest};
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

/// Interval at which free replicas are offered again to requests that wait for a particular one.
const REVIEW_INTERVAL: Duration = Duration::from_millis(50);

/// Free replicas that one review offers.
const REVIEWED_MAX: usize = 16;

/// The requests that a round of offers skips.
type SkippedRequests = SmallVec<[QueueSeq; 8]>;

/// Reviews of free replicas that no request took.
#[derive(Debug, Default)]
pub(super) struct Review {
    last: Time,
    /// The replica that the next review begins with.
    next: ReplicaIndex,
    /// Whether the queued requests left a free replica when it was offered last.
    pub(super) is_pending: bool,
}

impl Router {
    /// Serves queued requests with the replicas that the event has freed, and then with peers.
    pub(super) fn serve_queue(&mut self) {
        self.serve_freed();
        self.forward_queued();
    }

    fn serve_freed(&mut self) {
        if self.pool.queue.len() == 0 {
            self.pool.replicas.forget_freed();
            self.review.is_pending = false;
            return;
        }
        let mut freed = self.pool.replicas.take_freed();
        if self.next_review().is_some_and(|next| next <= self.pool.now) {
            freed = self.begin_review();
        }
        let mut skipped = SkippedRequests::new();
        loop {
            if self.pool.replicas.take_throttle_ended() {
                // The last idle replica was sent a request, so the others take more again.
                freed = self.pool.replicas.available().iter().collect();
            }
            freed.retain(|replica| self.pool.replicas.available().contains(*replica));
            let offer = freed
                .iter()
                .filter_map(|replica| Some((self.first_eligible(*replica, &skipped)?, *replica)))
                .min();
            let Some((_, replica)) = offer else {
                return;
            };
            if !self.offer(replica, &mut skipped) {
                freed.retain(|other| *other != replica);
            }
        }
    }

    /// Begins a review: some of the available replicas, in turn from one review to the next.
    fn begin_review(&mut self) -> Vec<ReplicaIndex> {
        self.review.last = self.pool.now;
        self.review.is_pending = false;
        let available = self.pool.replicas.available();
        let mut offered = Vec::new();
        for _ in 0..available.len().min(REVIEWED_MAX) {
            let Some(replica) = available.next_round(self.review.next) else {
                break;
            };
            offered.push(replica);
            self.review.next = ReplicaIndex(replica.0.wrapping_add(1));
        }
        offered
    }

    /// The time of the next review, when a request waits for a particular replica while another one is free.
    pub(super) fn next_review(&self) -> Option<Time> {
        let is_needed = self.pool.queue.has_preferences() || self.review.is_pending;
        let is_due = is_needed && !self.pool.replicas.available().is_empty();
        is_due.then(|| self.review.last.after(REVIEW_INTERVAL))
    }

    /// Offers a freed replica to the queued requests. Returns whether a request was dispatched, or skipped for another replica.
    fn offer(&mut self, replica: ReplicaIndex, skipped: &mut SkippedRequests) -> bool {
        let at_limit = if skipped.len() >= LOOKED_AT_MAX {
            self.first_eligible(replica, &[])
        } else {
            self.pool.queue.at_overtake_limit(replica)
        };
        let mut delayed = DelayedRequests::new();
        let next = at_limit
            .map(NextRequest::AnyReplica)
            .or_else(|| self.select_request(replica, skipped, &mut delayed));
        let now = self.pool.now;
        for (seq, preferred) in &delayed {
            self.pool.queue.set_preferred(*seq, Some(*preferred), now);
        }
        match next {
            Some(NextRequest::AnyReplica(seq)) => {
                self.dispatch_or_skip(seq, at_limit.is_some(), skipped)
            }
            Some(NextRequest::ThisReplica(seq, dispatch)) => {
                if self.pool.queue.may_go(seq, replica) {
                    self.dispatch_queued(seq, dispatch);
                } else {
                    skipped.push(seq);
                }
                true
            }
            // So many requests leave the replica free that it would idle beside a long queue.
            None if delayed.len() >= LOOKED_AT_MAX => self.dispatch_oldest(&delayed),
            None => {
                self.review.is_pending = true;
                false
            }
        }
    }

    fn select_request(
        &self,
        replica: ReplicaIndex,
        skipped: &SkippedRequests,
        delayed: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let view = self.pool.view(self.pool.replicas.available());
        let mut queued = self
            .pool
            .queue
            .eligible(replica)
            .filter(|(seq, _)| !skipped.contains(seq))
            .take(LOOKED_AT_MAX);
        self.policy
            .select_request(replica, &mut queued, &view, delayed)
    }

    /// Dispatches a request to the replica that the policy selects for it, or skips it when it waits for another one.
    fn dispatch_or_skip(
        &mut self,
        seq: QueueSeq,
        must_go: bool,
        skipped: &mut SkippedRequests,
    ) -> bool {
        match self.route_queued(seq, must_go) {
            Some(RoutingDecision::Dispatch(dispatch)) => {
                self.dispatch_queued(seq, dispatch);
                true
            }
            Some(RoutingDecision::Wait(preferred)) => {
                let now = self.pool.now;
                self.pool.queue.set_preferred(seq, preferred, now);
                skipped.push(seq);
                true
            }
            Some(RoutingDecision::Forward(_) | RoutingDecision::Reject(_)) | None => false,
        }
    }

    fn dispatch_oldest(&mut self, delayed: &DelayedRequests) -> bool {
        let oldest = delayed.first().map(|(seq, _)| *seq);
        let routing = oldest.and_then(|seq| Some((seq, self.route_queued(seq, true)?)));
        let Some((seq, RoutingDecision::Dispatch(dispatch))) = routing else {
            return false;
        };
        self.dispatch_queued(seq, dispatch);
        true
    }

    fn route_queued(&self, seq: QueueSeq, must_go: bool) -> Option<RoutingDecision> {
        let queued = self.pool.queue.get(seq)?;
        Some(self.route(queued, must_go, self.pool.replicas.available()))
    }

    fn first_eligible(&self, replica: ReplicaIndex, skipped: &[QueueSeq]) -> Option<QueueSeq> {
        self.pool
            .queue
            .eligible(replica)
            .map(|(seq, _)| seq)
            .find(|seq| !skipped.contains(seq))
    }
}

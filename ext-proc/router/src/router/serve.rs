//! Service of queued requests: an event frees replicas, and the policy selects the requests that they serve.
//!
//! The bounds of [`super::overtaking`] come first. One event does a bounded amount of work: what is left of it is due at once,
//! and until then arrivals wait behind the requests that are being served. A few freed replicas are offered to the requests.
//! Many are not, since the requests that wait are then the shorter list: each of them selects its replica, oldest first.

use core::cell::Cell;
use core::time::Duration;
use smallvec::SmallVec;

use super::Router;
use super::decide::RoutingDecision;
use crate::Time;
use crate::constant::constants;
use crate::policy::{DelayedRequests, LOOKED_AT_BY_AFFINITY_MAX, LOOKED_AT_MAX, NextRequest};
use crate::queue::{LinePlace, QueueSeq};
use crate::replica_index::ReplicaIndex;

constants! {
    /// Interval at which free replicas are offered again to requests that wait for a particular one.
    REVIEW_INTERVAL: Duration = Duration::from_millis(50);
    /// Free replicas that one review offers.
    REVIEWED_MAX: usize = 16;
    /// Freed replicas that are offered to the requests, at most. Among more, the requests select.
    OFFERED_MAX: usize = 32;
}

/// Requests that one event considers for freed replicas, at most.
const CONSIDERED_MAX: usize = 512;

constants! {
    /// The cost of an offer beside the requests that it considers, in requests.
    OFFER_COST: usize = 8;
}

/// The requests that a round of offers skips.
type SkippedRequests = SmallVec<[QueueSeq; 8]>;

/// Repeated offers of free replicas that no request took.
#[derive(Debug, Default)]
pub(super) struct Review {
    last: Time,
    /// The replica that the next review begins with.
    next: ReplicaIndex,
    /// Whether the queued requests left a free replica when it was offered last.
    pub(super) is_pending: bool,
}

/// The service of freed replicas that the last event has left over.
#[derive(Debug, Default)]
pub(super) struct PendingService {
    /// Replicas that are to be offered.
    freed: Vec<ReplicaIndex>,
    /// Requests that did not take an offered replica, since they wait for another. The next event skips them, or it would offer the
    /// same replicas to the same requests for ever.
    skipped: SkippedRequests,
    /// The point up to which the requests have selected, while they select among many replicas.
    cursor: Option<Cursor>,
}

/// The point up to which the queued requests have selected a replica.
#[derive(Clone, Copy, Debug)]
enum Cursor {
    Start,
    UpTo(LinePlace),
}

impl PendingService {
    /// Whether the service goes on at once.
    pub(super) const fn is_pending(&self) -> bool {
        self.cursor.is_some() || !self.freed.is_empty()
    }
}

/// The service of freed replicas in one event.
#[derive(Debug, Default)]
struct Round {
    freed: Vec<ReplicaIndex>,
    skipped: SkippedRequests,
    /// Requests considered so far.
    considered: usize,
}

impl Round {
    const fn is_over(&self) -> bool {
        self.considered >= CONSIDERED_MAX
    }
}

impl Router {
    /// Serves queued requests with the replicas that the event has freed, and then with peers.
    pub(super) fn serve_queue(&mut self) {
        self.release_share();
        self.serve_freed();
        let has_promoted = self.promote_due();
        self.forward_queued();
        if self.release_batch() || has_promoted {
            // Where the last idle replica was sent a request, the others take more again.
            self.serve_freed();
        }
        self.forward_held();
    }

    fn serve_freed(&mut self) {
        if self.pool.queue.waiting_len() == 0 {
            self.pool.replicas.forget_freed();
            self.review.is_pending = false;
            self.pending_service = PendingService::default();
            return;
        }
        let mut round = Round {
            freed: core::mem::take(&mut self.pending_service.freed),
            skipped: core::mem::take(&mut self.pending_service.skipped),
            considered: 0,
        };
        let freed = self.pool.replicas.take_freed();
        if !freed.is_empty() {
            // The skipped requests may wait for one of the freed replicas.
            round.skipped.clear();
        }
        round.freed.extend(freed);
        if self.next_review().is_some_and(|next| next <= self.pool.now) {
            round.freed.extend(self.begin_review());
        }
        self.offer_freed(&mut round);
        self.let_requests_select(&mut round);
    }

    /// Offers the freed replicas, the one with the oldest request first.
    fn offer_freed(&mut self, round: &mut Round) {
        loop {
            round.freed.sort_unstable();
            round.freed.dedup();
            if round.freed.len() > OFFERED_MAX.get() {
                self.pending_service.cursor = Some(Cursor::Start);
                return;
            }
            let available = self.pool.replicas.available();
            round.freed.retain(|replica| available.contains(*replica));
            let Some(replica) = self.next_to_offer(round) else {
                return;
            };
            if round.is_over() {
                self.pending_service.freed = core::mem::take(&mut round.freed);
                self.pending_service.skipped = core::mem::take(&mut round.skipped);
                return;
            }
            if !self.offer(replica, round) {
                round.freed.retain(|other| *other != replica);
            }
        }
    }

    /// The freed replica whose first request comes first.
    fn next_to_offer(&self, round: &Round) -> Option<ReplicaIndex> {
        let queue = &self.pool.queue;
        let first = |replica: &ReplicaIndex| {
            let first = queue.get(self.first_eligible(*replica, &round.skipped)?)?;
            Some((queue.rules().rank(first.place, self.pool.now), *replica))
        };
        let mut freed = round.freed.iter();
        if queue.pins() == 0 && queue.waiting_len() > round.skipped.len() {
            // Each replica may serve every request.
            return freed.next().copied();
        }
        let (_, replica) = freed.filter_map(first).min()?;
        Some(replica)
    }

    /// Lets the queued requests select among all available replicas, oldest first.
    fn let_requests_select(&mut self, round: &mut Round) {
        while let Some(cursor) = self.pending_service.cursor {
            if round.is_over() {
                return;
            }
            let queue = &self.pool.queue;
            let next = match cursor {
                Cursor::Start => queue.first_in_order(),
                Cursor::UpTo(place) => queue.next_in_order(place),
            };
            let next = next.filter(|_| !self.pool.replicas.available().is_empty());
            self.pending_service.cursor = next.map(Cursor::UpTo);
            let Some(seq) = next.map(LinePlace::seq) else {
                break;
            };
            round.considered += OFFER_COST.get();
            let must_go = self.is_entitled(seq) || self.is_crowded();
            self.dispatch_or_skip(seq, must_go, &mut round.skipped);
            self.pool.replicas.forget_freed();
        }
    }

    /// Begins a review: some of the available replicas, in turn from one review to the next.
    fn begin_review(&mut self) -> Vec<ReplicaIndex> {
        self.review.last = self.pool.now;
        self.review.is_pending = false;
        let available = self.pool.replicas.available();
        let mut offered = Vec::new();
        for _ in 0..available.len().min(REVIEWED_MAX.get()) {
            let Some(replica) = available.next_round(self.review.next) else {
                break;
            };
            offered.push(replica);
            self.review.next = ReplicaIndex(replica.0.wrapping_add(1));
        }
        offered
    }

    /// The time at which queued requests are next served without an event.
    pub(super) fn next_service(&self) -> Option<Time> {
        if self.pending_service.is_pending() {
            return Some(self.pool.now);
        }
        self.next_review()
    }

    /// The time of the next review, when a request waits for a particular replica while another one is free.
    fn next_review(&self) -> Option<Time> {
        let is_needed = self.pool.queue.has_preferences() || self.review.is_pending;
        let is_due = is_needed && !self.pool.replicas.available().is_empty();
        is_due.then(|| self.review.last.after(REVIEW_INTERVAL.get()))
    }

    /// Offers a freed replica to the queued requests. Returns whether a request was dispatched, or skipped for another replica.
    fn offer(&mut self, replica: ReplicaIndex, round: &mut Round) -> bool {
        round.considered += OFFER_COST.get();
        let has_skipped_many = round.skipped.len() >= LOOKED_AT_MAX;
        if has_skipped_many && !self.is_crowded() {
            self.review.is_pending = true;
            return false;
        }
        let at_limit = if has_skipped_many {
            self.first_eligible(replica, &[])
        } else {
            self.entitled(replica)
        };
        let mut delayed = DelayedRequests::new();
        let next = at_limit
            .map(NextRequest::AnyReplica)
            .or_else(|| self.select_request(replica, round, &mut delayed));
        let is_settled = delayed.len() >= LOOKED_AT_MAX && self.is_crowded();
        let now = self.pool.now;
        for (seq, preferred) in &delayed {
            self.pool.queue.set_preferred(*seq, Some(*preferred), now);
        }
        match next {
            Some(NextRequest::AnyReplica(seq)) => {
                self.dispatch_or_skip(seq, at_limit.is_some(), &mut round.skipped)
            }
            Some(NextRequest::ThisReplica(seq, dispatch)) => {
                if self.pool.queue.may_go(seq, replica) {
                    self.dispatch_queued(seq, dispatch);
                } else {
                    round.skipped.push(seq);
                }
                true
            }
            None if is_settled => self.dispatch_oldest(&delayed),
            None => {
                self.review.is_pending = true;
                false
            }
        }
    }

    /// Selects among the oldest requests, and the later ones whose affinity replica was freed.
    fn select_request(
        &self,
        replica: ReplicaIndex,
        round: &mut Round,
        delayed: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let view = self.pool.view(self.pool.replicas.available());
        let (queue, skipped) = (&self.pool.queue, &round.skipped);
        let (considered, last) = (Cell::new(0), Cell::new(None));
        let oldest = queue
            .eligible(replica)
            .filter(|(seq, _)| !skipped.contains(seq))
            .take(LOOKED_AT_MAX)
            .inspect(|(seq, _)| last.set(Some(*seq)));
        let later = || {
            let last = queue.get(last.get()?)?;
            let later = queue.with_affinity(replica, last.place);
            let later =
                later.filter(|(seq, queued)| !skipped.contains(seq) && queued.may_go(replica));
            Some(later.take(LOOKED_AT_BY_AFFINITY_MAX))
        };
        let later = core::iter::once_with(later).flatten().flatten();
        let mut queued = oldest
            .chain(later)
            .inspect(|_| considered.set(considered.get() + 1));
        let next = self
            .policy
            .select_request(replica, &mut queued, &view, delayed);
        round.considered += considered.get();
        next
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
        let queue = &self.pool.queue;
        let is_open = |(seq, _): (QueueSeq, _)| (!skipped.contains(&seq)).then_some(seq);
        queue.eligible(replica).find_map(is_open)
    }
}

//! Service of queued requests: an event frees replicas, and the requests that wait take them.
//!
//! ```text
//! while a freed replica is free:
//!     for each request that waits for it or for any replica, by worth to the policy and in the order of service:
//!         decide as for an arriving request: take a replica, this one or a better one, or wait
//! ```
//!
//! A request that waits for another replica is not asked: the review asks it again, since a wait changes what a replica is worth.
//! Each round asks a request once, and each event a bounded number: what is left is due at once, and until then arrivals wait
//! behind the requests that are being served. `docs/design/queue.md` has the bounds on waits.

use core::time::Duration;

use smallvec::SmallVec;

use super::Router;
use super::decide::RoutingDecision;
use crate::Time;
use crate::constant::constants;
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

constants! {
    /// Interval at which free replicas are shown again to requests that wait for a particular one.
    REVIEW_INTERVAL: Duration = Duration::from_millis(50);
    /// Free replicas that one review shows.
    REVIEWED_MAX: usize = 16;
}

/// Requests that are found at a time to be asked: mostly the first ones take what is free.
const ASKED_AT_ONCE: usize = 16;
/// The first requests of the line, among which those worth most to a freed replica are asked first.
const WEIGHED_MAX: usize = 64;
/// Requests that wait for a replica or for any, and are looked at to find those, at most.
const LOOKED_AT_MAX: usize = 1_024;
/// Requests that wait for other replicas, and are asked in a review, at most.
const REVIEWED_REQUESTS_MAX: usize = 64;
/// Requests that one event asks, at most.
const ASKED_PER_EVENT_MAX: usize = 512;

/// The requests that are asked for a free replica, each with its place among them by the order of service.
type AskedRequests = SmallVec<[(usize, QueueSeq); ASKED_AT_ONCE]>;

/// The round of service that goes on, and the reviews.
#[derive(Debug, Default)]
pub(super) struct Service {
    /// Replicas that are still to be shown.
    freed: Vec<ReplicaIndex>,
    /// Number of the round: a request is asked once in each.
    round: u64,
    /// Whether the round is a review, which asks the requests that wait for other replicas, too.
    is_review: bool,
    /// Time of the last review.
    reviewed: Time,
    /// The replica that the next review begins with.
    next: ReplicaIndex,
    /// Whether a request may wait beside a free replica, though for none in particular.
    pub(super) needs_review: bool,
}

impl Service {
    /// Whether the service goes on at once.
    pub(super) const fn is_pending(&self) -> bool {
        !self.freed.is_empty()
    }
}

impl Router {
    /// Serves queued requests with the replicas that the event has freed, and then with peers.
    pub(super) fn serve_queue(&mut self) {
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
            self.service.freed.clear();
            self.service.needs_review = false;
            return;
        }
        self.begin_round();
        let mut total = 0;
        while total < ASKED_PER_EVENT_MAX {
            let available = self.pool.replicas.available();
            self.service
                .freed
                .retain(|replica| available.contains(*replica));
            if self.service.freed.is_empty() {
                return;
            }
            let asked = self.next_asked();
            if asked.is_empty() {
                let mut freed = core::mem::take(&mut self.service.freed).into_iter();
                let queue = &self.pool.queue;
                self.service.needs_review |= freed.any(|replica| queue.has_eligible(replica));
                return;
            }
            for (place, seq) in &asked {
                if self.pool.replicas.available().is_empty() {
                    break;
                }
                total += 1;
                if self.ask(*seq) {
                    let earlier = asked.iter().filter(|(other, _)| other < place);
                    earlier.for_each(|(_, other)| self.pool.queue.count_overtake(*other));
                }
            }
        }
    }

    /// Adds the freed replicas to the round, and those of a review that is due. A round with new replicas asks every request again.
    fn begin_round(&mut self) {
        let freed = self.pool.replicas.take_freed();
        let is_review = self.next_review().is_some_and(|next| next <= self.pool.now);
        if freed.is_empty() && !is_review {
            return;
        }
        self.service.round += 1;
        self.service.is_review = is_review;
        self.service.freed.extend(freed);
        if is_review {
            self.begin_review();
        }
        self.service.freed.sort_unstable();
        self.service.freed.dedup();
    }

    /// Adds some of the available replicas to the round, in turn from one review to the next.
    fn begin_review(&mut self) {
        let service = &mut self.service;
        service.reviewed = self.pool.now;
        service.needs_review = false;
        let available = self.pool.replicas.available();
        for _ in 0..available.len().min(REVIEWED_MAX.get()) {
            let Some(replica) = available.next_round(service.next) else {
                return;
            };
            service.freed.push(replica);
            service.next = ReplicaIndex(replica.0.wrapping_add(1));
        }
    }

    /// The time at which queued requests are next served without an event.
    pub(super) fn next_service(&self) -> Option<Time> {
        if self.service.is_pending() {
            return Some(self.pool.now);
        }
        self.next_review()
    }

    /// The time of the next review, when a request waits for a particular replica while another one is free.
    fn next_review(&self) -> Option<Time> {
        let is_needed = self.pool.queue.delayed() > 0 || self.service.needs_review;
        let is_due = is_needed && !self.pool.replicas.available().is_empty();
        is_due.then(|| self.service.reviewed.after(REVIEW_INTERVAL.get()))
    }

    /// The requests that are asked next, as far as a freed replica may serve them: a long prompt whose turn it is, the first request if it
    /// goes to any replica, and then some that wait for one of the freed replicas or for any; at last, in a review, some that wait
    /// for others.
    fn next_asked(&self) -> AskedRequests {
        let (queue, freed) = (&self.pool.queue, &*self.service.freed);
        let is_asked = |seq: &QueueSeq| {
            let queued = queue.get(*seq);
            queued.is_some_and(|queued| queued.asked_in != self.service.round)
        };
        let long = queue.long_prompt_past_slo(freed);
        let long = long.filter(|seq| queue.get(*seq).is_some_and(|long| self.is_due(long)));
        // Without a request that waits for a particular replica, the first open one is the first of all.
        let first = (queue.delayed() > 0)
            .then(|| queue.eligible(freed).next())
            .flatten();
        let first = first.filter(|seq| queue.get(*seq).is_some_and(|first| self.must_go(first)));
        let urgent = long.into_iter().chain(first).filter(is_asked);
        let mut asked: AskedRequests = urgent.map(|seq| (0, seq)).collect();
        let open = queue.open_to(freed).take(LOOKED_AT_MAX).filter(is_asked);
        self.add_by_worth(open, &mut asked);
        if asked.is_empty() && (self.service.is_review || self.is_crowded()) {
            let others = queue.eligible(freed).take(REVIEWED_REQUESTS_MAX);
            self.add_by_worth(others.filter(is_asked), &mut asked);
        }
        asked
    }

    /// Adds the first of some requests, those worth most to a freed replica first.
    fn add_by_worth(&self, requests: impl Iterator<Item = QueueSeq>, asked: &mut AskedRequests) {
        let freed = self.service.freed.first().copied();
        let replica = freed.filter(|_| self.policy.rules().weighs_requests);
        let Some(replica) = replica else {
            asked.extend(requests.take(ASKED_AT_ONCE).enumerate());
            return;
        };
        let (available, overtakes_max) = (self.pool.replicas.available(), self.overtakes_max());
        let weigh = |(place, seq): (usize, QueueSeq)| {
            let queued = self.pool.queue.get(seq)?;
            let view = self.pool.view_of(queued, available);
            let worth = match queued.overtaken < overtakes_max {
                true => self.policy.worth(&queued.request, replica, &view),
                false => f64::INFINITY,
            };
            Some((worth, (place, seq)))
        };
        let first = requests.take(WEIGHED_MAX).enumerate();
        let mut weighed: SmallVec<[_; WEIGHED_MAX]> = first.filter_map(weigh).collect();
        weighed.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        asked.extend(weighed.into_iter().map(|(_, request)| request));
    }

    /// Asks a request for its decision, and carries it out. Returns whether the request went.
    fn ask(&mut self, seq: QueueSeq) -> bool {
        let Some(queued) = self.pool.queue.get(seq) else {
            return false;
        };
        let available = self.pool.replicas.available();
        match self.route(queued, self.must_go(queued), available) {
            RoutingDecision::Dispatch(dispatch) => {
                self.dispatch_queued(seq, dispatch);
                true
            }
            RoutingDecision::Wait(preferred) => {
                let (now, round) = (self.pool.now, self.service.round);
                self.pool.queue.keep_waiting(seq, preferred, now, round);
                false
            }
            RoutingDecision::Forward(_) | RoutingDecision::Reject(_) => false,
        }
    }
}

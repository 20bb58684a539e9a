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
use super::decide::route;
use super::entitled::{PastSloCredit, is_crowded, overtakes_max, waits_past_slo};
use super::hold::{batch_rules, is_gate_shut, next_released};
use super::regions::{peer_of_waiting, select_peer};
use super::routing::{AvailableTargets, RoutingDecision};
use crate::Time;
use crate::constant::constants;
use crate::policy::Policy;
use crate::pool_state::PoolState;
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

constants! {
    /// Interval at which free replicas are shown again to requests that wait for a particular one.
    REVIEW_INTERVAL: Duration = Duration::from_millis(50);
    /// Free replicas that one review shows.
    REVIEWED_MAX: usize = 16;
    /// Requests that stay although they may leave, considered in one event at most.
    STAYING_MAX: usize = 16;
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
/// Held requests that one event promotes, at most; the rest is due at once.
const PROMOTED_PER_EVENT_MAX: usize = 64;
/// Requests that one event forwards, at most; the rest is due at once.
const FORWARDED_PER_EVENT_MAX: usize = 64;
/// Requests between two considered ones that are counted, at most.
const COUNTED_MAX: usize = 256;

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
    /// Whether the last event forwarded as many requests as one event may.
    has_more_to_forward: bool,
    /// Time that long prompts past the SLO may take.
    pub(super) past_slo: PastSloCredit,
}

impl Service {
    /// Whether the service goes on at once.
    pub(super) const fn is_pending(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The time at which queued requests are next served without an event.
    pub(super) fn next_due(&self, pool: &PoolState) -> Option<Time> {
        if self.is_pending() {
            return Some(pool.now);
        }
        self.next_review(pool)
    }

    /// Whether requests are still to be forwarded.
    pub(super) const fn has_more_to_forward(&self) -> bool {
        self.has_more_to_forward
    }

    /// The time of the next review, when a request waits for a particular replica while another one is free.
    fn next_review(&self, pool: &PoolState) -> Option<Time> {
        let is_needed = pool.queue.delayed() > 0 || self.needs_review;
        let is_due = is_needed && !pool.replicas.available().is_empty();
        is_due.then(|| self.reviewed.after(REVIEW_INTERVAL.get()))
    }

    /// Adds the freed replicas to the round, and those of a review that is due. A round with new replicas asks every request again.
    fn begin_round(&mut self, pool: &mut PoolState) {
        let freed = pool.replicas.take_freed();
        let is_review = self.next_review(pool).is_some_and(|next| next <= pool.now);
        if freed.is_empty() && !is_review {
            return;
        }
        self.round += 1;
        self.is_review = is_review;
        self.freed.extend(freed);
        if is_review {
            self.begin_review(pool);
        }
        self.freed.sort_unstable();
        self.freed.dedup();
    }

    /// Adds some of the available replicas to the round, in turn from one review to the next.
    fn begin_review(&mut self, pool: &PoolState) {
        self.reviewed = pool.now;
        self.needs_review = false;
        let available = pool.replicas.available();
        for _ in 0..available.len().min(REVIEWED_MAX.get()) {
            let Some(replica) = available.next_round(self.next) else {
                return;
            };
            self.freed.push(replica);
            self.next = ReplicaIndex(replica.0.wrapping_add(1));
        }
    }

    /// Ends the round, if no request goes to the replicas that are left.
    fn end_round(&mut self, pool: &PoolState) {
        let mut freed = core::mem::take(&mut self.freed).into_iter();
        self.needs_review |= freed.any(|replica| pool.queue.has_eligible(replica));
    }

    /// The requests that are asked next, as far as a freed replica may serve them: a long prompt whose turn it is, the first request if it
    /// goes to any replica, and then some that wait for one of the freed replicas or for any; at last, in a review, some that wait
    /// for others.
    fn next_asked(&self, pool: &PoolState, policy: &dyn Policy) -> AskedRequests {
        let (queue, freed, rules) = (&pool.queue, &*self.freed, policy.rules());
        let is_asked = |seq: &QueueSeq| {
            let queued = queue.get(*seq);
            queued.is_some_and(|queued| queued.turns.asked_in != self.round)
        };
        let entitled = |seq: &QueueSeq| {
            let queued = queue.get(*seq);
            queued.is_some_and(|queued| self.past_slo.entitles(pool, queued))
        };
        let must_go = |seq: &QueueSeq| {
            let queued = queue.get(*seq);
            queued.is_some_and(|queued| self.past_slo.must_go(pool, rules, queued))
        };
        let long = queue.long_prompt_past_slo(freed).filter(entitled);
        // Without a request that waits for a particular replica, the first open one is the first of all.
        let first = (queue.delayed() > 0).then(|| queue.eligible(freed).next());
        let first = first.flatten().filter(must_go);
        let urgent = long.into_iter().chain(first).filter(is_asked);
        let mut asked: AskedRequests = urgent.map(|seq| (0, seq)).collect();
        let open = queue.open_to(freed).take(LOOKED_AT_MAX).filter(is_asked);
        self.add_by_worth(pool, policy, open, &mut asked);
        if asked.is_empty() && (self.is_review || is_crowded(pool, rules)) {
            let others = queue.eligible(freed).take(REVIEWED_REQUESTS_MAX);
            self.add_by_worth(pool, policy, others.filter(is_asked), &mut asked);
        }
        asked
    }

    /// Adds the first of some requests, those worth most to a freed replica first.
    fn add_by_worth(
        &self,
        pool: &PoolState,
        policy: &dyn Policy,
        requests: impl Iterator<Item = QueueSeq>,
        asked: &mut AskedRequests,
    ) {
        let freed = self.freed.first().copied();
        let replica = freed.filter(|_| policy.rules().weighs_requests);
        let Some(replica) = replica else {
            asked.extend(requests.take(ASKED_AT_ONCE).enumerate());
            return;
        };
        let (available, overtakes_max) = (pool.replicas.available(), overtakes_max(pool));
        let weigh = |(place, seq): (usize, QueueSeq)| {
            let queued = pool.queue.get(seq)?;
            let view = pool.view_of(queued, available);
            let worth = match queued.turns.overtaken < overtakes_max {
                true => policy.worth(&queued.request, replica, &view),
                false => f64::INFINITY,
            };
            Some((worth, (place, seq)))
        };
        let first = requests.take(WEIGHED_MAX).enumerate();
        let mut weighed: SmallVec<[_; WEIGHED_MAX]> = first.filter_map(weigh).collect();
        weighed.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        asked.extend(weighed.into_iter().map(|(_, request)| request));
    }
}

impl Router {
    /// Serves queued requests with the replicas that the event has freed, and then with peers.
    pub(super) fn serve_queue(&mut self) {
        self.serve_freed();
        let has_promoted = self.promote_due(PROMOTED_PER_EVENT_MAX);
        self.forward_queued();
        if self.release_held() || has_promoted {
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
        self.service.begin_round(&mut self.pool);
        let mut total = 0;
        while total < ASKED_PER_EVENT_MAX {
            let available = self.pool.replicas.available();
            let freed = &mut self.service.freed;
            freed.retain(|replica| available.contains(*replica));
            if freed.is_empty() {
                return;
            }
            let asked = self.service.next_asked(&self.pool, &*self.policy);
            if asked.is_empty() {
                return self.service.end_round(&self.pool);
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

    /// Asks a request for its decision, and carries it out. Returns whether the request went.
    fn ask(&mut self, seq: QueueSeq) -> bool {
        let (pool, policy) = (&self.pool, &*self.policy);
        let Some(queued) = pool.queue.get(seq) else {
            return false;
        };
        let must_go = self.service.past_slo.must_go(pool, policy.rules(), queued);
        match route(pool, policy, queued, must_go, pool.replicas.available()) {
            RoutingDecision::Dispatch(dispatch) => {
                if waits_past_slo(pool, queued) {
                    let depth = dispatch.matched.map_or(0, |matched| matched.depth);
                    let tokens = queued.request.uncached_tokens(depth);
                    let takes_s = pool.replicas.prefill_s(dispatch.replica, tokens);
                    self.service.past_slo.spend(takes_s);
                }
                if let Some(queued) = self.dequeue(seq) {
                    self.dispatch(queued, dispatch);
                }
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

    /// Promotes held requests whose deadlines are near, behind the requests that wait already; in a pool without tiers, all. Returns
    /// whether there were some.
    pub(super) fn promote_due(&mut self, at_most: usize) -> bool {
        for promoted in 0..at_most {
            let rules = batch_rules(&self.pool);
            let is_due = |deadline: Time| {
                rules.is_none_or(|rules| deadline.before(rules.promote_left) <= self.pool.now)
            };
            let next = self.pool.queue.next_deadline();
            let Some((_, seq)) = next.filter(|(deadline, _)| is_due(*deadline)) else {
                return promoted > 0;
            };
            self.promote(seq);
        }
        true
    }

    /// Lets held requests start, as many as the last signal allows. Returns whether any did.
    fn release_held(&mut self) -> bool {
        let mut has_released = false;
        while let Some((seq, dispatch, reason)) = next_released(&self.pool, &*self.policy) {
            self.pool.gate.count_release(reason);
            if let Some(queued) = self.dequeue(seq) {
                self.dispatch(queued, dispatch);
            }
            has_released = true;
        }
        has_released
    }

    /// Forwards queued requests, oldest first, while no local replica and some peer is available. A burst may leave a queue of a
    /// thousand requests when a peer has room for thousands.
    fn forward_queued(&mut self) {
        self.service.has_more_to_forward = false;
        let (mut next, mut ahead) = (QueueSeq::FIRST, 0);
        let (mut stayed, mut forwarded) = (0, 0);
        while stayed < STAYING_MAX.get() && self.pool.replicas.available().is_empty() {
            let (peers, queue) = (&self.pool.peers, &self.pool.queue);
            let is_open_to = |tried: &[_]| peers.has_untried(peers.available(), tried);
            let Some(seq) = queue.next_forwardable(next, is_open_to) else {
                return;
            };
            ahead += queue.count_between(next, seq, COUNTED_MAX);
            next = seq;
            let at = AvailableTargets::of(&self.pool, self.service.is_pending());
            let queued = queue.get(seq);
            let target = queued
                .and_then(|queued| peer_of_waiting(&self.pool, &*self.policy, queued, ahead, at));
            let Some(target) = target else {
                (next, ahead) = (seq.next(), ahead + 1);
                stayed += 1;
                continue;
            };
            if forwarded == FORWARDED_PER_EVENT_MAX {
                self.service.has_more_to_forward = true;
                return;
            }
            forwarded += 1;
            if let Some(queued) = self.dequeue(seq) {
                self.forward(&queued, &target);
            }
        }
    }

    /// Forwards held requests to peers that have capacity to spare, while this pool has none.
    fn forward_held(&mut self) {
        for _ in 0..FORWARDED_PER_EVENT_MAX {
            let (queue, peers) = (&self.pool.queue, &self.pool.peers);
            if queue.held_len() == 0 || peers.available().is_empty() || !is_gate_shut(&self.pool) {
                return;
            }
            let with_credit = peers.with_batch_credit(peers.available());
            let next = queue.next_held_forwardable(|tried| peers.has_untried(&with_credit, tried));
            let target = next.and_then(|seq| {
                let request = &queue.get(seq)?.request;
                let target = select_peer(&self.pool, &*self.policy, request, &with_credit)?;
                Some((seq, target))
            });
            let Some((seq, target)) = target else {
                return;
            };
            if let Some(queued) = self.dequeue(seq) {
                self.forward(&queued, &target);
            }
        }
        self.service.has_more_to_forward = true;
    }
}

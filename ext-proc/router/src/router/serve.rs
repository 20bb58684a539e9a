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

use super::Router;
use super::decide::route;
use super::entitled::waits_past_slo;
use super::hold::{batch_rules, is_gate_shut, next_released};
use super::regions::{peer_of_waiting, select_peer};
use super::routing::{AvailableTargets, RoutingDecision};
use crate::Time;
use crate::constant::constants;
use crate::queue::QueueSeq;

constants! {
    /// Requests that stay although they may leave, considered in one event at most.
    STAYING_MAX: usize = 16;
}
/// Requests that one event asks, at most.
const ASKED_PER_EVENT_MAX: usize = 512;
/// Held requests that one event promotes, at most; the rest is due at once.
const PROMOTED_PER_EVENT_MAX: usize = 64;
/// Requests that one event forwards, at most; the rest is due at once.
const FORWARDED_PER_EVENT_MAX: usize = 64;
/// Requests between two considered ones that are counted, at most.
const COUNTED_MAX: usize = 256;

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
            self.pool.replicas.take_freed();
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

//! Queued requests that leave for a peer, as soon as one is available.
//!
//! A request that starts earlier here stays, and those behind it may still be better off elsewhere: more requests are in front
//! of them. Each event considers the oldest requests, up to a number that stay. A peer may report room for thousands: one event
//! forwards a bounded number of requests, and the rest is due at once.

use super::Router;
use crate::constant::constants;
use crate::queue::QueueSeq;

constants! {
    /// Requests that stay although they may leave, considered in one event at most.
    STAYING_MAX: usize = 16;
}
/// Requests that one event forwards at most.
const FORWARDED_PER_EVENT_MAX: usize = 64;
/// Requests between two considered ones that are counted, at most.
const COUNTED_MAX: usize = 256;

impl Router {
    /// Forwards queued requests, oldest first, while no local replica and some peer is available.
    pub(super) fn forward_queued(&mut self) {
        self.has_more_to_forward = false;
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
            let queued = queue.get(seq);
            let target =
                queued.and_then(|queued| self.find_peer(queued, ahead, self.available_targets()));
            let Some(target) = target else {
                (next, ahead) = (seq.next(), ahead + 1);
                stayed += 1;
                continue;
            };
            if forwarded == FORWARDED_PER_EVENT_MAX {
                self.has_more_to_forward = true;
                return;
            }
            forwarded += 1;
            if let Some(queued) = self.dequeue(seq) {
                self.forward(queued, &target);
            }
        }
    }

    /// Forwards held requests to peers that have capacity to spare, while this pool has none.
    pub(super) fn forward_held(&mut self) {
        for _ in 0..FORWARDED_PER_EVENT_MAX {
            let (queue, peers) = (&self.pool.queue, &self.pool.peers);
            if queue.held_len() == 0 || peers.available().is_empty() || !self.is_gate_shut() {
                return;
            }
            let with_credit = peers.with_batch_credit(peers.available());
            let next = queue.next_held_forwardable(|tried| peers.has_untried(&with_credit, tried));
            let Some(seq) = next else {
                return;
            };
            let target = queue.get(seq).and_then(|queued| {
                let request = &queued.request;
                self.select_peer(request, &with_credit)
            });
            let Some(target) = target else {
                return;
            };
            if let Some(queued) = self.dequeue(seq) {
                self.forward(queued, &target);
            }
        }
        self.has_more_to_forward = true;
    }
}

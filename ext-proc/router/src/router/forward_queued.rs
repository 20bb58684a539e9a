//! Queued requests that leave for a peer, as soon as one is available.
//!
//! A request that starts earlier here stays, and those behind it may still be better off elsewhere: more requests are in front
//! of them. Each event considers the oldest request, and some more behind the point that the last event reached. A peer may
//! report room for thousands: one event forwards a bounded number of requests, and the rest is due at once.

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

/// The point of the queue up to which requests have been considered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForwardCursor {
    next: QueueSeq,
    /// Requests in front of that point.
    ahead: usize,
}

impl ForwardCursor {
    /// Registers a request that joins the queue at its position.
    pub(super) fn joined(&mut self, seq: QueueSeq) {
        self.ahead += usize::from(seq < self.next);
    }

    /// Registers a request that leaves the queue.
    pub(super) fn left(&mut self, seq: QueueSeq) {
        self.ahead = self.ahead.saturating_sub(usize::from(seq < self.next));
    }
}

impl Router {
    /// Forwards queued requests, oldest first, while no local replica and some peer is available.
    pub(super) fn forward_queued(&mut self) {
        let mut cursor = ForwardCursor::default();
        self.has_more_to_forward = false;
        let mut left = FORWARDED_PER_EVENT_MAX;
        for _ in 0..STAYING_MAX.get() {
            let Some(stayed) = self.forward_from(cursor, &mut left) else {
                return;
            };
            // Behind the oldest one that stays, the last event's walk goes on.
            cursor = stayed;
            if cursor.next < self.forward_cursor.next {
                cursor = self.forward_cursor;
            }
            self.forward_cursor = cursor;
        }
    }

    /// Forwards requests from this point on, up to the first one that stays. Returns the point behind that one. Forwards at most
    /// `left` requests.
    fn forward_from(
        &mut self,
        mut cursor: ForwardCursor,
        left: &mut usize,
    ) -> Option<ForwardCursor> {
        while self.pool.replicas.available().is_empty() && !self.pool.peers.available().is_empty() {
            let (peers, queue) = (&self.pool.peers, &self.pool.queue);
            let is_open_to = |tried: &[_]| peers.has_untried(peers.available(), tried);
            let Some(seq) = queue.next_forwardable(cursor.next, is_open_to) else {
                self.forward_cursor = ForwardCursor::default();
                return None;
            };
            cursor.ahead += queue.count_between(cursor.next, seq, COUNTED_MAX);
            cursor.next = seq;
            let queued = queue.get(seq)?;
            let Some(target) = self.find_peer(queued, cursor.ahead, self.available_targets())
            else {
                return Some(ForwardCursor {
                    next: seq.next(),
                    ahead: cursor.ahead + 1,
                });
            };
            if *left == 0 {
                self.has_more_to_forward = true;
                return None;
            }
            *left -= 1;
            let queued = self.dequeue(seq)?;
            self.forward(queued, &target);
        }
        None
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

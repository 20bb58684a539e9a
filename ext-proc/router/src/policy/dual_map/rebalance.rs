//! Queued requests move to their other candidate (`DualMap` 3.3, A.1.2, A.7.3).
//!
//! When the queued prefill of both candidates of an arrival exceeds the SLO, both queues are relieved. Requests move that
//! gain by it and would be in time at their other candidate, largest benefit first, until the rest are in time. There is
//! one round, and no request pushes another one out. So a conversation stays on its two replicas.
//!
//! There are two additions. A freed replica with an empty queue takes a late request by the same rule; otherwise requests
//! for a stalled replica would wait until the next arrival. And the time waited so far counts towards the time to first
//! token, since the client waits in front of the engines.
//!
//! Only the last [`LOOKED_AT_MAX`] requests of a queue are considered, which are the late ones. So an arrival costs a
//! bounded number of lookups, however long the queues are.

use core::cmp::Ordering;

use super::candidate_queues::Entry;
use super::pair::Pair;
use super::{DualMap, is_usable, uncached_on};
use crate::Request;
use crate::policy::{View, uncached_tokens};
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

/// Requests of a queue that are considered.
const LOOKED_AT_MAX: usize = 64;

/// A move with a benefit.
#[derive(Clone, Copy, Debug)]
struct Move {
    benefit_s: f64,
    seq: QueueSeq,
    to: ReplicaIndex,
    /// Tokens that the other candidate has to compute.
    tokens: f64,
}

impl DualMap {
    /// Relieves the candidates of an arrival, if both are overloaded.
    pub(super) fn rebalance(&mut self, request: &Request, view: &View<'_>) {
        if !self.ablation.rebalances {
            return;
        }
        let pair = self.pair(request, view);
        let overloaded =
            pair.filter(|pair| pair.iter().all(|replica| self.is_overloaded(replica, view)));
        for replica in overloaded.into_iter().flat_map(Pair::iter) {
            self.relieve(replica, view);
        }
    }

    /// The seconds that a late request gains by going to its other candidate at once; `None` unless it would be in time.
    pub(super) fn saves(&self, seq: QueueSeq, to: ReplicaIndex, view: &View<'_>) -> Option<f64> {
        if !self.ablation.rebalances {
            return None;
        }
        let entry = self.queues.get(seq).filter(|entry| entry.replica != to)?;
        let ahead = self.queues.ahead_of(seq, LOOKED_AT_MAX)?;
        let here_s = self.ttft_s(entry.replica, ahead + entry.tokens, view);
        if is_in_time(entry, here_s, view) {
            return None;
        }
        let there_s = self.ttft_s(to, self.queues.tokens(to) + at(entry, to, view), view);
        let saved_s = here_s - there_s;
        (saved_s > 0.0 && is_in_time(entry, there_s, view)).then_some(saved_s)
    }

    /// Assigns another candidate to the requests whose candidates have changed or whose replica is unusable.
    pub(super) fn reassign(&mut self, view: &View<'_>) {
        let changed = core::mem::take(&mut self.rings_changed);
        if !changed
            && self
                .queues
                .replicas()
                .all(|replica| is_usable(replica, view))
        {
            return;
        }
        if view.replicas.trusted().is_empty() {
            // There is no usable replica; the next arrival tries again.
            self.rings_changed = changed;
            return;
        }
        let all: Vec<QueueSeq> = self.queues.all().collect();
        for seq in all {
            let Some(entry) = self.queues.get(seq) else {
                continue;
            };
            let Some(pair) = self.pair(&entry.request, view) else {
                continue;
            };
            if pair != entry.pair {
                let chosen = self.choose(&entry.request, pair, view);
                let tokens = uncached_on(&entry.request, &chosen);
                self.queues.pair(seq, pair);
                self.queues.shift(seq, chosen.replica, tokens);
            }
        }
    }

    fn relieve(&mut self, replica: ReplicaIndex, view: &View<'_>) {
        let mut moves: Vec<Move> = self
            .queues
            .last(replica, LOOKED_AT_MAX)
            .filter_map(|(seq, entry, ahead)| self.find_move(seq, entry, ahead, view))
            .collect();
        moves.sort_by(largest_first);
        for Move {
            seq, to, tokens, ..
        } in moves
        {
            if self.all_in_time(replica, view) {
                return;
            }
            // Earlier moves have changed both queues.
            let Some(entry) = self.queues.get(seq) else {
                continue;
            };
            let there_s = self.ttft_s(to, self.queues.tokens(to) + tokens, view);
            if is_in_time(entry, there_s, view) {
                self.queues.shift(seq, to, tokens);
            }
        }
    }

    /// The move of a request with so many tokens in front of it, if it gains and would be in time.
    fn find_move(&self, seq: QueueSeq, entry: &Entry, ahead: f64, view: &View<'_>) -> Option<Move> {
        let to = entry.pair.other(entry.replica)?;
        if !is_usable(to, view) {
            return None;
        }
        let tokens = at(entry, to, view);
        let here_s = self.ttft_s(entry.replica, ahead + entry.tokens, view);
        let there_s = self.ttft_s(to, self.queues.tokens(to) + tokens, view);
        let benefit_s = here_s - there_s;
        let has_gain = benefit_s > 0.0 && is_in_time(entry, there_s, view);
        has_gain.then_some(Move {
            benefit_s,
            seq,
            to,
            tokens,
        })
    }

    /// Whether a replica's queue will be in time, requests that are too late already left aside.
    fn all_in_time(&self, replica: ReplicaIndex, view: &View<'_>) -> bool {
        self.queues
            .last(replica, LOOKED_AT_MAX)
            .filter(|(_, entry, _)| is_in_time(entry, 0.0, view))
            .all(|(_, entry, ahead)| {
                let here_s = self.ttft_s(replica, ahead + entry.tokens, view);
                is_in_time(entry, here_s, view)
            })
    }

    /// Time to first token from now, with so many queued tokens to compute, in seconds.
    fn ttft_s(&self, replica: ReplicaIndex, tokens: f64, view: &View<'_>) -> f64 {
        self.wait_s(replica, tokens, view)
    }
}

/// Tokens that a replica would have to compute of a queued request.
fn at(entry: &Entry, replica: ReplicaIndex, view: &View<'_>) -> f64 {
    let blocks = entry.request.fingerprint.blocks();
    uncached_tokens(&entry.request, view.index.deepest_of(blocks, replica).depth)
}

fn largest_first(a: &Move, b: &Move) -> Ordering {
    let by_benefit = b.benefit_s.total_cmp(&a.benefit_s);
    by_benefit.then_with(|| a.seq.cmp(&b.seq))
}

/// Whether a first token so long from now is in time for a queued request.
fn is_in_time(entry: &Entry, from_now_s: f64, view: &View<'_>) -> bool {
    let waited_s = view.now.since(entry.arrived).as_secs_f64();
    waited_s + from_now_s <= view.ttft_slo_s
}

//! Those who wait move to their other candidate (`DualMap` 3.3, A.1.2, A.7.3).
//!
//! When both candidates of an arrival have more to compute than the time to a first token allows, the lines of both are
//! relieved: of those who wait there the ones move that gain by it and would be in time at their other candidate,
//! largest benefit first, until the rest are in time where they are. One round, nobody is pushed out of a line by
//! another. So a conversation stays on its two replicas.
//!
//! Two additions. A replica that becomes free and has nobody in its line takes by the same rule who is late elsewhere: without
//! it, those who wait for a replica that has stalled would wait for the next arrival. And waiting so far counts towards
//! the time to the first token, which for a queue in front of the engines is the client's.
//!
//! The last [`LOOKED_AT_MAX`] of a line are looked at, since those are the late ones: an arrival costs a bounded number of
//! lookups, however long the lines have become.

use core::cmp::Ordering;

use super::lines::Entry;
use super::pair::Pair;
use super::{DualMap, is_well};
use crate::Request;
use crate::policy::{View, uncached_tokens};
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

/// How many of a line are looked at.
const LOOKED_AT_MAX: usize = 64;

/// A move that is worth while.
#[derive(Clone, Copy, Debug)]
struct Move {
    benefit_s: f64,
    seq: QueueSeq,
    to: ReplicaIndex,
    /// What the other candidate has to compute of it.
    tokens: f64,
}

impl DualMap {
    /// Relieves the candidates of an arrival, if both have too much to do.
    pub(super) fn rebalance(&mut self, request: &Request, view: &View<'_>) {
        if !self.ablation.rebalances {
            return;
        }
        let pair = self.pair(request, view);
        let overloaded = pair.filter(|pair| pair.iter().all(|slot| self.is_overloaded(slot, view)));
        for slot in overloaded.into_iter().flat_map(Pair::iter) {
            self.relieve(slot, view);
        }
    }

    /// What a late one gains in seconds by going to this replica, its other candidate, at once; if that is in time.
    pub(super) fn saves(&self, seq: QueueSeq, to: ReplicaIndex, view: &View<'_>) -> Option<f64> {
        if !self.ablation.rebalances {
            return None;
        }
        let entry = self.lines.get(seq).filter(|entry| entry.slot != to)?;
        let ahead = self.lines.ahead_of(seq, LOOKED_AT_MAX)?;
        let here_s = self.ttft_s(entry.slot, ahead + entry.tokens, view);
        if is_in_time(entry, here_s, view) {
            return None;
        }
        let there_s = self.ttft_s(to, self.lines.tokens(to) + at(entry, to, view), view);
        let saved_s = here_s - there_s;
        (saved_s > 0.0 && is_in_time(entry, there_s, view)).then_some(saved_s)
    }

    /// Those whose candidates have changed, or whose replica is ill, are given another one.
    pub(super) fn rehouse(&mut self, view: &View<'_>) {
        let changed = core::mem::take(&mut self.rings_changed);
        if !changed && self.lines.slots().all(|slot| is_well(slot, view)) {
            return;
        }
        if view.replicas.trusted().is_empty() {
            // Nobody to move to: asked again when somebody is well.
            self.rings_changed = changed;
            return;
        }
        let all: Vec<QueueSeq> = self.lines.all().collect();
        for seq in all {
            let Some(entry) = self.lines.get(seq) else {
                continue;
            };
            let Some(pair) = self.pair(&entry.request, view) else {
                continue;
            };
            if pair != entry.pair {
                let chosen = self.choose(&entry.request, pair, view);
                let tokens = uncached_tokens(&entry.request, chosen.matched.depth);
                self.lines.pair(seq, pair);
                self.lines.shift(seq, chosen.slot, tokens);
            }
        }
    }

    fn relieve(&mut self, slot: ReplicaIndex, view: &View<'_>) {
        let mut moves: Vec<Move> = self
            .lines
            .last(slot, LOOKED_AT_MAX)
            .filter_map(|(seq, entry, ahead)| self.worth(seq, entry, ahead, view))
            .collect();
        moves.sort_by(largest_first);
        for Move {
            seq, to, tokens, ..
        } in moves
        {
            if self.all_in_time(slot, view) {
                return;
            }
            // Earlier moves have changed both lines.
            let Some(entry) = self.lines.get(seq) else {
                continue;
            };
            let there_s = self.ttft_s(to, self.lines.tokens(to) + tokens, view);
            if is_in_time(entry, there_s, view) {
                self.lines.shift(seq, to, tokens);
            }
        }
    }

    /// The move of one with so many tokens in front of it, if it gains and would be in time.
    fn worth(&self, seq: QueueSeq, entry: &Entry, ahead: f64, view: &View<'_>) -> Option<Move> {
        let to = entry.pair.other(entry.slot)?;
        if !is_well(to, view) {
            return None;
        }
        let tokens = at(entry, to, view);
        let here_s = self.ttft_s(entry.slot, ahead + entry.tokens, view);
        let there_s = self.ttft_s(to, self.lines.tokens(to) + tokens, view);
        let benefit_s = here_s - there_s;
        let is_worth = benefit_s > 0.0 && is_in_time(entry, there_s, view);
        is_worth.then_some(Move {
            benefit_s,
            seq,
            to,
            tokens,
        })
    }

    /// Whether all in a replica's line will be in time, but for those that are too late already.
    fn all_in_time(&self, slot: ReplicaIndex, view: &View<'_>) -> bool {
        self.lines
            .last(slot, LOOKED_AT_MAX)
            .filter(|(_, entry, _)| is_in_time(entry, 0.0, view))
            .all(|(_, entry, ahead)| {
                let here_s = self.ttft_s(slot, ahead + entry.tokens, view);
                is_in_time(entry, here_s, view)
            })
    }

    /// Time to the first token from now, with so many tokens of the line to compute first, its own included, in seconds.
    fn ttft_s(&self, slot: ReplicaIndex, tokens: f64, view: &View<'_>) -> f64 {
        self.wait_s(slot, tokens, view)
    }
}

/// What a replica would have to compute of one that waits, in tokens.
fn at(entry: &Entry, slot: ReplicaIndex, view: &View<'_>) -> f64 {
    let blocks = entry.request.fingerprint.blocks();
    uncached_tokens(&entry.request, view.index.deepest_of(blocks, slot).depth)
}

fn largest_first(a: &Move, b: &Move) -> Ordering {
    let by_benefit = b.benefit_s.total_cmp(&a.benefit_s);
    by_benefit.then_with(|| a.seq.cmp(&b.seq))
}

/// Whether one that waits has its first token in time, if it has it so long from now.
fn is_in_time(entry: &Entry, from_now_s: f64, view: &View<'_>) -> bool {
    let waited_s = view.now.since(entry.arrived).as_secs_f64();
    waited_s + from_now_s <= view.ttft_slo_s
}

//! Queued requests move to their other candidate (`DualMap` 3.3, A.1.2, A.7.3; `docs/design/dual-map.md`).
//!
//! There is one round, and no request pushes another one out, so a conversation stays on its two replicas. Only the last
//! [`LOOKED_AT_MAX`] requests of a queue are considered: the late ones.

use super::candidate_queues::Entry;
use super::pair::Pair;
use super::{DualMap, is_usable, uncached_on};
use isotherm_router::{QueueSeq, ReplicaIndex, Request, View};

/// Requests of a queue that are considered.
const LOOKED_AT_MAX: usize = 64;

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
        let pair = self.pair(request, view);
        let overloaded =
            pair.filter(|pair| pair.iter().all(|replica| self.is_overloaded(replica, view)));
        for replica in overloaded.into_iter().flat_map(Pair::iter) {
            self.relieve(replica, view);
        }
    }

    /// The seconds that a late request gains by going to its other candidate at once; `None` unless it would be in time.
    pub(super) fn saves(&self, seq: QueueSeq, to: ReplicaIndex, view: &View<'_>) -> Option<f64> {
        let entry = self.queues.get(seq).filter(|entry| entry.replica != to)?;
        let ahead = self.queues.ahead_of(seq, LOOKED_AT_MAX)?;
        let here_s = self.wait_s(entry.replica, ahead + entry.tokens, view);
        if is_in_time(seq, here_s, view) {
            return None;
        }
        Some(self.find_move(seq, here_s, to, view)?.benefit_s)
    }

    /// Assigns a queued request to the better one of its candidates.
    pub(super) fn assign(&mut self, seq: QueueSeq, request: &Request, pair: Pair, view: &View<'_>) {
        let chosen = self.choose(request, pair, view);
        let entry = Entry {
            pair,
            replica: chosen.replica,
            tokens: uncached_on(request, &chosen),
        };
        self.queues.assign(seq, entry);
    }

    fn relieve(&mut self, replica: ReplicaIndex, view: &View<'_>) {
        let mut moves: Vec<Move> = self
            .queues
            .last(replica, LOOKED_AT_MAX)
            .filter_map(|(seq, entry, ahead)| {
                let other = entry.pair.other(entry.replica);
                let to = other.filter(|other| is_usable(*other, view))?;
                let here_s = self.wait_s(entry.replica, ahead + entry.tokens, view);
                self.find_move(seq, here_s, to, view)
            })
            .collect();
        // Largest benefit first.
        moves.sort_by(|a, b| {
            let by_benefit = b.benefit_s.total_cmp(&a.benefit_s);
            by_benefit.then_with(|| a.seq.cmp(&b.seq))
        });
        for Move {
            seq, to, tokens, ..
        } in moves
        {
            if self.all_in_time(replica, view) {
                return;
            }
            // Earlier moves have changed both queues.
            let there_s = self.wait_s(to, self.queues.tokens(to) + tokens, view);
            if let Some(entry) = self.queues.get(seq)
                && is_in_time(seq, there_s, view)
            {
                let moved = Entry {
                    replica: to,
                    tokens,
                    ..*entry
                };
                self.queues.assign(seq, moved);
            }
        }
    }

    /// The move of a request that would get its first token here in `here_s`, if it gains and would be in time.
    fn find_move(
        &self,
        seq: QueueSeq,
        here_s: f64,
        to: ReplicaIndex,
        view: &View<'_>,
    ) -> Option<Move> {
        let request = view.queued_at(seq)?.request();
        let tokens = request.uncached_tokens(view.match_on(request, to).depth);
        let there_s = self.wait_s(to, self.queues.tokens(to) + tokens, view);
        let benefit_s = here_s - there_s;
        (benefit_s > 0.0 && is_in_time(seq, there_s, view)).then_some(Move {
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
            .filter(|(seq, ..)| is_in_time(*seq, 0.0, view))
            .all(|(seq, entry, ahead)| {
                let here_s = self.wait_s(replica, ahead + entry.tokens, view);
                is_in_time(seq, here_s, view)
            })
    }
}

/// Whether a first token so long from now is in time for a queued request.
fn is_in_time(seq: QueueSeq, from_now_s: f64, view: &View<'_>) -> bool {
    view.queued_at(seq)
        .is_some_and(|queued| view.waited_s(queued) + from_now_s <= view.ttft_slo_s())
}

//! A queue for each replica, of the requests that wait for it, oldest first.
//!
//! In the paper each engine has a queue of its own. Here a move changes an entry of a map and costs the engines nothing.

use isotherm_router::{QueueSeq, ReplicaIndex};
use std::collections::BTreeMap;

use super::pair::Pair;

/// The assignment of a queued request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Candidates at the time of enqueueing.
    pub(super) pair: Pair,
    /// The candidate that the request waits for.
    pub(super) replica: ReplicaIndex,
    /// Prompt tokens that this candidate has to compute, estimated when the request was assigned.
    pub(super) tokens: f64,
}

/// A replica's queue, and a position in it.
pub(super) type QueuePosition = (ReplicaIndex, QueueSeq);

#[derive(Debug, Default)]
pub(super) struct CandidateQueues {
    entries: BTreeMap<QueueSeq, Entry>,
    /// The queues that are not empty.
    queues: BTreeMap<ReplicaIndex, ReplicaQueue>,
}

#[derive(Debug, Default)]
struct ReplicaQueue {
    /// The queued requests, each with its tokens to compute.
    seqs: BTreeMap<QueueSeq, f64>,
    tokens: f64,
}

impl CandidateQueues {
    /// Assigns a request to a replica's queue, at its place in the order of arrival.
    pub(super) fn assign(&mut self, seq: QueueSeq, entry: Entry) {
        self.remove(seq);
        let queue = self.queues.entry(entry.replica).or_default();
        queue.seqs.insert(seq, entry.tokens);
        queue.tokens += entry.tokens;
        self.entries.insert(seq, entry);
    }

    pub(super) fn remove(&mut self, seq: QueueSeq) {
        let Some(Entry { replica, .. }) = self.entries.remove(&seq) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(&replica) {
            queue.tokens -= queue.seqs.remove(&seq).unwrap_or_default();
            if queue.seqs.is_empty() {
                self.queues.remove(&replica);
            }
        }
    }

    pub(super) fn get(&self, seq: QueueSeq) -> Option<&Entry> {
        self.entries.get(&seq)
    }

    /// All requests at or behind a position, oldest first.
    pub(super) fn all_from(&self, from: QueueSeq) -> impl Iterator<Item = QueueSeq> + '_ {
        self.entries.range(from..).map(|(seq, _)| *seq)
    }

    /// The requests of some replicas' queues, queue by queue, at or behind a position of one of them.
    pub(super) fn all_of<'a>(
        &'a self,
        (first, from): QueuePosition,
        is_wanted: impl Fn(ReplicaIndex) -> bool + 'a,
    ) -> impl Iterator<Item = QueuePosition> + 'a {
        let queues = self.queues.range(first..);
        let queues = queues.filter(move |(replica, _)| is_wanted(**replica));
        queues.flat_map(move |(replica, queue)| {
            let from = if *replica == first {
                from
            } else {
                QueueSeq::FIRST
            };
            queue.seqs.range(from..).map(|(seq, _)| (*replica, *seq))
        })
    }

    pub(super) fn tokens(&self, replica: ReplicaIndex) -> f64 {
        self.queues.get(&replica).map_or(0.0, |queue| queue.tokens)
    }

    /// The last requests of a replica's queue, youngest first, each with the tokens in front of it.
    pub(super) fn last(
        &self,
        replica: ReplicaIndex,
        at_most: usize,
    ) -> impl Iterator<Item = (QueueSeq, &Entry, f64)> + '_ {
        let mut ahead = self.tokens(replica);
        self.queues
            .get(&replica)
            .into_iter()
            .flat_map(|queue| queue.seqs.iter().rev())
            .take(at_most)
            .filter_map(move |(seq, tokens)| {
                ahead -= tokens;
                Some((*seq, self.entries.get(seq)?, ahead.max(0.0)))
            })
    }

    /// Tokens in front of a request, if it is among the first `at_most` of its queue.
    pub(super) fn ahead_of(&self, seq: QueueSeq, at_most: usize) -> Option<f64> {
        let queue = self.queues.get(&self.entries.get(&seq)?.replica)?;
        let mut ahead = 0.0;
        for (other, tokens) in queue.seqs.iter().take(at_most) {
            if *other == seq {
                return Some(ahead);
            }
            ahead += tokens;
        }
        None
    }
}

//! A queue for each replica, of the requests that wait for it, oldest first.
//!
//! In the paper each engine has a queue of its own, and requests migrate between them. Here requests wait in the router, so
//! a move changes an entry of a map and costs the engines nothing.

use std::collections::BTreeMap;

use super::pair::Pair;
use crate::Request;
use crate::RequestId;
use crate::Time;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;

/// A queued request.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) arrived: Time,
    /// The replicas that may serve a restricted request, as of its arrival.
    pub(super) pinned: Option<Box<[ReplicaIndex]>>,
    /// Candidates at the time of enqueueing.
    pub(super) pair: Pair,
    /// The candidate that it waits for.
    pub(super) replica: ReplicaIndex,
    /// Prompt tokens that this candidate has to compute, estimated when the request was enqueued.
    pub(super) tokens: f64,
}

/// The queues of all replicas.
#[derive(Debug, Default)]
pub(super) struct CandidateQueues {
    entries: BTreeMap<QueueSeq, Entry>,
    seqs: BTreeMap<RequestId, QueueSeq>,
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
    /// Puts one at the end of a replica's line, or where its place in the order of arrival is.
    pub(super) fn push(
        &mut self,
        queued: &QueuedRequest,
        pair: Pair,
        replica: ReplicaIndex,
        tokens: f64,
    ) {
        let seq = queued.seq;
        self.remove(seq);
        let entry = Entry {
            request: queued.request.clone(),
            arrived: queued.arrived,
            pinned: queued.pinned.clone(),
            pair,
            replica,
            tokens,
        };
        self.seqs.insert(entry.request.id, seq);
        self.enter(seq, replica, tokens);
        self.entries.insert(seq, entry);
    }

    pub(super) fn remove(&mut self, seq: QueueSeq) {
        if let Some(entry) = self.entries.remove(&seq) {
            self.seqs.remove(&entry.request.id);
            self.leave(seq, entry.replica);
        }
    }

    /// Replaces the candidates of a request.
    pub(super) fn pair(&mut self, seq: QueueSeq, pair: Pair) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.pair = pair;
        }
    }

    /// Moves a request to another replica's queue.
    pub(super) fn shift(&mut self, seq: QueueSeq, to: ReplicaIndex, tokens: f64) {
        let Some(entry) = self.entries.get_mut(&seq) else {
            return;
        };
        let from = core::mem::replace(&mut entry.replica, to);
        entry.tokens = tokens;
        self.leave(seq, from);
        self.enter(seq, to, tokens);
    }

    pub(super) fn get(&self, seq: QueueSeq) -> Option<&Entry> {
        self.entries.get(&seq)
    }

    pub(super) fn seq_of(&self, id: RequestId) -> Option<QueueSeq> {
        self.seqs.get(&id).copied()
    }

    /// The oldest request of a replica's queue.
    pub(super) fn first(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        let queue = self.queues.get(&replica)?;
        queue.seqs.first_key_value().map(|(seq, _)| *seq)
    }

    /// The replicas whose queues are not empty.
    pub(super) fn replicas(&self) -> impl Iterator<Item = ReplicaIndex> + '_ {
        self.queues.keys().copied()
    }

    /// All queued requests.
    pub(super) fn all(&self) -> impl Iterator<Item = QueueSeq> + '_ {
        self.entries.keys().copied()
    }

    /// Tokens to compute of a replica's queue.
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

    fn enter(&mut self, seq: QueueSeq, replica: ReplicaIndex, tokens: f64) {
        let queue = self.queues.entry(replica).or_default();
        queue.seqs.insert(seq, tokens);
        queue.tokens += tokens;
    }

    fn leave(&mut self, seq: QueueSeq, replica: ReplicaIndex) {
        let Some(queue) = self.queues.get_mut(&replica) else {
            return;
        };
        if let Some(tokens) = queue.seqs.remove(&seq) {
            queue.tokens -= tokens;
        }
        if queue.seqs.is_empty() {
            self.queues.remove(&replica);
        }
    }
}

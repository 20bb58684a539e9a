//! Who waits for which replica: a line for each, oldest first.
//!
//! In the paper each engine has a queue of its own and requests are migrated between them. Here they wait in the router,
//! each in the line of the candidate that it was given, so a move is an entry in a map and costs the engines nothing.

use std::collections::BTreeMap;

use super::pair::Pair;
use crate::Request;
use crate::RequestId;
use crate::Time;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;

/// One that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) arrived: Time,
    /// The only replicas that may serve it, where it is restricted: those that existed when it came.
    pub(super) pinned: Option<Box<[ReplicaIndex]>>,
    /// Its candidates, when it was put there.
    pub(super) pair: Pair,
    /// In whose line it stands.
    pub(super) slot: ReplicaIndex,
    /// What that one has to compute of it, in tokens, when it was put there.
    pub(super) tokens: f64,
}

/// The lines of all replicas.
#[derive(Debug, Default)]
pub(super) struct CandidateQueues {
    entries: BTreeMap<QueueSeq, Entry>,
    seqs: BTreeMap<RequestId, QueueSeq>,
    /// Those that have somebody.
    lines: BTreeMap<ReplicaIndex, ReplicaQueue>,
}

#[derive(Debug, Default)]
struct ReplicaQueue {
    /// Who stands there, and what is to be computed of each, in tokens.
    seqs: BTreeMap<QueueSeq, f64>,
    tokens: f64,
}

impl CandidateQueues {
    /// Puts one at the end of a replica's line, or where its place in the order of arrival is.
    pub(super) fn push(
        &mut self,
        queued: &QueuedRequest,
        pair: Pair,
        slot: ReplicaIndex,
        tokens: f64,
    ) {
        let seq = queued.seq;
        self.remove(seq);
        let entry = Entry {
            request: queued.request.clone(),
            arrived: queued.arrived,
            pinned: queued.pinned.clone(),
            pair,
            slot,
            tokens,
        };
        self.seqs.insert(entry.request.id, seq);
        self.enter(seq, slot, tokens);
        self.entries.insert(seq, entry);
    }

    pub(super) fn remove(&mut self, seq: QueueSeq) {
        if let Some(entry) = self.entries.remove(&seq) {
            self.seqs.remove(&entry.request.id);
            self.leave(seq, entry.slot);
        }
    }

    /// Its candidates are others now.
    pub(super) fn pair(&mut self, seq: QueueSeq, pair: Pair) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.pair = pair;
        }
    }

    /// From one line to another.
    pub(super) fn shift(&mut self, seq: QueueSeq, to: ReplicaIndex, tokens: f64) {
        let Some(entry) = self.entries.get_mut(&seq) else {
            return;
        };
        let from = core::mem::replace(&mut entry.slot, to);
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

    /// The oldest in a replica's line.
    pub(super) fn first(&self, slot: ReplicaIndex) -> Option<QueueSeq> {
        let line = self.lines.get(&slot)?;
        line.seqs.first_key_value().map(|(seq, _)| *seq)
    }

    /// Who has somebody in its line.
    pub(super) fn slots(&self) -> impl Iterator<Item = ReplicaIndex> + '_ {
        self.lines.keys().copied()
    }

    /// Everybody who waits.
    pub(super) fn all(&self) -> impl Iterator<Item = QueueSeq> + '_ {
        self.entries.keys().copied()
    }

    /// What a replica has to compute of those in its line, in tokens.
    pub(super) fn tokens(&self, slot: ReplicaIndex) -> f64 {
        self.lines.get(&slot).map_or(0.0, |line| line.tokens)
    }

    /// The last ones of a replica's line, at most so many, the last one first: each with the tokens in front of it.
    pub(super) fn last(
        &self,
        slot: ReplicaIndex,
        at_most: usize,
    ) -> impl Iterator<Item = (QueueSeq, &Entry, f64)> + '_ {
        let mut ahead = self.tokens(slot);
        self.lines
            .get(&slot)
            .into_iter()
            .flat_map(|line| line.seqs.iter().rev())
            .take(at_most)
            .filter_map(move |(seq, tokens)| {
                ahead -= tokens;
                Some((*seq, self.entries.get(seq)?, ahead.max(0.0)))
            })
    }

    /// The tokens in front of one in its line, if no more than so many stand there.
    pub(super) fn ahead_of(&self, seq: QueueSeq, at_most: usize) -> Option<f64> {
        let line = self.lines.get(&self.entries.get(&seq)?.slot)?;
        let mut ahead = 0.0;
        for (other, tokens) in line.seqs.iter().take(at_most) {
            if *other == seq {
                return Some(ahead);
            }
            ahead += tokens;
        }
        None
    }

    fn enter(&mut self, seq: QueueSeq, slot: ReplicaIndex, tokens: f64) {
        let line = self.lines.entry(slot).or_default();
        line.seqs.insert(seq, tokens);
        line.tokens += tokens;
    }

    fn leave(&mut self, seq: QueueSeq, slot: ReplicaIndex) {
        let Some(line) = self.lines.get_mut(&slot) else {
            return;
        };
        if let Some(tokens) = line.seqs.remove(&seq) {
            line.tokens -= tokens;
        }
        if line.seqs.is_empty() {
            self.lines.remove(&slot);
        }
    }
}

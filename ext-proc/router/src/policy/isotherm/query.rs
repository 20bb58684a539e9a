//! What is asked: a request, with what is looked up once for all offers to it.

use crate::index::{AnswerKey, PrefixMatch};
use crate::policy::{View, uncached_tokens};
use crate::queue::QueuedRequest;
use crate::replica_index::ReplicaIndex;
use crate::{Request, Time};

/// How long a request has waited, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitTimes {
    /// In all.
    pub(super) waited_s: f64,
    /// For one replica although others were free.
    pub(super) delayed_s: f64,
}

impl WaitTimes {
    fn of(queued: &QueuedRequest, now: Time) -> Self {
        let since = |then: Time| now.since(then).as_secs_f64();
        Self {
            waited_s: since(queued.arrived),
            delayed_s: queued.delayed_since.map_or(0.0, since),
        }
    }

    /// The same, so much later.
    pub(super) fn after(self, wait_s: f64) -> Self {
        Self {
            waited_s: self.waited_s + wait_s,
            ..self
        }
    }
}

/// A request, with what is the same for all offers to it: looked up once.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateQuery<'a> {
    pub(super) request: &'a Request,
    pub(super) waited: WaitTimes,
    /// The longest prefix of its prompt that anybody has.
    pub(super) known: PrefixMatch,
    /// A prefix that is much shorter, where somebody has it: whoever has not even that has next to nothing.
    pub(super) landmark: Option<PrefixMatch>,
    /// Where its session was last.
    pub(super) session_at: Option<ReplicaIndex>,
}

impl<'a> CandidateQuery<'a> {
    pub(super) fn new(request: &'a Request, waited: WaitTimes, view: &View<'_>) -> Self {
        let blocks = request.fingerprint.blocks();
        // All of this waits for memory, and none needs to wait for the other: where a session was last, there it mostly goes.
        if let Some(session) = request.session {
            view.sessions.prefetch(session);
        }
        view.index.prefetch_known(blocks);
        let session_at = last_of(request, view);
        if let Some(slot) = session_at {
            view.replicas.prefetch(slot);
            view.index.prefetch_target(slot);
        }
        let landmark = view.index.landmark(blocks);
        let known = view.index.find_known(blocks);
        Self {
            request,
            waited,
            known,
            landmark,
            session_at,
        }
    }

    /// The same for one that waits, which was asked before.
    pub(super) fn again(queued: &'a QueuedRequest, view: &View<'_>) -> Self {
        let request = &queued.request;
        let session_at = last_of(request, view);
        let blocks = request.fingerprint.blocks();
        let known = view.index.known_from_hint(blocks, queued.known.get());
        queued.known.set(known);
        Self {
            request,
            waited: WaitTimes::of(queued, view.now),
            known,
            landmark: None,
            session_at,
        }
    }

    /// Nobody has fewer tokens to compute than this who has no more of the prompt than so much: an answer is expected to be no
    /// longer than the longest, and a session to leave no more behind than any.
    pub(super) fn uncached_at_least(&self, depth: usize, view: &View<'_>) -> f64 {
        let uncached = uncached_tokens(self.request, depth);
        let unseen = self
            .session_at
            .map_or(0.0, |_| view.sessions.affinity_share());
        (uncached - view.answers.expected_at_most(uncached)) * (1.0 - unseen)
    }
}

fn last_of(request: &Request, view: &View<'_>) -> Option<ReplicaIndex> {
    let replica = view.sessions.last(request.session?)?;
    view.replicas.slot_of(replica)
}

/// What is the same for all that have equally much of a prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchCost {
    pub(super) matched: PrefixMatch,
    /// How many tokens they have to compute, by that alone.
    uncached: f64,
    /// The one that also holds the answer to an earlier prompt that this one goes on from, and how much of it is expected.
    answer: Option<(ReplicaIndex, f64)>,
}

impl MatchCost {
    pub(super) fn of(matched: PrefixMatch, query: &CandidateQuery<'_>, view: &View<'_>) -> Self {
        let uncached = uncached_tokens(query.request, matched.depth);
        let answer = AnswerKey::matched(query.request, matched.depth)
            .and_then(|key| view.answers.at(key, uncached))
            .and_then(|(at, held)| Some((view.replicas.slot_of(at)?, view.answers.expected(held))));
        Self {
            matched,
            uncached,
            answer,
        }
    }

    /// How many tokens this one has to compute, by estimate.
    pub(super) fn uncached_on(
        &self,
        slot: ReplicaIndex,
        query: &CandidateQuery<'_>,
        view: &View<'_>,
    ) -> f64 {
        let answer = match self.answer {
            Some((at, expected)) if at == slot => expected,
            Some(_) | None => 0.0,
        };
        let unseen = if query.session_at == Some(slot) {
            view.sessions.affinity_share()
        } else {
            0.0
        };
        (self.uncached - answer) * (1.0 - unseen)
    }
}

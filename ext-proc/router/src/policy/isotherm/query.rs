//! Lookups for a request, and the work on its prompt, that the prices of all candidates share.

use crate::Request;
use crate::adapters::AdapterCost;
use crate::constant::constants;
use crate::index::{AnswerKey, PrefixMatch};
use crate::policy::View;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::wait_state::WaitState;

constants! {
    /// Lower bound on the estimated wait for a busy replica, as a share of the time that the request has waited for one already: an
    /// estimate that was wrong for so long is not believed.
    WAIT_ESTIMATE_SHARE_MIN: f64 = 0.5;
}

/// A request with the lookups that all candidates share.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateQuery<'a> {
    pub(super) request: &'a Request,
    /// Waits of the request, and its objective.
    pub(super) timing: WaitState,
    /// The longest prefix of the prompt that any replica holds.
    pub(super) known: PrefixMatch,
    /// A short prefix that a replica holds, if there is one. A replica that does not hold the landmark holds next to nothing.
    pub(super) landmark: Option<PrefixMatch>,
    /// The replica that served the session last.
    pub(super) session_at: Option<ReplicaIndex>,
    /// Prefill by another replica; `None` while there is no prefill replica.
    pub(super) remote: Option<RemotePrefill>,
}

/// Prefill of one request by another replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemotePrefill {
    /// Uncached tokens from which the other replica computes the prompt.
    tokens_min: f64,
    /// Estimated time until the other replica has computed the prompt, in seconds.
    takes_s: f64,
}

/// The work on a prompt before its first output token.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptWork {
    /// Tokens that are not in the replica's cache, and need memory there.
    pub(super) uncached: f64,
    /// Tokens that the replica computes itself.
    pub(super) tokens: f64,
    /// Time for which another replica computes first, in seconds.
    pub(super) remote_s: f64,
}

impl PromptWork {
    /// The replica computes the prompt itself.
    pub(super) const fn here(tokens: f64) -> Self {
        Self {
            uncached: tokens,
            tokens,
            remote_s: 0.0,
        }
    }
}

impl RemotePrefill {
    fn of(request: &Request, view: &View<'_>) -> Option<Self> {
        let prefillers = view.pool.replicas.prefillers();
        if prefillers.is_empty() {
            return None;
        }
        let view = View {
            candidates: prefillers,
            ..*view
        };
        let (replica, matched) = view.cheapest_prefiller(request)?;
        let uncached = request.uncached_tokens(matched.depth);
        Some(Self {
            tokens_min: f64::from(view.pool.config.prefill_tokens_min),
            takes_s: view.pool.replicas.ttft_s(replica, uncached, view.pool.now),
        })
    }

    const fn work(self, uncached: f64) -> PromptWork {
        PromptWork {
            uncached,
            tokens: 0.0,
            remote_s: self.takes_s,
        }
    }
}

impl<'a> CandidateQuery<'a> {
    pub(super) fn new(request: &'a Request, view: &View<'_>) -> Self {
        let blocks = request.fingerprint.blocks();
        // These lookups wait for memory, but not for each other. Most requests return to the last replica of their session.
        if let Some(session) = request.session {
            view.pool.caches.sessions.prefetch(session);
        }
        view.pool.caches.index.prefetch_known(blocks);
        let session_at = last_of_session(request, view);
        if let Some(replica) = session_at {
            view.pool.replicas.prefetch(replica);
            view.pool.caches.index.prefetch_target(replica);
        }
        let landmark = view.pool.caches.index.landmark(blocks);
        let known = view.pool.caches.index.find_known(blocks);
        Self {
            request,
            timing: view.timing,
            known,
            landmark,
            session_at,
            remote: RemotePrefill::of(request, view),
        }
    }

    /// The query after a wait for a busy replica with this estimated turn.
    pub(super) fn after_turn(&self, turn_s: f64) -> Self {
        let mut timing = self.timing;
        timing.turn_s = turn_s.max(WAIT_ESTIMATE_SHARE_MIN.get() * timing.delayed_s);
        Self { timing, ..*self }
    }

    /// The work on the prompt for a replica that does not hold this many tokens.
    pub(super) fn work(&self, uncached: f64) -> PromptWork {
        match self.remote {
            Some(remote) if uncached >= remote.tokens_min => remote.work(uncached),
            Some(_) | None => PromptWork::here(uncached),
        }
    }

    /// The work of another replica on this many tokens; `None` while there is no prefill replica.
    pub(super) fn remote_work(&self, uncached: f64) -> Option<PromptWork> {
        self.remote.map(|remote| remote.work(uncached))
    }

    /// The replicas that hold the adapter of the request, if it has one and there are any.
    pub(super) fn adapter_holders<'v>(&self, view: &View<'v>) -> Option<&'v ReplicaSet> {
        view.pool.adapters.holders(self.request.adapter?)
    }

    /// Cost of the request's adapter on a replica, and of the loads that are under way there.
    pub(super) fn adapter_cost(&self, replica: ReplicaIndex, view: &View<'_>) -> AdapterCost {
        view.pool.adapter_cost(replica, self.request.adapter)
    }

    /// A lower bound on the tokens that a replica with at most `depth` blocks has to compute.
    pub(super) fn uncached_at_least(&self, depth: usize, view: &View<'_>) -> f64 {
        let uncached = self.request.uncached_tokens(depth);
        let unseen = self
            .session_at
            .map_or(0.0, |_| view.pool.caches.sessions.affinity_share());
        (uncached - view.pool.caches.answers.expected_at_most(uncached)) * (1.0 - unseen)
    }
}

/// The replica that served the request's session last.
fn last_of_session(request: &Request, view: &View<'_>) -> Option<ReplicaIndex> {
    let replica = view.pool.caches.sessions.last(request.session?)?;
    view.pool.replicas.slot_of(replica)
}

/// Lookups that are the same for all replicas with the same match.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchCost {
    pub(super) matched: PrefixMatch,
    /// Tokens to compute beyond the match.
    pub(super) uncached: f64,
    /// Tokens of the match.
    matched_tokens: f64,
    /// The replica that holds the answer to the prompt that this one continues, and the expected tokens of that answer.
    answer: Option<(ReplicaIndex, f64)>,
}

impl MatchCost {
    pub(super) fn of(matched: PrefixMatch, query: &CandidateQuery<'_>, view: &View<'_>) -> Self {
        let uncached = query.request.uncached_tokens(matched.depth);
        let answer = AnswerKey::matched(query.request, matched.depth)
            .and_then(|key| view.pool.caches.answers.at(key, uncached))
            .and_then(|(at, held)| {
                Some((
                    view.pool.replicas.slot_of(at)?,
                    view.pool.caches.answers.expected(held),
                ))
            });
        Self {
            matched,
            uncached,
            matched_tokens: f64::from(query.request.prompt_tokens) - uncached,
            answer,
        }
    }

    /// Estimated tokens that this replica has to compute.
    pub(super) fn uncached_on(
        &self,
        replica: ReplicaIndex,
        query: &CandidateQuery<'_>,
        view: &View<'_>,
    ) -> f64 {
        let answer = self.answer.filter(|(at, _)| *at == replica);
        let answer = answer.map_or(0.0, |(_, expected)| expected);
        let unseen = if query.session_at == Some(replica) {
            view.pool.caches.sessions.affinity_share()
        } else {
            0.0
        };
        let uncached = (self.uncached - answer) * (1.0 - unseen);
        view.pool
            .replicas
            .uncached_on(replica, uncached, self.matched_tokens)
    }
}

//! The view of a policy: what it may ask of a pool.

use std::borrow::Cow;

use crate::config::Config;
use crate::index::PrefixMatch;
use crate::pool_state::PoolState;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica::Rank;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::wait_state::WaitState;
use crate::{Load, Request, RequestId, SessionKey, Time};

/// The state of the pool for one selection, to be read.
///
/// Estimates are in seconds, and learned from the answers of each replica. Tokens are estimated from the length of the prompt.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) pool: &'a PoolState,
    /// The replicas to choose from: available, and allowed for this request. Never empty, except in events.
    pub(crate) candidates: &'a ReplicaSet,
    /// Waits of the request, and its objective.
    pub(crate) timing: WaitState,
}

/// A request of this service that a replica has and has not finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InFlight {
    /// The replica that writes the answer.
    pub replica: ReplicaIndex,
    /// Prompt length in tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens that the replica had to compute, as estimated at the dispatch.
    pub uncached_tokens: f64,
    /// Whether the response has begun.
    pub has_begun: bool,
}

impl PoolState {
    /// The view of a policy on a request that has not waited.
    pub(crate) fn view<'a>(&'a self, candidates: &'a ReplicaSet) -> View<'a> {
        View {
            pool: self,
            candidates,
            timing: WaitState::new(self.common_objective()),
        }
    }

    /// The view of a policy on a queued request.
    pub(crate) fn view_of<'a>(
        &'a self,
        queued: &QueuedRequest,
        candidates: &'a ReplicaSet,
    ) -> View<'a> {
        View {
            timing: self.timing(queued),
            ..self.view(candidates)
        }
    }
}

/// Replicas.
impl<'a> View<'a> {
    /// The replicas to choose from: available, and allowed for this request. Never empty, except in events.
    #[must_use]
    pub const fn candidates(&self) -> &'a ReplicaSet {
        self.candidates
    }

    /// The replicas of the pool that do not leave, available or not.
    #[must_use]
    pub const fn staying(&self) -> &'a ReplicaSet {
        self.pool.replicas.staying()
    }

    /// The replicas whose probes and answers are good, busy ones included.
    #[must_use]
    pub const fn trusted(&self) -> &'a ReplicaSet {
        self.pool.replicas.trusted()
    }

    /// Whether a request may be served by a replica, whether or not the replica is a candidate now.
    #[must_use]
    pub fn may_serve(&self, request: &Request, replica: ReplicaIndex) -> bool {
        let subset = request.subset.as_deref();
        let listers = self.pool.adapters.listers(request);
        listers.is_none_or(|listers| listers.contains(replica))
            && subset.is_none_or(|subset| {
                let id = self.pool.replicas.id_of(replica);
                id.is_some_and(|id| subset.contains(&id))
            })
    }

    /// The replicas of a set that may serve a request.
    #[must_use]
    pub fn eligible<'s>(&self, request: &Request, set: &'s ReplicaSet) -> Cow<'s, ReplicaSet> {
        let set = match self.pool.adapters.listers(request) {
            Some(listers) if !set.is_within(listers) => Cow::Owned(set.intersection(listers)),
            _ => Cow::Borrowed(set),
        };
        let Some(subset) = request.subset.as_deref() else {
            return set;
        };
        let mut allowed = ReplicaSet::default();
        let named = subset.iter();
        for replica in named.filter_map(|id| self.pool.replicas.slot_of(*id)) {
            allowed.set(replica, set.contains(replica));
        }
        Cow::Owned(allowed)
    }

    /// Stable name of a replica: its address.
    #[must_use]
    pub fn name(&self, replica: ReplicaIndex) -> Option<&'a str> {
        Some(&self.pool.replicas.get(replica)?.name)
    }

    /// Load that the last probe of a replica shows; `None` without a probe.
    #[must_use]
    pub fn load(&self, replica: ReplicaIndex) -> Option<&'a Load> {
        self.pool.replicas.get(replica)?.load()
    }

    /// How a replica compares by load: less is better. Among equals the one whose last request is longest ago comes first.
    #[must_use]
    pub fn rank(&self, replica: ReplicaIndex) -> Rank {
        self.pool.replicas.rank(replica)
    }

    /// The first candidate by [`Self::rank`], `except` left aside.
    #[must_use]
    pub fn least_loaded(&self, except: &[ReplicaIndex]) -> Option<ReplicaIndex> {
        self.pool
            .replicas
            .by_load()
            .find(|replica| self.candidates.contains(*replica) && !except.contains(replica))
    }
}

/// Caches.
impl View<'_> {
    /// The longest prefix of a prompt that a replica of the set holds.
    #[must_use]
    pub fn longest_match(&self, request: &Request, among: &ReplicaSet) -> PrefixMatch {
        let blocks = request.fingerprint.blocks();
        self.pool.caches.index.deepest(blocks, among)
    }

    /// The longest prefix of a prompt that a replica holds.
    #[must_use]
    pub fn match_on(&self, request: &Request, replica: ReplicaIndex) -> PrefixMatch {
        let blocks = request.fingerprint.blocks();
        self.pool.caches.index.deepest_of(blocks, replica)
    }

    /// The least loaded candidate that holds a prefix.
    #[must_use]
    pub fn least_loaded_holder(&self, matched: &PrefixMatch) -> Option<ReplicaIndex> {
        let holders = self.pool.caches.index.targets(matched, self.candidates);
        holders.min_by_key(|replica| self.rank(*replica))
    }

    /// Calls `show` with each candidate and its longest match, the longest first. Costs one walk along the prompt for all candidates.
    pub fn each_match(&self, request: &Request, show: impl FnMut(ReplicaIndex, &PrefixMatch)) {
        let blocks = request.fingerprint.blocks();
        self.pool
            .caches
            .index
            .each_deepest(blocks, self.candidates, show);
    }

    /// The candidate of the least cost for its uncached tokens, and the prefix that it holds; among equals the least loaded.
    pub fn cheapest(
        &self,
        request: &Request,
        cost: impl Fn(ReplicaIndex, f64) -> f64,
    ) -> Option<(ReplicaIndex, PrefixMatch)> {
        let mut best: Option<(f64, ReplicaIndex, PrefixMatch)> = None;
        self.each_match(request, |replica, matched| {
            let cost = cost(replica, request.uncached_tokens(matched.depth));
            let is_better = best.is_none_or(|(least, other, _)| {
                cost.total_cmp(&least)
                    .then_with(|| self.rank(replica).cmp(&self.rank(other)))
                    .is_lt()
            });
            if is_better {
                best = Some((cost, replica, *matched));
            }
        });
        best.map(|(_, replica, matched)| (replica, matched))
    }

    /// The candidate that computes the prompt soonest, and the prefix that it holds; for views of prefill replicas.
    pub(crate) fn cheapest_prefiller(
        &self,
        request: &Request,
    ) -> Option<(ReplicaIndex, PrefixMatch)> {
        let allowed = self.eligible(request, self.candidates);
        let view = View {
            candidates: &allowed,
            ..*self
        };
        view.cheapest(request, |replica, uncached| view.ttft_s(replica, uncached))
    }

    /// Length of the prompts that a replica holds, as far as the index knows, in bytes.
    #[must_use]
    pub fn held_bytes(&self, replica: ReplicaIndex) -> u64 {
        self.pool.caches.index.held_bytes(replica)
    }

    /// Whether the pool has served a request of this session.
    #[must_use]
    pub fn knows_session(&self, session: SessionKey) -> bool {
        self.pool.caches.sessions.last(session).is_some()
    }
}

/// Estimates.
impl View<'_> {
    /// Time until a replica has computed the prompts that wait in it, in seconds.
    #[must_use]
    pub fn backlog_s(&self, replica: ReplicaIndex) -> f64 {
        self.pool.replicas.backlog_s(replica, self.pool.now)
    }

    /// Tokens of the prompts that wait in a replica to be computed.
    #[must_use]
    pub fn backlog_tokens(&self, replica: ReplicaIndex) -> f64 {
        let replicas = &self.pool.replicas;
        replicas.pending_prefill_tokens(replica, self.pool.now)
    }

    /// Time in which a replica computes so many prompt tokens, in seconds.
    #[must_use]
    pub fn prefill_s(&self, replica: ReplicaIndex, tokens: f64) -> f64 {
        self.pool.replicas.prefill_s(replica, tokens)
    }

    /// Time in which a replica of the pool computes one more prompt token, on average, in seconds.
    #[must_use]
    pub const fn prefill_token_s(&self) -> f64 {
        self.pool.replicas.latency().prefill.each_s
    }

    /// Time to first token on a replica that has to compute so many tokens of the prompt, in seconds.
    #[must_use]
    pub fn ttft_s(&self, replica: ReplicaIndex, uncached_tokens: f64) -> f64 {
        let replicas = &self.pool.replicas;
        replicas.ttft_s(replica, uncached_tokens, self.pool.now)
    }

    /// The pool's objective for the time to first token, in seconds.
    #[must_use]
    pub fn ttft_slo_s(&self) -> f64 {
        self.pool.config.ttft_slo.as_secs_f64()
    }
}

/// Requests, rules and time.
impl<'a> View<'a> {
    /// The requests of this service that replicas have, in order of their ids.
    pub fn in_flight(&self) -> impl Iterator<Item = InFlight> + 'a {
        let pool = self.pool;
        pool.in_flight.values().filter_map(|flight| {
            Some(InFlight {
                replica: pool.replicas.slot_of(flight.claim.replica)?,
                prompt_tokens: flight.request.prompt_tokens,
                uncached_tokens: flight.predicted.uncached_tokens,
                has_begun: flight.has_begun,
            })
        })
    }

    /// A request of the queue, by its position.
    #[must_use]
    pub fn queued_at(&self, seq: QueueSeq) -> Option<&'a QueuedRequest> {
        self.pool.queue.get(seq)
    }

    /// A request of the queue, by its id.
    #[must_use]
    pub fn queued(&self, id: RequestId) -> Option<&'a QueuedRequest> {
        self.pool.queue.get(self.pool.queue.seq_of(id)?)
    }

    /// Time for which a queued request has waited, in seconds.
    #[must_use]
    pub fn waited_s(&self, queued: &QueuedRequest) -> f64 {
        self.pool.timing(queued).waited_s
    }

    /// Configuration of the router, without the policy.
    #[must_use]
    pub const fn config(&self) -> &'a Config<()> {
        &self.pool.config
    }

    /// Time of the event that asks.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.pool.now
    }
}

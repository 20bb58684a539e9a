//! Dispatch: a request goes to its replica, with fallbacks for Envoy's retries.

use core::time::Duration;

use smallvec::SmallVec;

use super::Router;
use super::decide::allowed;
use super::prefill::Prefiller;
use crate::index::{AnswerKey, Owner, PredictionRecord, PrefixMatch};
use crate::policy::{Dispatch, PolicyEvent};
use crate::pool_state::InFlightRequest;
use crate::queue::QueuedRequest;
use crate::replica::{PushedPrompt, Replica};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Decision, Effect, ReplicaId, Request, Target, WorkClass};

/// The part of a prompt that its replica caches, and the rest.
struct PromptCoverage {
    matched: PrefixMatch,
    /// Estimated tokens of an earlier answer behind the match.
    remembered: f64,
    /// Estimated tokens that are in no cache of the replica.
    uncached: f64,
}

impl Router {
    pub(super) fn dispatch(&mut self, queued: QueuedRequest, selected: Dispatch) {
        let (class, due) = (queued.class(), self.due(&queued));
        let (request, index) = (queued.request, selected.replica);
        self.prefetch_dispatch(index);
        let Some(replica) = self.pool.replicas.id_of(index) else {
            return;
        };
        let work = self.prompt_coverage(&request, &selected, replica);
        let pinned = queued.pinned.as_deref();
        let mut decision = self.decision(&request, pinned, &selected, (replica, &work));
        (decision.class, decision.queued_for) = (class, self.pool.now.since(queued.arrived));
        let (prefiller, prompt) = self.split_prefill(&request, work.uncached);
        let (now, pool) = (self.pool.now, &mut self.pool);
        let ahead_tokens = pool.replicas.pending_prefill_tokens(index, now);
        let Some((permit, row)) = pool.replicas.on_dispatch(index, prompt, now) else {
            return;
        };
        let prefill = prefiller.and_then(|prefiller| self.claim_prefiller(&request, prefiller));
        let followed_session = self.record_session(&request, replica);
        let is_behind_load = self.use_adapter(index, request.adapter);
        let outstanding = self.pool.replicas.get(index).map_or(1, Replica::requests);
        let recorded = self.record_prompt(&request, index, replica, &work.matched, prompt.tokens);
        let matched_bytes = decision.matched_bytes;
        decision.prefiller = prefill.as_ref().map(|prefill| prefill.replica);
        self.announce(&request, decision);
        let (tenant, tokens, tenants) = (queued.tenant, queued.tokens, &mut self.pool.tenants);
        tenants.enter(tenant, tokens, |of| &mut of.in_flight);
        let in_flight = InFlightRequest {
            replica,
            permit,
            row,
            dispatched_at: now,
            has_begun: false,
            is_streamed: false,
            tier: self.tier_of(request.tier),
            due,
            tells_start: request.tells_start,
            is_abandoned: false,
            fingerprint: request.fingerprint,
            session: request.session,
            api: request.api,
            tenant_id: request.tenant,
            tenant,
            tokens,
            matched_bytes,
            recorded,
            estimated_tokens: queued.estimated_tokens,
            prompt_tokens: request.prompt_tokens,
            ahead_tokens,
            outstanding,
            answer_tokens: work.remembered,
            uncached_tokens: work.uncached,
            followed_session,
            prefill,
            adapter: request.adapter,
            is_behind_load,
        };
        self.pool.in_flight.insert(request.id, in_flight);
    }

    /// Prefetches the data of a replica that a dispatch changes.
    #[inline]
    fn prefetch_dispatch(&self, index: ReplicaIndex) {
        self.pool.index.prefetch_target(index);
        self.pool.replicas.prefetch(index);
    }

    /// Selects the prefill replica of a request. Returns it, and the prompt that the request's own replica computes: no tokens, if
    /// another one computes them.
    #[inline]
    fn split_prefill(&self, request: &Request, uncached: f64) -> (Option<Prefiller>, PushedPrompt) {
        let prefillers = self.pool.replicas.prefillers();
        let prefiller = self.select_prefiller(request, uncached, prefillers);
        let prompt = PushedPrompt {
            tokens: if prefiller.is_some() { 0.0 } else { uncached },
            memory_tokens: uncached + self.pool.replicas.output_tokens(),
            is_stream: request.wants_stream,
        };
        (prefiller, prompt)
    }

    /// Records that the replica gets a prompt of which it holds a part and computes `computed` tokens, for the siblings and the
    /// policy, too.
    fn record_prompt(
        &mut self,
        request: &Request,
        index: ReplicaIndex,
        replica: ReplicaId,
        matched: &PrefixMatch,
        computed: f64,
    ) -> PredictionRecord {
        let blocks = request.fingerprint.blocks();
        let owner = Owner::of(request.tenant);
        let recorded = self.pool.index.claim_of(owner, blocks, index, matched);
        let target = Target::Replica(replica);
        self.share(target, blocks, matched.depth, Some(computed));
        self.policy.on_event(PolicyEvent::Dispatch(index));
        recorded
    }

    /// Remembers the replica of a session. Returns whether the session was there last; `None` for a new one.
    fn record_session(&mut self, request: &Request, replica: ReplicaId) -> Option<bool> {
        let sessions = &mut self.pool.sessions;
        sessions.record(request.session?, replica)
    }

    /// The decision to send a request to a replica, before its class and its wait are known.
    fn decision(
        &self,
        request: &Request,
        pinned: Option<&[ReplicaIndex]>,
        selected: &Dispatch,
        (replica, work): (ReplicaId, &PromptCoverage),
    ) -> Decision {
        let share = request.fingerprint.share_at(work.matched.depth);
        Decision {
            replica,
            fallbacks: self.fallbacks(request, pinned, selected),
            prefiller: None,
            reason: selected.reason,
            matched_bytes: request.fingerprint.bytes_at(work.matched.depth),
            matched_tokens: share_of(request.prompt_tokens, share),
            queued_for: Duration::ZERO,
            class: WorkClass::default(),
        }
    }

    fn announce(&mut self, request: &Request, decision: Decision) {
        let tier = self.tier_of(request.tier);
        self.tier_counts.of(tier).dispatched += 1;
        *self.counters.decisions.entry(decision.reason).or_default() += 1;
        self.effects
            .push_back(Effect::Dispatch(request.id, decision));
    }

    /// The prefill replica that a dispatch would name, for explanations.
    pub(super) fn prefiller_of(
        &self,
        request: &Request,
        selected: &Dispatch,
        prefillers: &ReplicaSet,
    ) -> Option<ReplicaIndex> {
        let replica = self.pool.replicas.id_of(selected.replica)?;
        let work = self.prompt_coverage(request, selected, replica);
        let prefiller = self.select_prefiller(request, work.uncached, prefillers)?;
        Some(prefiller.replica)
    }

    /// The part of a prompt that the selected replica holds, and the part that is left.
    fn prompt_coverage(
        &self,
        request: &Request,
        selected: &Dispatch,
        replica: ReplicaId,
    ) -> PromptCoverage {
        let blocks = request.fingerprint.blocks();
        let matched = selected
            .matched
            .unwrap_or_else(|| self.pool.index.deepest_of(blocks, selected.replica));
        let (remembered, uncached) = self.uncached(request, matched.depth, replica);
        let share = request.fingerprint.share_at(matched.depth);
        let held = f64::from(share_of(request.prompt_tokens, share));
        let replicas = &self.pool.replicas;
        let uncached = replicas.uncached_on(selected.replica, uncached, held);
        PromptCoverage {
            matched,
            remembered,
            uncached,
        }
    }

    /// Estimated tokens of an earlier answer on the replica, and the tokens that it has to compute.
    fn uncached(&self, request: &Request, depth: usize, replica: ReplicaId) -> (f64, f64) {
        let (unmatched, answers) = (request.uncached_tokens(depth), &self.pool.answers);
        let remembered = AnswerKey::matched(request, depth)
            .map_or(0.0, |key| answers.remembered(key, replica, unmatched));
        (remembered, unmatched - answers.expected(remembered))
    }

    /// The replicas to try when the chosen one fails: available ones, best first, then busy ones, since a replica that queues
    /// is better than an error. Failing replicas and replicas on trial are left out.
    fn fallbacks(
        &self,
        request: &Request,
        pinned: Option<&[ReplicaIndex]>,
        selected: &Dispatch,
    ) -> SmallVec<[ReplicaId; 3]> {
        if self.restriction_of(request).is_some() {
            return SmallVec::new();
        }
        let chosen = selected.replica;
        let wanted = self.pool.config.fallbacks_max.saturating_add(1);
        let candidates = &*allowed(pinned, self.pool.replicas.available());
        let view = self.pool.view(candidates);
        let mut named: SmallVec<[ReplicaIndex; 4]> = SmallVec::new();
        named.push(chosen);
        while named.len() < wanted.min(candidates.len()) {
            let Some(next) = self.policy.select_fallback(request, &view, &named) else {
                break;
            };
            named.push(next);
        }
        let trusted = &*allowed(pinned, self.pool.replicas.trusted());
        named.retain(|index| *index == chosen || trusted.contains(*index));
        let next = |last: &ReplicaIndex| trusted.next_round(ReplicaIndex(last.0.wrapping_add(1)));
        let in_turn = core::iter::successors(next(&chosen), next);
        for index in in_turn.take(trusted.len().min(2 * wanted)) {
            if named.len() < wanted && !named.contains(&index) {
                named.push(index);
            }
        }
        let ids = named.iter().skip(1);
        ids.filter_map(|index| self.pool.replicas.id_of(*index))
            .collect()
    }
}

/// A share of a number of tokens, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a u32 that is between 0 and 1 is a u32"
)]
pub(super) fn share_of(tokens: u32, share: f64) -> u32 {
    (f64::from(tokens) * share.clamp(0.0, 1.0)) as u32
}

//! Departures: a request goes to its replica, with fallbacks for Envoy's retries, or to a peer.

use isotherm_fingerprint::BlockHash;
use smallvec::SmallVec;

use super::Router;
use super::decide::allowed;
use super::prefill::{
    Prefiller, PromptCoverage, prompt_coverage, select_prefiller, share_of, whole_tokens,
};
use crate::forwarding::ForwardTarget;
use crate::in_flight::{Claim, InFlightRequest, Prediction, PrefillClaim};
use crate::index::{Owner, PredictionRecord, PrefixMatch};
use crate::policy::{Dispatch, Policy, PolicyEvent};
use crate::pool_state::PoolState;
use crate::queue::{Band, QueuedRequest};
use crate::replica::{PushedPrompt, Replica};
use crate::replica_index::ReplicaIndex;
use crate::{
    AdapterState, Counters, Decision, Effect, ForwardDecision, Placement, ReplicaId, Request,
    Target, Time,
};

impl Router {
    /// Sends a request to a replica.
    pub(super) fn dispatch(&mut self, queued: QueuedRequest, selected: Dispatch) {
        let (pool, index) = (&mut self.pool, selected.replica);
        let (request, now, due) = (&queued.request, pool.now, due(pool, &queued));
        let tier = pool.config.tier_of(request.tier);
        pool.caches.index.prefetch_target(index);
        pool.replicas.prefetch(index);
        let Some(replica) = pool.replicas.id_of(index) else {
            return;
        };
        let work = prompt_coverage(pool, request, &selected, replica);
        let mut decision = decision(pool, &*self.policy, &queued, &selected, replica, &work);
        let prefiller = select_prefiller(pool, request, work.uncached, pool.replicas.prefillers());
        let prompt = PushedPrompt {
            tokens: prefiller.map_or(work.uncached, |_| 0.0),
            memory_tokens: work.uncached + pool.replicas.output_tokens(),
            is_stream: request.wants_stream,
        };
        let ahead_tokens = pool.replicas.pending_prefill_tokens(index, now);
        let Some(sent) = pool.replicas.on_dispatch(index, prompt, now) else {
            return;
        };
        let prefill = prefiller.and_then(|prefiller| self.claim_prefiller(request, prefiller));
        let pool = &mut self.pool;
        let sessions = &mut pool.caches.sessions;
        let record_session = |session| sessions.record(session, replica);
        let followed_session = request.session.and_then(record_session);
        let is_behind_load = use_adapter(pool, &mut self.outbox.counters, index, request);
        let outstanding = pool.replicas.get(index).map_or(1, Replica::requests);
        let recorded = self.record(request, index, replica, &work.matched, prompt.tokens);
        self.policy.on_event(PolicyEvent::Dispatch(index));
        let predicted = Prediction {
            estimated_tokens: queued.estimated_tokens,
            matched_bytes: decision.matched_bytes,
            answer_tokens: work.remembered,
            uncached_tokens: work.uncached,
            followed_session,
            outstanding,
            is_behind_load,
        };
        decision.prefiller = prefill.as_ref().map(|prefill| prefill.claim.replica);
        self.outbox.dispatch(request.id, tier, decision);
        let tenants = &mut self.pool.tenants;
        tenants.enter(queued.charge, |of| &mut of.in_flight);
        let in_flight = InFlightRequest {
            claim: Claim::new(replica, sent, recorded, ahead_tokens),
            prefill,
            predicted,
            dispatched_at: now,
            has_begun: false,
            is_abandoned: false,
            tier,
            due,
            charge: queued.charge,
            request: queued.request,
        };
        self.pool.in_flight.insert(in_flight.request.id, in_flight);
    }

    /// Claims the prefill replica of a request that is dispatched now.
    #[cold]
    fn claim_prefiller(
        &mut self,
        request: &Request,
        Prefiller { replica, matched }: Prefiller,
    ) -> Option<Box<PrefillClaim>> {
        let (now, pool) = (self.pool.now, &mut self.pool);
        let (index, replica) = (replica, pool.replicas.id_of(replica)?);
        let ahead_tokens = pool.replicas.pending_prefill_tokens(index, now);
        let uncached = request.uncached_tokens(matched.depth);
        // The response begins on the request's own replica.
        let prompt = PushedPrompt {
            tokens: uncached,
            memory_tokens: 0.0,
            is_stream: false,
        };
        let sent = pool.replicas.claim(index, prompt, now)?;
        let recorded = self.record(request, index, replica, &matched, uncached);
        self.outbox.counters.prefills += 1;
        Some(Box::new(PrefillClaim {
            claim: Claim::new(replica, sent, recorded, ahead_tokens),
            uncached_share: 1.0 - request.fingerprint.share_at(matched.depth).clamp(0.0, 1.0),
            is_computed: false,
        }))
    }

    /// Records in the index, and for the siblings, that a replica gets a prompt of which it holds a part and computes `uncached` tokens.
    fn record(
        &mut self,
        request: &Request,
        index: ReplicaIndex,
        replica: ReplicaId,
        matched: &PrefixMatch,
        uncached: f64,
    ) -> PredictionRecord {
        let blocks = request.fingerprint.blocks();
        let (owner, prefixes) = (Owner::of(request.tenant), &mut self.pool.caches.index);
        let recorded = prefixes.claim_of(owner, blocks, index, matched);
        self.share(
            Target::Replica(replica),
            blocks,
            matched.depth,
            Some(uncached),
        );
        recorded
    }

    /// Sends a request to a peer.
    pub(super) fn forward(&mut self, queued: &QueuedRequest, target: &ForwardTarget) {
        let (request, now) = (&queued.request, self.pool.now);
        if !self.pool.peers.on_forward(queued, target, now) {
            return;
        }
        let (fingerprint, depth) = (&request.fingerprint, target.matched.depth);
        self.outbox.counters.forwarded += 1;
        self.share(Target::Peer(target.peer), fingerprint.blocks(), depth, None);
        let decision = ForwardDecision {
            peer: target.peer,
            reason: target.reason,
            matched_bytes: fingerprint.bytes_at(depth),
            matched_tokens: share_of(request.prompt_tokens, fingerprint.share_at(depth)),
            queued_for: now.since(queued.arrived),
            estimated_ttft: target.estimated_ttft,
        };
        let effect = Effect::Forward(request.id, decision);
        self.outbox.effects.push_back(effect);
    }

    /// Queues a placement for the siblings, whose indexes and counts then agree. The target held the first `depth` blocks, and
    /// has to compute `uncached` tokens. Each service corrects its own index by its own requests.
    fn share(&mut self, target: Target, blocks: &[BlockHash], depth: usize, uncached: Option<f64>) {
        if self.pool.config.region.share {
            let (known, new) = blocks.split_at_checked(depth).unwrap_or((&[], blocks));
            self.outbox.share(Placement {
                target,
                parent: known.last().copied(),
                blocks: new.into(),
                uncached_tokens: uncached.map(whole_tokens),
            });
        }
    }
}

/// The time by which the first token of a request is due: by its budget, or by the deadline of batch work.
fn due(pool: &PoolState, queued: &QueuedRequest) -> Time {
    match queued.band {
        Band::Waiting => queued.entered.after(pool.ttft_slo_of(&queued.request)),
        Band::Held => queued.deadline(),
    }
}

/// The decision to send a request to a replica, before its prefill replica is known.
fn decision(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    selected: &Dispatch,
    replica: ReplicaId,
    work: &PromptCoverage,
) -> Decision {
    let (request, depth) = (&queued.request, work.matched.depth);
    let share = request.fingerprint.share_at(depth);
    Decision {
        replica,
        fallbacks: fallbacks(pool, policy, queued, selected.replica),
        prefiller: None,
        reason: selected.reason,
        matched_bytes: request.fingerprint.bytes_at(depth),
        matched_tokens: share_of(request.prompt_tokens, share),
        queued_for: pool.now.since(queued.arrived),
        class: queued.class(),
    }
}

/// The replicas to try when the chosen one fails: available ones, best first, then busy ones, since a replica that queues
/// is better than an error. Failing replicas and replicas on trial are left out.
fn fallbacks(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    chosen: ReplicaIndex,
) -> SmallVec<[ReplicaId; 3]> {
    let (request, pinned) = (&queued.request, queued.pinned.as_deref());
    let (replicas, period) = (&pool.replicas, pool.config.quarantine);
    let restriction = pool.quarantine.restriction_of(request, period, pool.now);
    if restriction.is_some() {
        return SmallVec::new();
    }
    let wanted = pool.config.fallbacks_max.saturating_add(1);
    let candidates = &*allowed(pinned, replicas.available());
    let view = pool.view(candidates);
    let mut named: SmallVec<[ReplicaIndex; 4]> = SmallVec::new();
    named.push(chosen);
    while named.len() < wanted.min(candidates.len()) {
        let Some(next) = policy.select_fallback(request, &view, &named) else {
            break;
        };
        named.push(next);
    }
    let trusted = &*allowed(pinned, replicas.trusted());
    named.retain(|index| *index == chosen || trusted.contains(*index));
    let next = |last: &ReplicaIndex| trusted.next_round(ReplicaIndex(last.0.wrapping_add(1)));
    let in_turn = core::iter::successors(next(&chosen), next);
    for index in in_turn.take(trusted.len().min(2 * wanted)) {
        if named.len() < wanted && !named.contains(&index) {
            named.push(index);
        }
    }
    let ids = named.iter().skip(1);
    ids.filter_map(|index| replicas.id_of(*index)).collect()
}

/// Registers a dispatched request with its adapter; returns whether its replica loads an adapter first.
fn use_adapter(
    pool: &mut PoolState,
    counters: &mut Counters,
    replica: ReplicaIndex,
    request: &Request,
) -> bool {
    let (now, adapters) = (pool.now, &mut pool.adapters);
    let is_loading = adapters.loading_s(replica, now) > 0.0;
    let Some(adapter) = request.adapter else {
        return is_loading;
    };
    counters.adapter_requests += 1;
    match adapters.on_dispatch(replica, adapter, now) {
        AdapterState::Loaded => is_loading,
        AdapterState::Waiting => true,
        AdapterState::FreeSlot | AdapterState::Evicts | AdapterState::Full => {
            counters.adapter_loads += 1;
            true
        }
    }
}

//! Prefill by another replica: the prompt of a request is computed on a prefill replica, its answer is written elsewhere.
//!
//! The policy selects the replica that writes the answer (the *decode replica*), among those to which requests are
//! dispatched. Where many of the prompt's tokens are not in the cache of that replica, [`Router::select_prefiller`] then
//! names the prefill replica that computes them soonest: its queued prefill, and the part of the prompt that it does not
//! hold at the speed that was measured on it. This one rule serves every policy. Engines hand the KV cache over by
//! themselves, so afterwards both replicas hold the prompt.
//!
//! ```text
//! dispatch ── claims on both replicas ──┬─ the response begins: the prefill replica has computed the prompt ─┐
//!                                       └─ end or abort before: the prompt is not known to be computed ──────┴─ end
//! ```
//! A request that ends without [`crate::Event::Began`] releases both claims. The verdict on the prefill replica always comes
//! at the end: a failed prefill shows as a failed response only.
//!
//! Prefill replicas have no queue: the one in front of the decode replicas paces both. Rejected: to select the prefill replica
//! first, since the uncached part depends on the decode replica, and `both` replicas that prefill for others, whose answers
//! would stall.

use super::Router;
use crate::index::{Owner, PrefixMatch};
use crate::policy::{PolicyEvent, View};
use crate::pool_state::{InFlightPrefill, InFlightRequest};
use crate::replica::latency::{Measurement, RequestMeasurement};
use crate::replica::{ComputedShare, Evidence, PushedPrompt};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{End, Request, RequestId, Source, Target, Time};

/// The prefill replica that was selected for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefiller {
    pub(super) replica: ReplicaIndex,
    /// The part of the prompt that the prefill replica holds.
    matched: PrefixMatch,
}

impl Router {
    /// Selects the prefill replica for a request whose decode replica would have to compute this many tokens; `None` when
    /// that replica computes them itself.
    pub(super) fn select_prefiller(
        &self,
        request: &Request,
        uncached: f64,
        prefillers: &ReplicaSet,
    ) -> Option<Prefiller> {
        let is_short = uncached < f64::from(self.pool.config.prefill_tokens_min);
        if prefillers.is_empty() || is_short {
            return None;
        }
        let view = self.pool.view(prefillers);
        let (replica, matched) = view.cheapest_prefiller(request)?;
        Some(Prefiller { replica, matched })
    }

    /// Claims the prefill replica of a request that is dispatched now.
    #[cold]
    pub(super) fn claim_prefiller(
        &mut self,
        request: &Request,
        prefiller: Prefiller,
    ) -> Option<Box<InFlightPrefill>> {
        let Prefiller {
            replica: index,
            matched,
        } = prefiller;
        let (blocks, now, pool) = (request.fingerprint.blocks(), self.pool.now, &mut self.pool);
        let replica = pool.replicas.id_of(index)?;
        let ahead_tokens = pool.replicas.pending_prefill_tokens(index, now);
        let uncached = request.uncached_tokens(matched.depth);
        // The response begins on the request's own replica.
        let prompt = PushedPrompt {
            tokens: uncached,
            memory_tokens: 0.0,
            is_stream: false,
        };
        let (permit, row) = pool.replicas.claim(index, prompt, now)?;
        let recorded = pool
            .index
            .claim_of(Owner::of(request.tenant), blocks, index, &matched);
        let target = Target::Replica(replica);
        self.share(target, blocks, matched.depth, Some(uncached));
        self.counters.prefills += 1;
        Some(Box::new(InFlightPrefill {
            replica,
            permit,
            row,
            recorded,
            ahead_tokens,
            uncached_share: 1.0 - request.fingerprint.share_at(matched.depth).clamp(0.0, 1.0),
            is_computed: false,
        }))
    }

    /// Registers that the response to a request begins: its replica has admitted it, and its prefill replica has computed the
    /// prompt.
    pub(super) fn on_begin(&mut self, id: RequestId) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        let Some(request) = pool.in_flight.get_mut(&id) else {
            return;
        };
        if core::mem::replace(&mut request.has_begun, true) {
            return;
        }
        self.tier_counts
            .first_token(request.tier, now <= request.due);
        let (row, permit) = (request.row, request.permit);
        pool.replicas.on_begin(request.replica, row, permit, now);
        if let Some(replica) = pool.replicas.slot_of(request.replica) {
            self.policy.on_event(PolicyEvent::FirstToken(replica, now));
            pool.index.confirm(replica, &request.recorded);
            if !self.claims.is_empty() {
                self.claims.confirm(replica, &request.fingerprint);
            }
        }
        if let Some(prefill) = &mut request.prefill {
            prefill.is_computed = true;
            if let Some(replica) = pool.replicas.slot_of(prefill.replica) {
                pool.index.confirm(replica, &prefill.recorded);
            }
            pool.replicas.change(prefill.replica, now, |replica| {
                replica.on_end(prefill.row, ComputedShare::Whole, now);
            });
        }
    }

    /// Releases what is left of the claim on a prefill replica at the end of its request.
    #[cold]
    pub(super) fn end_prefill(
        &mut self,
        prefill: &InFlightPrefill,
        evidence: Evidence,
        computed: ComputedShare,
    ) {
        let now = self.pool.now;
        self.pool.replicas.change(prefill.replica, now, |replica| {
            if !prefill.is_computed {
                replica.on_end(prefill.row, computed, now);
            }
            replica.breaker.on_end(prefill.permit, evidence, now);
        });
    }

    /// Forgets a prompt that its prefill replica did not compute.
    pub(super) fn retract_prefill(&mut self, request: &InFlightRequest, end: End) {
        if end != End::Answered
            && let Some(prefill) = &request.prefill
        {
            self.take_back(prefill.replica, &request.fingerprint, &prefill.recorded);
        }
    }

    /// Learns how fast a prefill replica computes. Its decode replica counts the whole prompt as cached, so what the prefill
    /// replica had to compute is taken from the index.
    pub(super) fn learn_prefill(
        &mut self,
        prefill: &InFlightPrefill,
        prompt_tokens: u32,
        ttft_s: f64,
        first_token: Time,
    ) {
        let now = self.pool.now;
        let slot = self.pool.replicas.slot_of(prefill.replica);
        self.on_first_token(slot, first_token);
        let replicas = &mut self.pool.replicas;
        let uncached = f64::from(prompt_tokens) * prefill.uncached_share;
        let measured = RequestMeasurement {
            prompt: Some(Measurement {
                number: prefill.ahead_tokens + uncached,
                seconds: ttft_s,
                source: Source::Usage,
            }),
            output: None,
        };
        replicas.learn(slot, measured, now);
    }

    /// Scores a prefill replica for an explanation: minus the seconds until it has computed the prompt.
    pub(super) fn score_prefiller(
        &self,
        request: &Request,
        replica: ReplicaIndex,
        view: &View<'_>,
    ) -> f64 {
        let uncached = request.uncached_tokens(view.match_on(request, replica).depth);
        -self.pool.replicas.ttft_s(replica, uncached, view.pool.now)
    }
}

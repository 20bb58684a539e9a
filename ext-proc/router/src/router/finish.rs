//! Feedback: what the beginning and the end of a response change. `learning.rs` has what an answer teaches.

use isotherm_fingerprint::Api;

use super::Router;
use super::corrections::compare_prediction;
use super::learning::{Answer, learn_token_length};
use super::plausibility::{Plausibility, ResponseUsage};
use super::verdict::{Deviation, abort_evidence, end_prefill, release};
use crate::constant::constants;
use crate::in_flight::InFlightRequest;
use crate::policy::PolicyEvent;
use crate::pool_state::PoolState;
use crate::quarantine::{PromptVerdict, key_of};
use crate::queue::QueueSeq;
use crate::replica::{ComputedShare, Evidence};
use crate::{End, RejectReason, RequestId, ServedBy};

constants! {
    /// Weight of a finished request in the learned service time.
    SERVICE_LEARNING_RATE: f64 = 0.05;
}

impl Router {
    /// Registers that the response to a request begins: its replica has admitted it, and its prefill replica has computed the
    /// prompt.
    pub(super) fn on_begin(&mut self, id: RequestId) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        let Some(flight) = pool.in_flight.get_mut(&id) else {
            return;
        };
        if core::mem::replace(&mut flight.has_begun, true) {
            return;
        }
        let claim = &flight.claim;
        self.outbox
            .tiers
            .first_token(flight.tier, now <= flight.due);
        let replicas = &mut pool.replicas;
        replicas.on_begin(claim.replica, claim.row, claim.permit, now);
        if let Some(replica) = replicas.slot_of(claim.replica) {
            self.policy.on_event(PolicyEvent::FirstToken(replica, now));
            pool.caches.index.confirm(replica, &claim.recorded);
            let blocks = flight.request.fingerprint.blocks();
            pool.caches.orphans.remove_blocks(replica, blocks);
        }
        if let Some(prefill) = &mut flight.prefill {
            prefill.is_computed = true;
            let claim = &prefill.claim;
            if let Some(replica) = replicas.slot_of(claim.replica) {
                pool.caches.index.confirm(replica, &claim.recorded);
            }
            replicas.change(claim.replica, now, |replica| {
                replica.on_end(claim.row, ComputedShare::Whole, now);
            });
        }
    }

    pub(super) fn on_finish(
        &mut self,
        id: RequestId,
        served_by: ServedBy,
        end: End,
        usage: &ResponseUsage,
    ) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        if let Some(forwarded) = pool.peers.forwarded.remove(id) {
            if pool.peers.on_end(&forwarded, served_by, end, now) {
                self.outbox.count_end(end);
                // The estimate of the filter, and with it the number of media, is not kept for forwarded requests.
                let verdict = usage.plausibility(&forwarded.fingerprint, u32::MAX);
                if end == End::Answered
                    && verdict == Plausibility::Plausible
                    && let Some((prompt, cached)) = usage.prompt_tokens.zip(usage.cached_tokens)
                {
                    let counters = &mut self.outbox.counters;
                    counters.forwarded_prompt_tokens += u64::from(prompt);
                    counters.forwarded_cached_tokens += u64::from(cached);
                }
            }
            return;
        }
        let Some(flight) = pool.in_flight.remove(&id) else {
            return;
        };
        let deviation = Deviation::of(flight.claim.replica, served_by);
        pool.gate.signal(now);
        leave(pool, &flight);
        let period = pool.config.quarantine;
        let prompt = pool.quarantine.on_end(&flight, served_by, end, period, now);
        if let PromptVerdict::Quarantined(key) = prompt {
            self.outbox.counters.quarantines += 1;
            self.reject_prompt(key);
        }
        let is_streamed = flight.has_begun && usage.ttft.is_some();
        let pool = &mut self.pool;
        release(
            &mut pool.replicas,
            &flight,
            end,
            prompt,
            deviation,
            is_streamed,
            now,
        );
        self.outbox.count_end(end);
        let counters = &mut self.outbox.counters;
        counters.overridden += u64::from(deviation.is_overridden);
        counters.retried_elsewhere += u64::from(deviation.is_retry());
        correct_index(&mut self.pool, &flight, end, deviation);
        if end == End::Answered {
            learn_service_time(&mut self.pool, &flight);
            self.on_answer(&flight, usage, deviation.is_elsewhere);
        }
    }

    /// Learns from an answer. `is_elsewhere` says that another replica than the selected one gave it.
    fn on_answer(&mut self, flight: &InFlightRequest, usage: &ResponseUsage, is_elsewhere: bool) {
        let (now, pool, outbox) = (self.pool.now, &mut self.pool, &mut self.outbox);
        let usage = &usage.possible(&pool.replicas, flight, now);
        if let Some(ttft) = usage.ttft.filter(|_| !flight.has_begun) {
            let is_in_time = flight.dispatched_at.after(ttft) <= flight.due;
            outbox.tiers.first_token(flight.tier, is_in_time);
        }
        let estimated = flight.predicted.estimated_tokens;
        let verdict = usage.plausibility(&flight.request.fingerprint, estimated);
        // The engine adds the history that it stores, which the router has not read.
        let has_history =
            verdict == Plausibility::TooLong && flight.request.api == Some(Api::Responses);
        if verdict != Plausibility::Plausible && !has_history {
            // A replica that computed less than the prompt does not hold it.
            outbox.counters.implausible_usage += 1;
            if verdict == Plausibility::TooShort && !is_elsewhere {
                take_back_claims(pool, flight);
            }
            return;
        }
        pool.tenants.change(flight.charge.slot, |tenant| {
            tenant.prompt_tokens += u64::from(usage.prompt_tokens.unwrap_or_default());
            tenant.cached_tokens += u64::from(usage.cached_tokens.unwrap_or_default());
        });
        if !has_history {
            let length = &mut pool.caches.token_length;
            learn_token_length(&mut pool.replicas, length, flight, usage, now);
        }
        if let Some(tokens) = usage.completion {
            pool.replicas.learn_answer_length(f64::from(tokens), now);
        }
        if !has_history && !is_elsewhere {
            self.learn(flight, usage);
        }
    }

    /// Learns from an answer of the selected replica.
    fn learn(&mut self, flight: &InFlightRequest, usage: &ResponseUsage) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        let (replicas, caches) = (&mut pool.replicas, &mut pool.caches);
        let (fingerprint, predicted) = (&flight.request.fingerprint, &flight.predicted);
        let slot = replicas.slot_of(flight.claim.replica);
        if let Some(replica) = slot {
            caches.orphans.remove_blocks(replica, fingerprint.blocks());
        }
        // A prompt that was not read is not known to be cold.
        if fingerprint.total_bytes() > 0 {
            let tokens = f64::from(flight.request.prompt_tokens);
            caches.cached_share.add(tokens, predicted.uncached_tokens);
        }
        let answer = Answer {
            flight,
            usage,
            slot,
            now,
        };
        let hit = answer.measure_hit(replicas, caches);
        if flight.prefill.is_none() {
            // With a prefill replica, the engine counts what that one computed as cached, too.
            if let Some(hit) = hit {
                answer.learn_hidden_hits(caches, hit);
                compare_prediction(replicas, caches, &mut self.outbox.counters, flight, hit);
                caches.forget_more();
            }
            answer.count_prompt(replicas);
        }
        answer.remember(replicas, caches);
        // An answer without a stream has its first token by now.
        let first_token = usage
            .ttft
            .map_or(now, |ttft| flight.dispatched_at.after(ttft));
        let prefill = answer.learn_latency(replicas, hit);
        for index in slot.into_iter().chain(prefill) {
            self.policy
                .on_event(PolicyEvent::FirstToken(index, first_token));
        }
    }

    /// Rejects the queued requests with a prompt that came into quarantine.
    fn reject_prompt(&mut self, key: u64) {
        let queued = self.pool.queue.all().filter(|queued| {
            key_of(&queued.request.fingerprint, queued.request.session) == Some(key)
        });
        let seqs: Vec<QueueSeq> = queued.map(|queued| queued.seq).collect();
        for seq in seqs {
            self.reject_queued(seq, RejectReason::Quarantined);
        }
    }

    #[inline(never)]
    pub(super) fn on_abort(&mut self, id: RequestId) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        if let Some(seq) = pool.queue.seq_of(id) {
            self.dequeue(seq);
            self.outbox.counters.aborted_waiting += 1;
            return;
        }
        if let Some(flight) = pool.in_flight.remove(&id) {
            leave(pool, &flight);
            let evidence = abort_evidence(pool, &flight);
            // A gateway that does not show responses closes its stream when the request has been sent.
            if flight.request.tells_start && !flight.has_begun {
                take_back_claims(pool, &flight);
            }
            end_claims(pool, &flight, !flight.request.tells_start);
            let (replicas, computed) = (&mut pool.replicas, ComputedShare::Partly);
            replicas.on_release(&flight, evidence, computed, false, now);
            if let Some(prefill) = &flight.prefill {
                end_prefill(replicas, prefill, Evidence::None, computed, now);
            }
        } else if !pool.peers.on_abort(id, now) {
            return;
        }
        self.outbox.counters.aborted_in_flight += 1;
    }
}

/// Learns how long a request occupied its replica.
fn learn_service_time(pool: &mut PoolState, flight: &InFlightRequest) {
    let took_s = pool.now.since(flight.dispatched_at).as_secs_f64();
    let learned = |known: f64| known + SERVICE_LEARNING_RATE.get() * (took_s - known);
    pool.service_s = Some(pool.service_s.map_or(took_s, learned));
}

/// Counts a request out of those of its adapter, and of its tenant.
fn leave(pool: &mut PoolState, flight: &InFlightRequest) {
    if let Some(adapter) = flight.request.adapter
        && let Some(replica) = pool.replicas.slot_of(flight.claim.replica)
    {
        pool.adapters.on_release(replica, adapter, pool.now);
    }
    pool.tenants.leave(flight.charge, |of| &mut of.in_flight);
}

/// Moves the prompt in the index from the chosen replica to the one that computed it, if that is another one.
fn correct_index(pool: &mut PoolState, flight: &InFlightRequest, end: End, deviation: Deviation) {
    if end != End::Answered {
        take_back_claims(pool, flight);
        return end_claims(pool, flight, false);
    }
    let (caches, replicas, claim) = (&mut pool.caches, &pool.replicas, &flight.claim);
    if deviation.is_elsewhere
        && let Some(chosen) = replicas.slot_of(claim.replica)
    {
        caches.take_back(chosen, &flight.request.fingerprint, &claim.recorded);
    }
    if let Some(other) = deviation.other.and_then(|id| replicas.slot_of(id)) {
        let blocks = flight.request.fingerprint.blocks();
        let matched = caches.index.deepest_of(blocks, other);
        let owner = claim.recorded.owner;
        caches.index.record_of(owner, blocks, other, &matched);
    }
    end_claims(pool, flight, !deviation.is_elsewhere);
}

/// Takes back the claims of a request whose replicas have computed nothing, or something else.
#[inline(never)]
fn take_back_claims(pool: &mut PoolState, flight: &InFlightRequest) {
    for claim in flight.claims() {
        if let Some(replica) = pool.replicas.slot_of(claim.replica) {
            let (caches, recorded) = (&mut pool.caches, &claim.recorded);
            caches.take_back(replica, &flight.request.fingerprint, recorded);
        }
    }
}

/// Ends the claims of a request whose response has not begun, after what it added was taken back. With `is_computed` it was
/// not taken back: the replica may hold the prompt.
fn end_claims(pool: &mut PoolState, flight: &InFlightRequest, is_computed: bool) {
    let index = &mut pool.caches.index;
    for claim in flight.claims().filter(|_| !flight.has_begun) {
        match pool.replicas.slot_of(claim.replica) {
            Some(slot) if is_computed => index.confirm(slot, &claim.recorded),
            Some(slot) => index.unclaim(slot, &claim.recorded),
            None => {}
        }
    }
}

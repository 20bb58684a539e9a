//! Arrivals, and the ways into the queue and out of it.

use core::time::Duration;

use super::Router;
use super::decide::{decide_at_once, decide_on_wait};
use super::entitled::is_long_prompt;
use super::hold::{batch_credit, decide_held};
use super::queued::queued;
use super::routing::{AvailableTargets, RoutingDecision};
use crate::policy::PolicyEvent;
use crate::pool_state::PoolState;
use crate::queue::{Band, EnteredBy, QueueSeq, QueuedRequest};
use crate::{RejectReason, ReleaseReason, Request, Scope, Time};

/// Shortest time after which a client is told to retry a rejected request.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// Longest time after which a client is told to retry a rejected request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Limit of expired requests that one event rejects; the next event rejects more.
const EXPIRED_PER_EVENT_MAX: usize = 1_024;

impl Router {
    pub(super) fn arrived(&mut self, request: Request) {
        let (pool, outbox) = (&mut self.pool, &mut self.outbox);
        let (id, now) = (request.id, pool.now);
        if pool.queue.contains(id)
            || pool.in_flight.contains_key(&id)
            || pool.peers.forwarded.contains(id)
        {
            return;
        }
        let tier = pool.config.tier_of(request.tier);
        let counters = &mut outbox.counters;
        counters.arrived += 1;
        outbox.tiers.of(tier).arrived += 1;
        let mut returned = None;
        match &request.scope {
            Scope::Local => {}
            Scope::Forwarded => counters.forwarded_in += 1,
            Scope::Regions { tried } => {
                if let Some(peer) = tried.last() {
                    counters.returned += u64::from(pool.peers.on_return(*peer, now));
                    returned = pool.peers.take_returned(*peer, &request);
                }
            }
        }
        let limits = pool.config.tenants.as_ref();
        let slot = pool.tenants.track(request.tenant, limits);
        if returned.is_none() {
            // A request that a peer returned counts already.
            pool.tenants.change(slot, |tenant| tenant.requests += 1);
        }
        let quarantine = pool.config.quarantine;
        if let Some(rest) = pool.quarantine.rest_of(&request, quarantine, now) {
            return outbox.reject(id, tier, RejectReason::Quarantined, rest);
        }
        let entry = match returned {
            Some(_) => EnteredBy::Returned,
            None => EnteredBy::Arrived,
        };
        // A request that a peer returned gets its old place in the order of arrival.
        let (seq, arrived, entered) = returned.unwrap_or_else(|| (pool.queue.next_seq(), now, now));
        let mut queued = queued(pool, request, seq, arrived, entry);
        queued.entered = entered;
        queued.charge.slot = slot;
        if queued.band == Band::Held {
            let at = AvailableTargets::of(&self.pool, self.service.is_pending());
            let routing = decide_held(&self.pool, &*self.policy, &queued, at);
            return self.apply(queued, routing);
        }
        if queued.entered_by == EnteredBy::Promoted {
            self.pool.gate.count_release(ReleaseReason::Promoted);
        }
        self.admit(queued);
    }

    /// Routes a request of the first band, or lets it wait.
    fn admit(&mut self, mut queued: QueuedRequest) {
        let (pool, is_serving) = (&self.pool, self.service.is_pending());
        let at = AvailableTargets::of(pool, is_serving);
        let mut routing = decide_at_once(pool, &*self.policy, &queued, at);
        if let RoutingDecision::Dispatch(_) | RoutingDecision::Wait(_) = routing {
            // The policy hears of the request afterwards, so that an explanation in advance is what happens.
            let view = pool.view(at.replicas);
            let event = PolicyEvent::Arrival(&queued.request, &view);
            self.policy.on_event(event);
        }
        if let RoutingDecision::Wait(preferred) = routing {
            queued.preferred = preferred;
            queued.delayed_since = preferred.map(|_| pool.now);
            routing = decide_on_wait(pool, &*self.policy, &queued, preferred, at);
        }
        self.apply(queued, routing);
    }

    fn apply(&mut self, mut queued: QueuedRequest, routing: RoutingDecision) {
        let pool = &mut self.pool;
        match routing {
            RoutingDecision::Dispatch(dispatch) => {
                if queued.band == Band::Held {
                    let (_, reason) = batch_credit(pool);
                    pool.gate.count_release(reason);
                }
                self.dispatch(queued, dispatch);
            }
            RoutingDecision::Forward(target) => self.forward(&queued, &target),
            RoutingDecision::Reject(reason) => {
                if reason == RejectReason::RegionFull {
                    self.outbox.counters.forwarded_in_rejected += 1;
                }
                if reason == RejectReason::TenantLimit {
                    let slot = queued.charge.slot;
                    pool.tenants.change(slot, |tenant| tenant.refused += 1);
                }
                self.reject(&queued.request, reason);
            }
            RoutingDecision::Wait(_) => {
                self.outbox.counters.queued += u64::from(queued.entered_by != EnteredBy::Promoted);
                // The last held request gives way to one of the first band, if the queue is full.
                if pool.queue.len() >= pool.config.queue.length_max
                    && queued.band == Band::Waiting
                    && !queued.is_requeued()
                    && let Some(last) = pool.queue.last_held()
                {
                    self.reject_queued(last, RejectReason::QueueFull);
                }
                let pool = &mut self.pool;
                if queued.band == Band::Waiting {
                    let view = pool.view(pool.replicas.available());
                    let rules = self.policy.rules();
                    queued.is_long_prompt = is_long_prompt(pool, rules, &queued.request);
                    self.policy.on_event(PolicyEvent::Enqueue(&queued, &view));
                }
                pool.tenants.enter(queued.charge, |of| &mut of.waiting);
                pool.queue.push(queued);
            }
        }
    }

    /// Lets a held request join the first band, as if it arrived now.
    pub(super) fn promote(&mut self, seq: QueueSeq) {
        if let Some(mut queued) = self.dequeue(seq) {
            queued.band = Band::Waiting;
            queued.entered = self.pool.now;
            queued.entered_by = EnteredBy::Promoted;
            queued.seq = self.pool.queue.next_seq();
            self.pool.gate.count_release(ReleaseReason::Promoted);
            self.admit(queued);
        }
    }

    pub(super) fn dequeue(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        let queued = self.pool.queue.remove(seq)?;
        let tenants = &mut self.pool.tenants;
        tenants.leave(queued.charge, |of| &mut of.waiting);
        if queued.band == Band::Waiting {
            self.policy.on_event(PolicyEvent::Dequeue(seq));
        }
        Some(queued)
    }

    /// Rejects the requests that have waited too long, and during a shutdown all others, oldest first.
    pub(super) fn reject_expired(&mut self) {
        for _ in 0..EXPIRED_PER_EVENT_MAX {
            let pool = &self.pool;
            let next = next_rejection(pool).filter(|(expires, _)| *expires <= pool.now);
            let Some((_, seq)) = next else {
                return;
            };
            let was_held = || {
                let queued = pool.queue.get(seq);
                queued.is_some_and(|queued| queued.band == Band::Held)
            };
            let reason = if pool.is_shutting_down {
                RejectReason::ShuttingDown
            } else if pool.replicas.staying().is_empty() {
                RejectReason::NoReplica
            } else if !pool.replicas.any_healthy() {
                RejectReason::NoHealthyReplica
            } else if was_held() {
                RejectReason::NoSpareCapacity
            } else {
                RejectReason::WaitedTooLong
            };
            self.reject_queued(seq, reason);
        }
    }

    pub(super) fn reject_queued(&mut self, seq: QueueSeq, reason: RejectReason) {
        if let Some(queued) = self.dequeue(seq) {
            self.reject(&queued.request, reason);
        }
    }

    fn reject(&mut self, request: &Request, reason: RejectReason) {
        let pool = &self.pool;
        let tier = pool.config.tier_of(request.tier);
        let retry_after = match reason {
            RejectReason::Quarantined => pool.config.quarantine,
            _ => retry_after(pool),
        };
        self.outbox.reject(request.id, tier, reason, retry_after);
    }
}

/// Time after which the client of a rejected request may try again: a new request has to expect the wait of the oldest one, which is a
/// held one where requests are held.
fn retry_after(pool: &PoolState) -> Duration {
    let oldest = pool.queue.oldest();
    let waited = oldest.map_or(Duration::ZERO, |queued| pool.now.since(queued.arrived));
    waited.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
}

/// The queued request that is rejected next, and when.
pub(super) fn next_rejection(pool: &PoolState) -> Option<(Time, QueueSeq)> {
    if pool.is_shutting_down {
        return pool.queue.oldest().map(|oldest| (pool.now, oldest.seq));
    }
    pool.next_expiry()
}

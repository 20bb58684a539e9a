//! Arrivals: the decision on a new request, applied.

use super::Router;
use super::decide::RoutingDecision;
use super::forward::whole_tokens;
use crate::policy::{Dispatch, PolicyEvent};
use crate::queue::{Band, LinePlace, QueueSeq, QueuedRequest};
use crate::tenants::TenantSlot;
use crate::{RejectReason, ReleaseReason, Request, RequestId, TenantStatus};

impl Router {
    pub(super) fn arrived(&mut self, request: Request) {
        if self.is_known(request.id) {
            return;
        }
        self.counters.arrived += 1;
        let tier = self.tier_of(request.tier);
        self.tier_counts.of(tier).arrived += 1;
        // A request that a peer returned gets its old place in the order of arrival.
        let returned = self.receive(&request);
        let tenant = self.track_tenant(&request, returned.is_some());
        if self.reject_quarantined(&request) {
            return;
        }
        let now = self.pool.now;
        let (seq, arrived, entered) =
            returned.unwrap_or_else(|| (self.pool.queue.next_seq(), now, now));
        let mut queued = self.queued(request, seq, arrived, returned.is_some());
        queued.entered = entered;
        queued.tenant = tenant;
        if queued.band == Band::Held {
            let routing = self.decide_held(&queued, self.available_targets());
            self.apply(queued, routing);
            return;
        }
        if queued.is_promoted {
            self.count_release(ReleaseReason::Promoted);
        }
        self.admit(queued);
    }

    /// Routes a request of the first band, or lets it wait.
    pub(super) fn admit(&mut self, mut queued: QueuedRequest) {
        let mut routing = self.decide_at_once(&queued, self.available_targets());
        if let RoutingDecision::Dispatch(_) | RoutingDecision::Wait(_) = routing {
            // The policy hears of the request afterwards, so that an explanation in advance is what happens.
            let view = self.pool.view(self.pool.replicas.available());
            let event = PolicyEvent::Arrival(&queued.request, &view);
            self.policy.on_event(event);
        }
        if let RoutingDecision::Wait(preferred) = routing {
            queued.preferred = preferred;
            queued.delayed_since = preferred.map(|_| self.pool.now);
            routing = self.decide_on_wait(&queued, preferred, self.available_targets());
        }
        self.apply(queued, routing);
    }

    fn apply(&mut self, queued: QueuedRequest, routing: RoutingDecision) {
        match routing {
            RoutingDecision::Dispatch(dispatch) => {
                if queued.band == Band::Held {
                    let (_, reason) = self.batch_credit();
                    self.count_release(reason);
                }
                self.dispatch(queued, dispatch);
            }
            RoutingDecision::Forward(target) => self.forward(queued, &target),
            RoutingDecision::Reject(reason) => {
                if reason == RejectReason::RegionFull {
                    self.counters.forwarded_in_rejected += 1;
                }
                if reason == RejectReason::TenantLimit {
                    let refuse = |tenant: &mut TenantStatus| tenant.refused += 1;
                    self.pool.tenants.change(queued.tenant, refuse);
                }
                let tier = self.tier_of(queued.request.tier);
                self.tier_counts.of(tier).rejected += 1;
                self.reject(queued.request.id, reason);
            }
            RoutingDecision::Wait(_) => {
                if !queued.is_promoted {
                    self.counters.queued += 1;
                }
                self.give_way(&queued);
                self.enqueue(queued);
            }
        }
    }

    /// Lets the last held request give way to one of the first band, if the queue is full.
    fn give_way(&mut self, arriving: &QueuedRequest) {
        let is_full = self.pool.queue.len() >= self.pool.config.queue.length_max;
        if is_full
            && arriving.band == Band::Waiting
            && !arriving.is_requeued()
            && let Some(last) = self.pool.queue.last_held()
        {
            self.reject_queued(last, RejectReason::QueueFull);
        }
    }

    /// The entry of an arriving request's tenant. A request that a peer returned counts already.
    fn track_tenant(&mut self, request: &Request, has_returned: bool) -> TenantSlot {
        let tenant = self.pool.track_tenant(request.tenant);
        if !has_returned {
            let count = |tenant: &mut TenantStatus| tenant.requests += 1;
            self.pool.tenants.change(tenant, count);
        }
        tenant
    }

    fn is_known(&self, id: RequestId) -> bool {
        let pool = &self.pool;
        pool.queue.contains(id) || pool.in_flight.contains_key(&id) || pool.forwarded.contains(id)
    }

    /// A request before it waits, with its prompt in tokens of the learned length.
    pub(super) fn queued(
        &self,
        mut request: Request,
        seq: QueueSeq,
        arrived: crate::Time,
        has_returned: bool,
    ) -> QueuedRequest {
        self.keep_to_response(&mut request);
        let band = self.band_of(&request);
        let estimated_tokens = request.prompt_tokens;
        request.prompt_tokens = self.token_length.tokens(estimated_tokens);
        QueuedRequest {
            seq,
            place: LinePlace::LAST,
            band,
            estimated_tokens,
            arrived,
            entered: arrived,
            tenant: self.pool.tenants.slot_of(request.tenant),
            tokens: self.tokens_of(&request),
            overtaken: 0,
            asked_in: 0,
            pinned: self.pinned(&request),
            has_returned,
            is_promoted: band == Band::Waiting && self.is_batch(&request),
            is_long_prompt: false,
            preferred: None,
            delayed_since: None,
            request,
        }
    }

    /// Estimated tokens of a request that count for its tenant: the prompt and the answer. A prompt that the filter has not read counts as
    /// the mean request of the pool.
    fn tokens_of(&self, request: &Request) -> u64 {
        let expected = whole_tokens(self.pool.replicas.output_tokens());
        let answer = request.output_tokens_max.unwrap_or(u32::MAX).min(expected);
        match (request.prompt_tokens, self.pool.tenants.mean_tokens()) {
            (0, Some(mean)) => mean,
            (prompt, _) => u64::from(prompt) + u64::from(answer),
        }
    }

    /// Dispatches a queued request.
    pub(super) fn dispatch_queued(&mut self, seq: QueueSeq, dispatch: Dispatch) {
        self.count_past_slo(seq, dispatch);
        if let Some(queued) = self.dequeue(seq) {
            self.dispatch(queued, dispatch);
        }
    }

    fn enqueue(&mut self, mut queued: QueuedRequest) {
        if queued.band == Band::Waiting {
            let view = self.pool.view(self.pool.replicas.available());
            queued.is_long_prompt = self.is_long_prompt(&queued.request);
            self.policy.on_event(PolicyEvent::Enqueue(&queued, &view));
        }
        let (tenant, tokens) = (queued.tenant, queued.tokens);
        self.pool
            .tenants
            .enter(tenant, tokens, |of| &mut of.waiting);
        self.pool.queue.push(queued);
    }

    pub(super) fn dequeue(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        let queued = self.pool.queue.remove(seq)?;
        let (tenant, tokens) = (queued.tenant, queued.tokens);
        self.pool
            .tenants
            .leave(tenant, tokens, |of| &mut of.waiting);
        if queued.band == Band::Waiting {
            self.policy.on_event(PolicyEvent::Dequeue(seq));
        }
        Some(queued)
    }
}

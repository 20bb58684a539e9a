//! Arrivals: the decision on a new request, applied. A request may pass older ones only within the policy's bound.

use core::cell::Cell;

use super::Router;
use super::decide::RoutingDecision;
use crate::policy::{Dispatch, PolicyEvent};
use crate::queue::{QueueSeq, QueuedRequest};
use crate::tenants::TenantSlot;
use crate::{Request, RequestId, TenantStatus};

/// Queued requests that one arrival lets go first, at most; beyond that it waits behind them.
const ENTITLED_SERVED_MAX: usize = 16;

impl Router {
    pub(super) fn arrived(&mut self, request: Request) {
        if self.is_known(request.id) {
            return;
        }
        self.counters.arrived += 1;
        // A request that a peer returned gets its old place in the order of arrival.
        let returned = self.receive(&request);
        let tenant = self.track_tenant(&request, returned.is_some());
        if self.reject_quarantined(&request) {
            return;
        }
        let (seq, arrived) =
            returned.unwrap_or_else(|| (self.pool.queue.next_seq(), self.pool.now));
        let mut queued = self.queued(request, seq, arrived, returned.is_some());
        queued.tenant = tenant;
        let mut routing = self.decide_at_once(&queued, self.availables());
        if let RoutingDecision::Dispatch(dispatch) = routing {
            routing = self.serve_overtaken_first(&queued, dispatch);
        }
        if let RoutingDecision::Dispatch(_) | RoutingDecision::Wait(_) = routing {
            // The policy hears of the request afterwards, so that an explanation in advance is what happens.
            let view = self.pool.view(self.pool.replicas.available());
            let event = PolicyEvent::Arrival(&queued.request, &view);
            self.policy.on_event(event);
        }
        if let RoutingDecision::Wait(preferred) = routing {
            queued.preferred = preferred;
            queued.delayed_since = preferred.map(|_| self.pool.now);
            routing = self.decide_on_wait(&queued, preferred, self.availables());
        }
        self.apply(queued, routing);
    }

    fn apply(&mut self, queued: QueuedRequest, routing: RoutingDecision) {
        match routing {
            RoutingDecision::Dispatch(dispatch) => self.dispatch(queued, dispatch),
            RoutingDecision::Forward(target) => self.forward(queued, &target),
            RoutingDecision::Reject(reason) => {
                if reason == crate::RejectReason::RegionFull {
                    self.counters.forwarded_in_rejected += 1;
                }
                if reason == crate::RejectReason::TenantLimit {
                    let refuse = |tenant: &mut TenantStatus| tenant.refused += 1;
                    self.pool.tenants.change(queued.tenant, refuse);
                }
                self.reject(queued.request.id, reason);
            }
            RoutingDecision::Wait(_) => {
                self.counters.queued += 1;
                self.enqueue(queued);
            }
        }
    }

    /// The entry of an arriving request's tenant. A request that a peer returned counts already.
    fn track_tenant(&mut self, request: &Request, has_returned: bool) -> TenantSlot {
        let limits = self.pool.config.tenants.as_ref();
        let tenant = self.pool.tenants.track(request.tenant, limits);
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
        let estimated_tokens = request.prompt_tokens;
        request.prompt_tokens = self.token_length.tokens(estimated_tokens);
        QueuedRequest {
            seq,
            estimated_tokens,
            arrived,
            tenant: self.pool.tenants.slot_of(request.tenant),
            overtaken: 0,
            pinned: self.pinned(&request),
            has_returned,
            is_long_prompt: false,
            preferred: None,
            delayed_since: None,
            affinity: None,
            known: Cell::default(),
            request,
        }
    }

    /// Serves the queued requests that an arrival must not overtake on its replica, and decides anew after each.
    fn serve_overtaken_first(
        &mut self,
        arriving: &QueuedRequest,
        mut dispatch: Dispatch,
    ) -> RoutingDecision {
        for _ in 0..ENTITLED_SERVED_MAX {
            if self.pool.queue.len() == 0 {
                return RoutingDecision::Dispatch(dispatch);
            }
            let Some(seq) = self.entitled_before(dispatch) else {
                self.count_overtakes(QueueSeq::LAST, dispatch.replica);
                return RoutingDecision::Dispatch(dispatch);
            };
            let available = self.pool.replicas.available();
            let entitled = self.pool.queue.get(seq);
            let routing = entitled.map(|queued| self.route(queued, true, available));
            let Some(RoutingDecision::Dispatch(entitled)) = routing else {
                return RoutingDecision::Wait(None);
            };
            self.dispatch_queued(seq, entitled);
            dispatch = match self.route(arriving, false, self.pool.replicas.available()) {
                RoutingDecision::Dispatch(dispatch) => dispatch,
                waiting => return waiting,
            };
        }
        RoutingDecision::Wait(None)
    }

    /// Dispatches a queued request, which overtakes older ones.
    pub(super) fn dispatch_queued(&mut self, seq: QueueSeq, dispatch: Dispatch) {
        self.count_overtakes(seq, dispatch.replica);
        self.count_past_slo(seq, dispatch);
        if let Some(queued) = self.dequeue(seq) {
            self.dispatch(queued, dispatch);
        }
    }

    fn enqueue(&mut self, mut queued: QueuedRequest) {
        let view = self.pool.view(self.pool.replicas.available());
        queued.affinity = self.policy.find_affinity(&queued, &view);
        queued.is_long_prompt = self.is_long_prompt(&queued.request);
        self.policy.on_event(PolicyEvent::Enqueue(&queued, &view));
        self.forward_cursor.joined(queued.seq);
        let wait = |tenant: &mut TenantStatus| tenant.waiting += 1;
        self.pool.tenants.change(queued.tenant, wait);
        self.pool.queue.push(queued);
    }

    pub(super) fn dequeue(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        let queued = self.pool.queue.remove(seq)?;
        self.forward_cursor.left(seq);
        let leave = |tenant: &mut TenantStatus| tenant.waiting = tenant.waiting.saturating_sub(1);
        self.pool.tenants.change(queued.tenant, leave);
        self.policy.on_event(PolicyEvent::Dequeue(seq));
        Some(queued)
    }
}

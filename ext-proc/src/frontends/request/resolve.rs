//! Turns a pool's decision into the reply to a request.

use std::sync::Arc;
use std::time::Duration;

use isotherm_router::{RejectReason, Tier};

use super::describe::{self, RequestSummary};
use super::openai;
use super::reply::{
    ForwardReply, ImmediateReply, ObjectivesLeft, PassThroughReply, Reply, RouteReply,
};
use super::trace::Target;
use super::{RequestLifecycle, RequestStage};
use crate::admin::view::DecisionView;
use crate::metrics::RequestResult;
use crate::pool::{ANY_MODEL, ForwardRoute, InFlightGuard, PoolDecision, Route};
use crate::tier;

impl RequestLifecycle {
    /// Builds the reply, and moves the request to its next stage.
    pub(super) fn reply_to(
        &mut self,
        guard: InFlightGuard,
        decision: PoolDecision,
        summary: &RequestSummary,
    ) -> Reply {
        match decision {
            PoolDecision::Dispatch(route) => self.dispatch(guard, &route, summary),
            PoolDecision::Forward(route) => self.forward(guard, route, summary),
            PoolDecision::Reject {
                reason,
                retry_after,
            } => self.reject(guard, reason, retry_after, summary),
        }
    }

    fn dispatch(
        &mut self,
        mut guard: InFlightGuard,
        route: &Route,
        summary: &RequestSummary,
    ) -> Reply {
        guard.dispatch(route);
        let pool = guard.pool();
        describe::log(pool, guard.id(), self.id(), route, summary);
        self.record(|| {
            let decision = &route.decision;
            let facts = (decision.matched_bytes, decision.queued_for);
            DecisionView {
                target: Some(route.chosen.to_string()),
                reason: decision.reason.as_ref().to_owned(),
                ..describe::view(pool, guard.id(), self.id(), facts, summary)
            }
        });
        let header = self.has_decision_header();
        let header = header.then(|| describe::header(pool, route, summary));
        let traceparent = self.trace.as_mut().map(|trace| {
            let decision = &route.decision;
            let reason = decision.reason.into();
            trace.forward(
                Target::Replica(&route.chosen),
                reason,
                decision.matched_tokens,
            )
        });
        let reply = RouteReply {
            traceparent,
            ..RouteReply::to(route, pool, header, &summary.headers)
        };
        self.stage = RequestStage::InFlight(guard);
        Reply::Route(reply)
    }

    fn forward(
        &mut self,
        mut guard: InFlightGuard,
        route: ForwardRoute,
        summary: &RequestSummary,
    ) -> Reply {
        guard.forward(route.forwarding.queued_for);
        let pool = guard.pool();
        describe::log_forward(pool, guard.id(), self.id(), &route, summary);
        self.record(|| {
            let forwarding = &route.forwarding;
            let facts = (forwarding.matched_bytes, forwarding.queued_for);
            DecisionView {
                target: Some(format!("region {}", route.peer.name)),
                reason: forwarding.reason.as_ref().to_owned(),
                ..describe::view(pool, guard.id(), self.id(), facts, summary)
            }
        });
        let header = self.has_decision_header();
        let header = header.then(|| describe::forward_header(pool, &route, summary));
        // The other region needs neither this region's alias of the model, nor the reason why a request without a model
        // belongs to this pool.
        let model = Some(&**pool.name()).filter(|model| *model != ANY_MODEL);
        let model = summary.adapter.as_deref().or(model);
        let traceparent = self.trace.as_mut().map(|trace| {
            let forwarding = &route.forwarding;
            let reason = forwarding.reason.into();
            trace.forward(
                Target::Region(&route.peer.name),
                reason,
                forwarding.matched_tokens,
            )
        });
        let queued_for = route.forwarding.queued_for;
        let reply = ForwardReply {
            traceparent,
            objectives: ObjectivesLeft::after(queued_for, summary.ttft_slo, summary.time_left),
            ..ForwardReply::to(route, &summary.tried, model, header)
        };
        self.stage = RequestStage::InFlight(guard);
        Reply::Forward(reply)
    }

    /// Records a decision in the log of decisions, if a page asks for them.
    fn record(&self, decision: impl FnOnce() -> DecisionView) {
        self.context.pool_registry.decision_log().record(decision);
    }

    fn has_decision_header(&self) -> bool {
        self.context.pool_registry.table().has_decision_header()
    }

    fn reject(
        &mut self,
        guard: InFlightGuard,
        reason: RejectReason,
        retry_after: Duration,
        summary: &RequestSummary,
    ) -> Reply {
        let pool = Arc::clone(guard.pool());
        tracing::debug!(
            id = self.id(),
            pool = %pool.name(),
            request = guard.id().0,
            reason = reason.as_ref(),
            origin = summary.forwarded_from,
            tenant = summary.tenant.as_deref(),
            tier = tier::name(summary.tier),
            "rejected"
        );
        self.record(|| DecisionView {
            reason: reason.as_ref().to_owned(),
            ..describe::view(&pool, guard.id(), self.id(), (0, Duration::ZERO), summary)
        });
        guard.reject(reason);
        if let Some(mut trace) = self.trace.take() {
            trace.reject(reason.into());
        }
        let is_forwarded = summary.forwarded_from.is_some();
        if reason == RejectReason::ShuttingDown && !is_forwarded && !summary.needs_endpoint {
            // A service that stops must not fail a request that Envoy can place alone. For a forwarded request, its own
            // region finds a better place.
            self.stage = RequestStage::PassedThrough;
            let cluster = Some(pool.cluster());
            return Reply::PassThrough(PassThroughReply::to(cluster, &summary.headers));
        }
        let (details, body) = (reason.into(), openai::rejected(reason));
        let status = status_of(reason, summary, pool.has_tiers());
        self.close(if is_forwarded {
            ImmediateReply::to_region(details, body, Some(retry_after))
        } else {
            ImmediateReply {
                retry_after: Some(retry_after),
                ..ImmediateReply::new(RequestResult::Rejected, status, body, details)
            }
        })
    }
}

/// The HTTP status of a rejection.
fn status_of(reason: RejectReason, summary: &RequestSummary, has_tiers: bool) -> u16 {
    let is_limit = match reason {
        RejectReason::TenantLimit | RejectReason::NoSpareCapacity => true,
        // The endpoint picker protocol has a status of its own for shed load. Batch clients slow down by it.
        RejectReason::QueueFull => summary.needs_endpoint || is_batch(summary, has_tiers),
        RejectReason::WaitedTooLong => is_batch(summary, has_tiers),
        RejectReason::EmptySubset
        | RejectReason::NoReplica
        | RejectReason::NoHealthyReplica
        | RejectReason::RegionFull
        | RejectReason::ShuttingDown
        | RejectReason::Quarantined => false,
    };
    if is_limit { 429 } else { 503 }
}

fn is_batch(summary: &RequestSummary, has_tiers: bool) -> bool {
    has_tiers && summary.tier == Tier::NonInteractive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_work_that_is_turned_away_gets_429_where_the_pool_has_tiers() {
        let of_tier = |tier| RequestSummary {
            tier,
            ..RequestSummary::default()
        };
        let batch = of_tier(Tier::NonInteractive);
        let normal = of_tier(Tier::InteractiveNormal);
        for reason in [RejectReason::QueueFull, RejectReason::WaitedTooLong] {
            assert_eq!(status_of(reason, &batch, true), 429);
            assert_eq!(status_of(reason, &batch, false), 503);
            assert_eq!(status_of(reason, &normal, true), 503);
        }
        assert_eq!(status_of(RejectReason::NoSpareCapacity, &batch, true), 429);
        assert_eq!(status_of(RejectReason::NoReplica, &batch, true), 503);
        let at_picker = RequestSummary {
            needs_endpoint: true,
            ..normal
        };
        assert_eq!(status_of(RejectReason::QueueFull, &at_picker, false), 429);
    }
}

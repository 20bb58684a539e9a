//! What becomes of a request once it is decided: a replica, another region, or an answer from here.

use std::sync::Arc;
use std::time::Duration;

use isotherm_router::RejectReason;
use serde_json::Value;

use super::describe::{self, RequestSummary};
use super::openai;
use super::reply::{ForwardReply, ImmediateReply, PassThroughReply, Reply, RouteReply};
use super::{RequestLifecycle, Stage};
use crate::metrics::RequestResult;
use crate::pool::{ANY_MODEL, ForwardRoute, InFlightGuard, PoolDecision, Route};

impl RequestLifecycle {
    pub(super) fn decided(
        &mut self,
        guard: InFlightGuard,
        verdict: PoolDecision,
        summary: &RequestSummary,
    ) -> Reply {
        match verdict {
            PoolDecision::Dispatch(route) => self.go(guard, &route, summary),
            PoolDecision::Forward(forward) => self.forward(guard, forward, summary),
            PoolDecision::Reject {
                reason,
                retry_after,
            } => self.refuse(guard, reason, retry_after, summary),
        }
    }

    fn go(&mut self, mut guard: InFlightGuard, route: &Route, summary: &RequestSummary) -> Reply {
        guard.dispatch(route);
        let pool = guard.pool();
        describe::log(pool, guard.id(), route, summary);
        let described = self
            .describes()
            .then(|| describe::header(pool, route, summary));
        let routed = RouteReply::to(route, pool, described, &summary.headers);
        self.stage = Stage::Sent(guard);
        Reply::Route(routed)
    }

    fn forward(
        &mut self,
        mut guard: InFlightGuard,
        forward: ForwardRoute,
        summary: &RequestSummary,
    ) -> Reply {
        guard.forward();
        let pool = guard.pool();
        describe::log_forward(pool, guard.id(), &forward, summary);
        let described = self
            .describes()
            .then(|| describe::forward_header(pool, &forward, summary));
        // The other region need not know the alias under which this one was asked, nor what makes a request this pool's
        // that names no model.
        let model = Some(&**pool.name()).filter(|model| *model != ANY_MODEL);
        let forwarded = ForwardReply::to(forward, &summary.tried, model, described);
        self.stage = Stage::Sent(guard);
        Reply::Forward(forwarded)
    }

    /// Whether clients are told why their request went where it went.
    fn describes(&self) -> bool {
        self.context.pool_registry.table().has_decision_header()
    }

    fn refuse(
        &mut self,
        guard: InFlightGuard,
        reason: RejectReason,
        retry_after: Duration,
        summary: &RequestSummary,
    ) -> Reply {
        let pool = Arc::clone(guard.pool());
        tracing::debug!(
            pool = %pool.name(),
            request = guard.id().0,
            reason = reason.as_str(),
            origin = summary.guest_of,
            "refused"
        );
        guard.reject();
        if reason == RejectReason::ShuttingDown && summary.guest_of.is_none() {
            // A service that stops must not fail what Envoy can place without it. A guest is better placed at home.
            self.stage = Stage::Settled;
            return Reply::PassThrough(PassThroughReply::to(
                Some(pool.cluster()),
                &summary.headers,
            ));
        }
        let body = openai::rejected(reason);
        if summary.guest_of.is_some() {
            return self.refused(reason.as_str(), body, Some(retry_after));
        }
        self.answered(ImmediateReply {
            kind: RequestResult::Rejected,
            status: 503,
            body,
            retry_after: Some(retry_after),
            refused: None,
            details: reason.as_str(),
        })
    }

    /// Sends a guest back: the region that it came from decides anew.
    pub(super) fn refused(
        &mut self,
        why: &'static str,
        body: Value,
        retry_after: Option<Duration>,
    ) -> Reply {
        self.answered(ImmediateReply {
            kind: RequestResult::Rejected,
            status: 503,
            body,
            retry_after,
            refused: Some(why),
            details: why,
        })
    }

    pub(super) fn immediate(
        &mut self,
        kind: RequestResult,
        status: u16,
        body: Value,
        details: &'static str,
    ) -> Reply {
        self.answered(ImmediateReply {
            kind,
            status,
            body,
            retry_after: None,
            refused: None,
            details,
        })
    }

    fn answered(&mut self, immediate: ImmediateReply) -> Reply {
        self.stage = Stage::Answered;
        Reply::Immediate(immediate)
    }
}

//! The life of one request, shared by both frontends: parse its headers, find its pool, wait for the decision, build the
//! reply, learn from its outcome.
//!
//! A frontend translates its protocol into these steps and holds a [`RequestLifecycle`] for as long as the request lives.
//! Dropping it, for whatever reason the request ended, drops the [`InFlightGuard`], which releases the request in its
//! pool.

mod describe;
mod head;
mod openai;
mod origin;
pub(crate) mod reply;
mod resolve;
mod target;
mod trace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_fingerprint::outcome::Outcome;
use isotherm_fingerprint::{Api, is_anthropic, names, stored_response};
use isotherm_router::RejectReason;
use isotherm_wasm_filter_core::{body_timer, error_body};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::metrics::{Metrics, RequestResult};
use crate::pool::{
    Endpoint, InFlightGuard, Pool, PoolDecision, PoolRegistry, PoolTable, Submission,
};
use crate::spans::Spans;
use describe::RequestSummary;
use reply::{ImmediateReply, PassThroughReply, Reply};
use trace::{RequestTrace, Step};

pub(crate) use head::RequestHead;
pub(crate) use origin::ListenerKind;
pub(crate) use target::RouteTarget;

/// State that all requests share.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) pool_registry: Arc<PoolRegistry>,
    pub(crate) metrics: Arc<Metrics>,
    /// Exporter of spans, if one is configured.
    pub(crate) spans: Option<Spans>,
    /// Start of the service in seconds since 1970, which is the age of its models.
    pub(crate) started_unix_s: u64,
}

/// Time by which Envoy waits longer than the queue keeps a request: the queue's own reply comes first.
const WAIT_SLACK: Duration = Duration::from_secs(5);

pub(super) struct RequestLifecycle {
    context: Arc<RequestContext>,
    stage: RequestStage,
    /// Name of the request in Envoy's logs.
    request_id: Option<Box<str>>,
    /// Whether the client expects errors of Anthropic's shape.
    is_anthropic: bool,
    /// Spans of the request, if it is traced.
    trace: Option<Box<RequestTrace>>,
}

enum RequestStage {
    /// No headers yet.
    New,
    /// The request is queued for a replica.
    Queued(Box<(InFlightGuard, RequestSummary)>),
    /// The request is at a replica or in another region.
    InFlight(InFlightGuard),
    /// Envoy handles the request alone.
    PassedThrough,
    /// The service has replied to the client, or the response has ended.
    Closed,
}

/// The state of a request after its headers.
#[expect(
    clippy::large_enum_variant,
    reason = "it is returned and taken apart at once, and a box would be an allocation for each request"
)]
pub(super) enum RouteStatus {
    /// The reply is there.
    Replied(Reply),
    /// The request is queued.
    Queued {
        /// Longest time until the decision.
        timeout: Duration,
        /// Yields the decision for [`RequestLifecycle::resolve`].
        decision: oneshot::Receiver<PoolDecision>,
    },
}

impl RequestLifecycle {
    /// Starts a request without headers.
    pub(super) fn new(context: Arc<RequestContext>) -> Self {
        context.metrics.open_requests.inc();
        Self {
            context,
            stage: RequestStage::New,
            request_id: None,
            is_anthropic: false,
            trace: None,
        }
    }

    pub(super) fn context(&self) -> &RequestContext {
        &self.context
    }

    /// Notes the path, which determines the shape of errors.
    pub(super) fn note_path(&mut self, path: &str) {
        self.is_anthropic = is_anthropic(path);
    }

    /// Name of the request in Envoy's logs, if Envoy has sent it.
    fn id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Whether the request is at a replica or in another region.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.stage, RequestStage::InFlight(_))
    }

    pub(super) fn route(&mut self, mut head: RequestHead, table: &PoolTable) -> RouteStatus {
        let began = Instant::now();
        self.request_id = head.request_id.take();
        self.note_path(&head.path);
        head.request.api = table.api_of(&head.path);
        self.is_anthropic |= head.request.api == Some(Api::Messages);
        let spans = self.context.spans.as_ref();
        self.trace = spans.and_then(|spans| RequestTrace::begin(spans, &head, self.id()));
        let target = RouteTarget::of(&head, table);
        let is_forwarded = head
            .origin
            .is_other_region(table.peer_table().map(Arc::as_ref));
        tracing::trace!(
            id = self.id(),
            path = head.path,
            model = head.model,
            ?target,
            "request"
        );
        RouteStatus::Replied(match target {
            RouteTarget::Pool(pool) => {
                if let Some(read) = head.prompt_read() {
                    pool.metrics().count_prompt(read);
                }
                let status = self.submit(&pool, head, table);
                pool.metrics().observe_decision(began.elapsed());
                return status;
            }
            RouteTarget::PassThrough(cluster) => {
                self.stage = RequestStage::PassedThrough;
                Reply::PassThrough(PassThroughReply::to(cluster, &head.headers))
            }
            RouteTarget::Holder(pool, replica) => {
                self.stage = RequestStage::PassedThrough;
                Reply::PassThrough(PassThroughReply::to_replica(&pool, &replica, &head.headers))
            }
            RouteTarget::OtherApplication => {
                self.stage = RequestStage::PassedThrough;
                Reply::PassThrough(PassThroughReply::untouched(head.is_filtered))
            }
            target => self.answer(target, is_forwarded, table),
        })
    }

    /// Answers a request that goes to no pool and not to Envoy's routes.
    fn answer(&mut self, target: RouteTarget, is_forwarded: bool, table: &PoolTable) -> Reply {
        let started = self.context.started_unix_s;
        let models = |body| ImmediateReply::new(RequestResult::Models, 200, body, "models");
        let (bad, not_found) = (RequestResult::BadRequest, RequestResult::NotFound);
        let (result, status, body, details) = match target {
            RouteTarget::ModelList => {
                return self.close(models(openai::models(table.pools().iter(), started)));
            }
            RouteTarget::Model(id, pool) => {
                return self.close(models(openai::model(&id, &pool, started)));
            }
            RouteTarget::Health(is_healthy) => {
                let status = if is_healthy { 200 } else { 503 };
                let body = openai::health(is_healthy);
                let reply = ImmediateReply::new(RequestResult::Health, status, body, "health");
                return self.close(reply);
            }
            RouteTarget::MethodNotAllowed(methods) => {
                let body = openai::method_not_allowed();
                return self.close(ImmediateReply {
                    allow: Some(methods),
                    ..ImmediateReply::new(bad, 405, body, "method_not_allowed")
                });
            }
            RouteTarget::UnknownModel(id) => {
                let body = openai::unknown_model(&id);
                (not_found, 404, body, "unknown_model")
            }
            RouteTarget::MissingModel => (bad, 400, openai::no_model(), "no_model"),
            RouteTarget::UnreadModel(reason) => {
                let body = openai::unread_model(reason);
                (bad, reason.status(), body, "unread_model")
            }
            RouteTarget::UnknownPath
            | RouteTarget::Pool(_)
            | RouteTarget::Holder(..)
            | RouteTarget::PassThrough(_)
            | RouteTarget::OtherApplication => {
                (not_found, 404, openai::unknown_path(), "unknown_path")
            }
        };
        tracing::debug!(id = self.id(), details, "the request has no pool");
        self.reject_unroutable(is_forwarded, result, status, body, details)
    }

    /// Rejects a request without a pool. The region that forwarded one has a pool for it, so its client must not learn
    /// that this region has none.
    fn reject_unroutable(
        &mut self,
        is_forwarded: bool,
        result: RequestResult,
        status: u16,
        body: Value,
        details: &'static str,
    ) -> Reply {
        self.close(if is_forwarded {
            ImmediateReply::to_region(details, body, None)
        } else {
            ImmediateReply::new(result, status, body, details)
        })
    }

    /// Rejects a request whose body is late, before it has a pool.
    pub(super) fn reject_late_body(&mut self) -> Reply {
        tracing::debug!(id = self.id(), "the body did not arrive in time");
        let (result, code) = (RequestResult::BodyTimeout, body_timer::CODE);
        self.close(ImmediateReply::new(
            result,
            408,
            openai::body_timeout(),
            code,
        ))
    }

    fn submit(&mut self, pool: &Arc<Pool>, head: RequestHead, table: &PoolTable) -> RouteStatus {
        // Read first: after a reload in between, Envoy must not give up before the queue does.
        let wait_max = pool.wait_max();
        let peer_table = table.peer_table().map(Arc::as_ref);
        let request = head.route_request(pool, peer_table);
        let summary = RequestSummary::of(head, &request, peer_table);
        self.enter(Step::Decision);
        let (guard, submission) = pool.submit(&request);
        match submission {
            Submission::Decided(decision) => {
                RouteStatus::Replied(self.reply_to(guard, decision, &summary))
            }
            Submission::Queued(decision) => {
                self.enter(Step::Queue);
                self.stage = RequestStage::Queued(Box::new((guard, summary)));
                RouteStatus::Queued {
                    timeout: wait_max.saturating_add(WAIT_SLACK),
                    decision,
                }
            }
        }
    }

    /// Applies the decision on a queued request; `None` if the request is not queued.
    pub(super) fn resolve(
        &mut self,
        decision: Result<PoolDecision, oneshot::error::RecvError>,
    ) -> Option<Reply> {
        // A pool decides on every queued request before it goes, so a lost decision means that the pool is gone.
        let decision = decision.unwrap_or(PoolDecision::Reject {
            reason: RejectReason::ShuttingDown,
            retry_after: Duration::ZERO,
        });
        match std::mem::replace(&mut self.stage, RequestStage::PassedThrough) {
            RequestStage::Queued(queued) => {
                self.enter(Step::Decision);
                let (guard, summary) = *queued;
                Some(self.reply_to(guard, decision, &summary))
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Records the first token of the response.
    pub(super) fn begin_response(&mut self) {
        if let RequestStage::InFlight(guard) = &self.stage {
            guard.begin_response();
        }
        if let Some(trace) = &mut self.trace {
            trace.begin_response();
        }
    }

    /// Records that the replica of the request may store the response under this id.
    pub(super) fn store_response(&self, response_id: &str) {
        match &self.stage {
            RequestStage::InFlight(guard) if stored_response::is_id(response_id.as_bytes()) => {
                guard.store_response(response_id);
            }
            _ => {}
        }
    }

    /// The response to the client of a request whose replica hangs, with the replica; returned once. The request is still in
    /// flight: its end follows.
    pub(super) fn take_abandonment(&self) -> Option<(Endpoint, ImmediateReply)> {
        let RequestStage::InFlight(guard) = &self.stage else {
            return None;
        };
        let replica = guard.take_abandoned()?;
        // The metrics have counted the request as a routed one.
        let result = RequestResult::Rejected;
        let reply = ImmediateReply::new(result, 504, openai::hung(), "replica_hung");
        Some((replica, self.in_shape(reply)))
    }

    /// Ends the response, with the outcome that the filter reports.
    pub(super) fn finish_reported(&mut self, outcome: Option<&[u8]>) {
        let outcome = match outcome.map(Outcome::parse) {
            Some(Err(_)) => {
                self.context.metrics.count_bad_header(names::OUTCOME);
                None
            }
            parsed => parsed.and_then(Result::ok),
        };
        self.finish(outcome);
    }

    /// Ends the response.
    pub(super) fn finish(&mut self, outcome: Option<Outcome>) {
        let stage = std::mem::replace(&mut self.stage, RequestStage::Closed);
        let RequestStage::InFlight(guard) = stage else {
            return;
        };
        if let Some(trace) = self.trace.take() {
            trace.finish(outcome.as_ref());
        }
        match outcome {
            Some(outcome) => {
                describe::log_outcome(guard.pool(), guard.id(), self.id(), &outcome);
                let log = self.context.pool_registry.decision_log();
                log.finish(guard.pool().name(), guard.id().0, &outcome);
                guard.finish(&outcome);
            }
            None => guard.finish_without_outcome(),
        }
    }

    /// Begins a step of a traced request.
    fn enter(&mut self, step: Step) {
        if let Some(trace) = &mut self.trace {
            trace.enter(step);
        }
    }

    fn close(&mut self, reply: ImmediateReply) -> Reply {
        self.stage = RequestStage::Closed;
        Reply::Immediate(self.in_shape(reply))
    }

    /// Gives a reply the shape of the request's API.
    fn in_shape(&self, mut reply: ImmediateReply) -> ImmediateReply {
        if self.is_anthropic {
            reply.body = error_body::anthropic(reply.status, reply.body);
        }
        reply
    }
}

impl Drop for RequestLifecycle {
    fn drop(&mut self) {
        self.context.metrics.open_requests.dec();
        if let RequestStage::Queued(queued) = &self.stage {
            let (guard, _) = &**queued;
            self.context.metrics.count_request(RequestResult::Aborted);
            tracing::debug!(
                id = self.id(),
                pool = %guard.pool().name(),
                request = guard.id().0,
                "client disconnected while its request was queued"
            );
        }
    }
}

//! Encodes replies as actions of the decision stream.

use std::time::Duration;

use isotherm_decision_proto::{
    Action, DecisionResponse, ExtProcFallback, Forward, Header, ImmediateResponse, Route, Wait,
};
use isotherm_fingerprint::session;

use crate::config::EnginePriority;
use crate::frontends::request::reply::{ForwardReply, ImmediateReply, Reply, RouteReply};
use crate::pool::Endpoint;

pub(super) fn response(request_id: u32, action: Action) -> DecisionResponse {
    DecisionResponse {
        request_id,
        action: Some(action),
    }
}

/// Leaves the request to external processing.
pub(super) fn ext_proc_fallback() -> Action {
    Action::ExtProcFallback(ExtProcFallback {})
}

/// Announces that the request is queued for up to `timeout`.
pub(super) fn wait(timeout: Duration) -> Action {
    Action::Wait(Wait {
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    })
}

/// Encodes a reply.
pub(super) fn action(reply: Reply) -> Action {
    match reply {
        Reply::Route(reply) => route(reply),
        Reply::Immediate(reply) => Action::ImmediateResponse(immediate(&reply)),
        Reply::Forward(reply) => forward(reply),
        Reply::PassThrough(_) => ext_proc_fallback(),
    }
}

fn forward(reply: ForwardReply) -> Action {
    let model = reply.model.map(|model| session::encode(model.as_bytes()));
    Action::Forward(Forward {
        cluster: reply.route.peer.cluster.to_string(),
        origin: reply.route.peer_table.own().to_string(),
        tried: reply.tried,
        model: model.unwrap_or_default(),
        ttft_ms: reply.objectives.ttft_ms,
        deadline_ms: reply.objectives.deadline_ms,
        decision: reply.decision.unwrap_or_default(),
        reason: reply.record.reason.to_owned(),
        queued_ms: reply.record.queued_ms,
        traceparent: reply.traceparent.unwrap_or_default(),
    })
}

fn route(reply: RouteReply) -> Action {
    let priority = |engine| reply.priority.and_then(|header| header.value_for(engine));
    Action::Route(Route {
        destination: reply.endpoints,
        cluster: reply.cluster.unwrap_or_default(),
        decision: reply.decision.unwrap_or_default(),
        prefiller: reply.prefiller.unwrap_or_default(),
        reason: reply.record.reason.to_owned(),
        queued_ms: reply.record.queued_ms,
        traceparent: reply.traceparent.unwrap_or_default(),
        vllm_priority: priority(EnginePriority::Vllm),
        sglang_priority: priority(EnginePriority::Sglang),
    })
}

/// Encodes the response to the client of a request whose replica hangs.
pub(super) fn abandonment(replica: &Endpoint, reply: &ImmediateReply) -> Action {
    Action::ImmediateResponse(ImmediateResponse {
        replica: replica.as_str().to_owned(),
        ..immediate(reply)
    })
}

fn immediate(reply: &ImmediateReply) -> ImmediateResponse {
    let headers = reply.headers().map(|(name, value)| Header {
        name: name.to_owned(),
        value: value.into_owned().into_bytes(),
    });
    ImmediateResponse {
        status: u32::from(reply.status),
        headers: headers.collect(),
        body: reply.body.to_string().into_bytes(),
        replica: String::new(),
        reason: reply.details.to_owned(),
    }
}

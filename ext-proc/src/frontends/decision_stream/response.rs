//! What becomes of a request, as the decision stream says it.

use std::time::Duration;

use isotherm_decision_proto::{
    Action, DecisionResponse, ExtProcFallback, Header, ImmediateResponse, Route, Wait,
};

use super::super::request::reply::{self, Reply};

/// What is said of request `id`.
pub(super) fn encode(id: u32, action: Action) -> DecisionResponse {
    DecisionResponse {
        request_id: id,
        action: Some(action),
    }
}

/// It has to be asked by external processing.
pub(super) fn ext_proc_fallback() -> Action {
    Action::ExtProcFallback(ExtProcFallback {})
}

/// It waits for `timeout` at the most.
pub(super) fn wait(timeout: Duration) -> Action {
    Action::Wait(Wait {
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    })
}

/// What becomes of it. A request that was placed where there are no regions goes to none; that it did all the same would
/// be for external processing to say, too.
pub(super) fn action(reply: Reply) -> Action {
    match reply {
        Reply::Route(routed) => Action::Route(Route {
            destination: routed.endpoints,
            cluster: routed.cluster.unwrap_or_default(),
            decision: routed.decision.unwrap_or_default(),
        }),
        Reply::Immediate(immediate) => Action::ImmediateResponse(self::immediate(&immediate)),
        Reply::PassThrough(_) | Reply::Forward(_) => ext_proc_fallback(),
    }
}

fn immediate(immediate: &reply::ImmediateReply) -> ImmediateResponse {
    let headers = immediate.headers().map(|(name, value)| Header {
        name: name.to_owned(),
        value: value.into_owned().into_bytes(),
    });
    ImmediateResponse {
        status: u32::from(immediate.status),
        headers: headers.collect(),
        body: immediate.body.to_string().into_bytes(),
    }
}

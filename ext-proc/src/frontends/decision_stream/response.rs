//! What becomes of a request, as the line says it.

use std::time::Duration;

use isotherm_decision_proto::{Answer, Header, Immediate, Passed, Routed, Waits, What};

use super::super::request::reply::{self, Reply};

/// What is said of request `id`.
pub(super) fn answer(id: u32, what: What) -> Answer {
    Answer {
        id,
        what: Some(what),
    }
}

/// It has to be asked by external processing.
pub(super) fn passed() -> What {
    What::Passed(Passed {})
}

/// It waits for `timeout` at the most.
pub(super) fn waits(timeout: Duration) -> What {
    What::Waits(Waits {
        milliseconds: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    })
}

/// What becomes of it. A request that was placed where there are no regions goes to none; that it did all the same would
/// be for external processing to say, too.
pub(super) fn what(reply: Reply) -> What {
    match reply {
        Reply::Route(routed) => What::Routed(Routed {
            destination: routed.endpoints,
            cluster: routed.cluster.unwrap_or_default(),
            decision: routed.decision.unwrap_or_default(),
        }),
        Reply::Immediate(immediate) => What::Immediate(self::immediate(&immediate)),
        Reply::PassThrough(_) | Reply::Forward(_) => passed(),
    }
}

fn immediate(immediate: &reply::ImmediateReply) -> Immediate {
    let headers = immediate.headers().map(|(name, value)| Header {
        name: name.to_owned(),
        value: value.into_owned().into_bytes(),
    });
    Immediate {
        status: u32::from(immediate.status),
        headers: headers.collect(),
        body: immediate.body.to_string().into_bytes(),
    }
}

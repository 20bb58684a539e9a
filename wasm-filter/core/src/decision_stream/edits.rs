//! The headers of a request that continues after it was sent on the decision stream.

use isotherm_decision_proto::Route;
use isotherm_fingerprint::names;

use crate::headers::HeaderEdit;
use crate::request::ACCEPT_ENCODING;
use crate::response::orca;

/// The headers of a request that needs no further decision, without the headers that only the service reads.
pub(super) fn without_decision(id: u32, mut edits: Vec<HeaderEdit>) -> Vec<HeaderEdit> {
    edits.retain(|edit| match edit {
        HeaderEdit::Remove(_) => true,
        HeaderEdit::Set(name, _) => [names::SESSION, names::CLUSTER].contains(name),
    });
    edits.push(HeaderEdit::set(names::DECIDED, id.to_string()));
    edits
}

/// The headers of a request that the service leaves to external processing: few of them go to a replica, so the response may be
/// compressed.
pub(super) fn without_replica(mut edits: Vec<HeaderEdit>) -> Vec<HeaderEdit> {
    edits.retain(|edit| !matches!(edit, HeaderEdit::Remove(name) if name == ACCEPT_ENCODING));
    edits
}

/// The headers of a request with this route, and with the request for the engine's load report.
pub(super) fn with_decision(
    id: u32,
    edits: Vec<HeaderEdit>,
    route: Route,
    add_report_request: bool,
) -> Vec<HeaderEdit> {
    let mut edits = without_decision(id, edits);
    edits.push(HeaderEdit::set(names::DESTINATION, route.destination));
    if !route.prefiller.is_empty() {
        edits.push(HeaderEdit::set(names::PREFILLER, route.prefiller));
    }
    if !route.cluster.is_empty() {
        edits.retain(|edit| !matches!(edit, HeaderEdit::Set(names::CLUSTER, _)));
        edits.push(HeaderEdit::set(names::CLUSTER, route.cluster));
    }
    let priorities = [
        (names::VLLM_PRIORITY, route.vllm_priority),
        (names::SGLANG_PRIORITY, route.sglang_priority),
    ];
    for (name, priority) in priorities {
        edits.extend(priority.map(|priority| HeaderEdit::set(name, priority.to_string())));
    }
    if !route.traceparent.is_empty() {
        edits.push(HeaderEdit::set(names::TRACEPARENT, route.traceparent));
    }
    if add_report_request {
        edits.push(HeaderEdit::set(orca::FORMAT_HEADER, orca::FORMAT));
    }
    edits
}

//! The headers of a request that continues after it was sent on the decision stream.

use isotherm_decision_proto::{Forward, Route};
use isotherm_fingerprint::{names, objectives};

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

/// The headers of a request with this route, and with the request for the engine's load report. Envoy's routes send a request
/// with an origin to another region, so a request of one loses it here.
pub(super) fn with_decision(
    id: u32,
    edits: Vec<HeaderEdit>,
    route: Route,
    add_report_request: bool,
    has_origin: bool,
) -> Vec<HeaderEdit> {
    let mut edits = without_decision(id, edits);
    if has_origin {
        let names = [names::ORIGIN, names::TRIED];
        edits.extend(names.map(|name| HeaderEdit::Remove(name.to_owned())));
    }
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

/// The headers of a request that goes to another region, with all that this filter knows of it.
pub(super) fn forwarded(id: u32, mut edits: Vec<HeaderEdit>, forward: Forward) -> Vec<HeaderEdit> {
    let texts = [
        (names::CLUSTER, forward.cluster),
        (names::ORIGIN, forward.origin),
        (names::TRIED, forward.tried),
        (names::MODEL, forward.model),
        (names::TRACEPARENT, forward.traceparent),
    ];
    let left = [
        (names::TTFT_MS, forward.ttft_ms),
        (names::DEADLINE, forward.deadline_ms),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let texts = texts.map(|(name, text)| HeaderEdit::set(name, text));
    let left = left.into_iter().filter_map(|(name, ms)| {
        let ms = objectives::encode_ms(ms?);
        Some(HeaderEdit::set(name, ms))
    });
    // A later edit of a header replaces an earlier one.
    edits.extend(texts.chain(left));
    edits.push(HeaderEdit::set(names::DECIDED, id.to_string()));
    edits.push(HeaderEdit::Remove(names::DESTINATION.to_owned()));
    edits
}

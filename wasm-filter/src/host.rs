//! Host calls that both roles make.

use std::time::{Duration, UNIX_EPOCH};

use isotherm_fingerprint::outcome::Outcome;
use isotherm_wasm_filter_core::HeaderEdit;
use isotherm_wasm_filter_core::response::{ResponseFlow, explain_local};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};

use crate::access_log;
pub(crate) use crate::clock::now;
use crate::metrics::ResponseMetrics;

/// The time of the host's wall clock in Unix milliseconds.
pub(crate) fn unix_ms() -> u64 {
    let time = hostcalls::get_current_time().unwrap_or(UNIX_EPOCH);
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn text_property<const N: usize>(path: [&str; N]) -> Option<String> {
    String::from_utf8(hostcalls::get_property(path.to_vec()).ok()??).ok()
}

/// A property with a path of any length, such as one in dynamic metadata.
pub(crate) fn property_at(path: &[&str]) -> Option<Vec<u8>> {
    hostcalls::get_property(path.to_vec()).ok().flatten()
}

/// A property that has a single name.
pub(crate) fn property(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_property(vec![name]).ok().flatten()
}

/// The bytes of the current request that the host has received, headers included.
pub(crate) fn received_bytes() -> Option<u64> {
    let bytes = hostcalls::get_property(vec!["request", "total_size"]).ok()??;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Runs a function in the context of a request, from the root context `root`. A request that is gone needs nothing.
pub(crate) fn in_request<T>(root: u32, request: u32, run: impl FnOnce() -> T) -> Option<T> {
    hostcalls::set_effective_context(request).ok()?;
    let result = run();
    // The root context outlives its requests.
    let _ = hostcalls::set_effective_context(root);
    Some(result)
}

/// Sets the period of the timer; `None` turns it off.
pub(crate) fn set_timer(period: Option<Duration>) {
    let _ = hostcalls::set_tick_period(period.unwrap_or_default());
}

/// Changes headers of the current context.
pub(crate) fn apply(map: MapType, edits: &[HeaderEdit]) {
    for edit in edits {
        let (name, value) = edit.parts();
        let _ = hostcalls::set_map_value_bytes(map, name, value);
    }
}

pub(crate) fn response_headers(flow: &mut ResponseFlow) {
    let headers = hostcalls::get_map_bytes(MapType::HttpResponseHeaders).unwrap_or_default();
    apply(MapType::HttpResponseHeaders, &flow.headers(&headers));
}

pub(crate) fn response_body(flow: &mut ResponseFlow, bytes: usize) {
    let needed = flow.body(bytes, now);
    if !needed.is_empty()
        && let Ok(Some(bytes)) =
            hostcalls::get_buffer(BufferType::HttpResponseBody, needed.start, needed.len())
    {
        flow.feed(&bytes);
    }
}

/// The number of a property.
fn number_property<const N: usize>(path: [&str; N]) -> Option<u64> {
    let value = hostcalls::get_property(path.to_vec()).ok()??;
    Some(u64::from_le_bytes(value.try_into().ok()?))
}

/// Adds to an outcome how the proxy came to respond, where it may have done so itself.
#[cold]
fn explain_response(outcome: &mut Outcome) {
    if let Some(details) = text_property(["response", "code_details"]) {
        explain_local(outcome, &details);
    }
}

/// Adds to an outcome where the proxy has sent a request that did not end at the selected replica.
#[cold]
fn explain_elsewhere(outcome: &mut Outcome) {
    let attempts = number_property(["upstream", "request_attempt_count"]);
    outcome.attempts = attempts.and_then(|attempts| attempts.try_into().ok());
    outcome.cluster = text_property(["xds", "cluster_name"]);
}

/// The encoded outcome of a response that has ended.
pub(crate) fn outcome(flow: &ResponseFlow, metrics: &ResponseMetrics) -> Option<String> {
    let mut outcome = flow.outcome(text_property(["upstream", "address"]))?;
    if outcome.status >= 500 || outcome.upstream.is_none() {
        explain_response(&mut outcome);
    }
    if flow.is_elsewhere(outcome.upstream.as_deref()) {
        explain_elsewhere(&mut outcome);
    }
    metrics.count(outcome.prompt_tokens.is_some());
    access_log::usage(&outcome);
    Some(outcome.encode())
}

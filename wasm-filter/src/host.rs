//! Host calls that both roles make.

use std::time::UNIX_EPOCH;

use isotherm_wasm_filter_core::HeaderEdit;
use isotherm_wasm_filter_core::response::{Nanoseconds, ResponseFlow};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};

use crate::metrics::ResponseMetrics;

/// The time of the host's clock.
pub(crate) fn now() -> Nanoseconds {
    let time = hostcalls::get_current_time().unwrap_or(UNIX_EPOCH);
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanoseconds::try_from(since.as_nanos()).unwrap_or(Nanoseconds::MAX)
}

pub(crate) fn text_property(path: [&str; 2]) -> Option<String> {
    String::from_utf8(hostcalls::get_property(path.to_vec()).ok()??).ok()
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

/// The encoded outcome of a response that has ended.
pub(crate) fn outcome(flow: &ResponseFlow, metrics: &ResponseMetrics) -> Option<String> {
    let outcome = flow.outcome(text_property(["upstream", "address"]))?;
    metrics.count(outcome.prompt_tokens.is_some());
    Some(outcome.encode())
}

//! Host calls that both roles make.

use std::time::UNIX_EPOCH;

use isotherm_wasm_filter_core::HeaderEdit;
use isotherm_wasm_filter_core::response::{Nanoseconds, ResponseFlow};
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::MapType;

use crate::metrics::ResponseMetrics;

/// The time of the host's clock.
pub(crate) fn now(context: &impl Context) -> Nanoseconds {
    let since = context.get_current_time().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        Nanoseconds::try_from(since.as_nanos()).unwrap_or(Nanoseconds::MAX)
    })
}

pub(crate) fn text_property(context: &impl Context, path: [&str; 2]) -> Option<String> {
    String::from_utf8(context.get_property(path.to_vec())?).ok()
}

/// Changes headers of the current context.
pub(crate) fn apply(map: MapType, edits: &[HeaderEdit]) {
    for edit in edits {
        let (name, value) = edit.parts();
        let _ = hostcalls::set_map_value_bytes(map, name, value);
    }
}

pub(crate) fn response_headers(context: &impl HttpContext, flow: &mut ResponseFlow) {
    let edits = flow.headers(&context.get_http_response_headers_bytes());
    apply(MapType::HttpResponseHeaders, &edits);
}

pub(crate) fn response_body(context: &impl HttpContext, flow: &mut ResponseFlow, bytes: usize) {
    let needed = flow.body(bytes, || now(context));
    if !needed.is_empty()
        && let Some(bytes) = context.get_http_response_body(needed.start, needed.len())
    {
        flow.feed(&bytes);
    }
}

/// The encoded outcome of a response that has ended.
pub(crate) fn outcome(
    context: &impl HttpContext,
    flow: &ResponseFlow,
    metrics: &ResponseMetrics,
) -> Option<String> {
    let upstream = text_property(context, ["upstream", "address"]);
    let outcome = flow.outcome(upstream)?;
    metrics.count(outcome.prompt_tokens.is_some());
    Some(outcome.encode())
}

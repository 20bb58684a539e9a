//! An answer on its way back, on the host: what both roles do with one that they watch.

use isotherm_wasm_filter_core::Edit;
use isotherm_wasm_filter_core::response::ResponseFlow;
use proxy_wasm::traits::HttpContext;

use crate::host;
use crate::metrics::ResponseMetrics;

/// Its headers have come.
pub(crate) fn headers(context: &impl HttpContext, flow: &mut ResponseFlow) {
    for edit in flow.headers(&context.get_http_response_headers_bytes()) {
        match edit {
            Edit::Remove(name) => context.set_http_response_header_bytes(&name, None),
            Edit::Set(name, value) => context.set_http_response_header_bytes(name, Some(&value)),
        }
    }
}

/// A piece of its body has come, of this size.
pub(crate) fn body(context: &impl HttpContext, flow: &mut ResponseFlow, piece_bytes: usize) {
    let wanted = flow.body_came(piece_bytes, || host::now(context));
    if !wanted.is_empty()
        && let Some(bytes) = context.get_http_response_body(wanted.start, wanted.len())
    {
        flow.body(&bytes);
    }
}

/// It is over: how it went, as the service reads it.
pub(crate) fn outcome(
    context: &impl HttpContext,
    flow: &ResponseFlow,
    metrics: &ResponseMetrics,
) -> Option<String> {
    let served = host::text_property(context, ["upstream", "address"]);
    let outcome = flow.outcome(served)?;
    metrics.answered(outcome.prompt_tokens.is_some());
    Some(outcome.encode())
}

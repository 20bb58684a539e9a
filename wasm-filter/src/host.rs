//! Small things that both roles ask of the host.

use std::time::UNIX_EPOCH;

use isotherm_wasm_filter_core::response::Nanoseconds;
use proxy_wasm::traits::Context;

/// The host's clock.
pub(crate) fn now(context: &impl Context) -> Nanoseconds {
    context
        .get_current_time()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            Nanoseconds::try_from(since.as_nanos()).unwrap_or(Nanoseconds::MAX)
        })
}

/// A property of the request that is text.
pub(crate) fn text_property(context: &impl Context, path: [&str; 2]) -> Option<String> {
    String::from_utf8(context.get_property(path.to_vec())?).ok()
}

//! Adds one trailer to each answer.

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

/// A response, which passes without delay.
pub(crate) struct Trailer;

impl Context for Trailer {}

impl HttpContext for Trailer {
    fn on_http_response_body(&mut self, _: usize, end_of_stream: bool) -> Action {
        if end_of_stream {
            self.set_http_response_trailer("x-bench", Some("1"));
        }
        Action::Continue
    }
}

//! Copies the body of a request into the sandbox, piece by piece.

use std::hint::black_box;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

/// A request, held until its body has arrived.
#[derive(Default)]
pub(crate) struct Copy {
    copied_bytes: usize,
}

impl Context for Copy {}

impl HttpContext for Copy {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        if end_of_stream {
            Action::Continue
        } else {
            Action::Pause
        }
    }

    fn on_http_request_body(&mut self, buffered_bytes: usize, end_of_stream: bool) -> Action {
        // The buffer grows; the new bytes follow the copied ones.
        let new_bytes = buffered_bytes.saturating_sub(self.copied_bytes);
        if new_bytes > 0 {
            black_box(self.get_http_request_body(self.copied_bytes, new_bytes));
            self.copied_bytes = buffered_bytes;
        }
        if end_of_stream {
            Action::Continue
        } else {
            Action::Pause
        }
    }
}

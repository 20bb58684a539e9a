//! Reads the prompt of a request, and holds the body until the service has decided. A body that the service cannot read is
//! held as well, so that no replica waits for it.
//!
//! A gateway without the filter sends the body itself. The reader runs the filter's own code on it, so a request gets the
//! same fingerprint with and without the filter.

use std::sync::Arc;

use envoy_types::pb::envoy::service::ext_proc::v3::HttpBody;
use isotherm_wasm_filter_core::request::RequestFlow;
use isotherm_wasm_filter_core::{HeaderEdit, Headers};
use tokio::time::Instant;

use super::held_bytes::HeldBytes;
use super::settings::Settings;
use crate::decision_log::unix_ms;

/// The prompt of one request, as far as it has arrived.
#[derive(Debug)]
pub(super) struct PromptReader {
    settings: Arc<Settings>,
    flow: RequestFlow,
    body: HeldBody,
    started: Instant,
}

/// The part of a body that the service holds.
#[derive(Debug)]
pub(super) struct HeldBody {
    pub(super) pieces: Vec<HttpBody>,
    /// Released together with the pieces.
    held: HeldBytes,
}

impl PromptReader {
    /// Starts to hold the body of a request; `None` if it has none.
    pub(super) fn start(
        settings: &Arc<Settings>,
        held: HeldBytes,
        headers: &Headers,
        has_body: bool,
    ) -> Option<Self> {
        let flow = RequestFlow::new(Arc::clone(&settings.filter), headers, has_body);
        flow.is_held().then(|| Self {
            settings: Arc::clone(settings),
            flow,
            body: HeldBody {
                pieces: Vec::new(),
                held,
            },
            started: Instant::now(),
        })
    }

    /// Reads the next piece of the body. Returns whether the service must decide on what it has.
    pub(super) fn feed(&mut self, piece: HttpBody) -> bool {
        let is_complete = self.flow.feed(&piece.body);
        if piece.end_of_stream {
            self.flow.end_body();
        }
        let bytes_max = self.settings.config.held_bytes_max;
        let is_within_limit = self.body.held.hold(piece.body.len(), bytes_max);
        let is_end = piece.end_of_stream;
        self.body.pieces.push(piece);
        is_end || is_complete || !is_within_limit
    }

    /// The time by which the body must end or further bytes must arrive; `None` if bodies may take any time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let bytes = u64::try_from(self.flow.body_bytes()).unwrap_or(u64::MAX);
        let limit = self.settings.body_timeout()?.after(bytes);
        self.started.checked_add(limit)
    }

    /// Records the end of a body that its last piece does not mark.
    pub(super) fn end_body(&mut self) {
        self.flow.end_body();
    }

    /// Returns the headers that the filter would set, and the body.
    pub(super) fn finish(self) -> (Vec<HeaderEdit>, HeldBody) {
        // The address of the client is in a header, if the gateway knows it.
        (self.flow.release(unix_ms, || None).edits, self.body)
    }
}

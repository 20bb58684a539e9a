//! The knowledge of a plugin instance about its host, which no property shows: whether the host passes the bodies of held
//! requests, and how many bytes it buffers.
//!
//! The root context checks the watched requests with its timer, beside the timer of the decision stream.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::time::Duration;

use isotherm_wasm_filter_core::body_watch::{self, BodyDelivery, BodyWatch};
use isotherm_wasm_filter_core::buffer_limit::{BufferLimit, Excess};
use isotherm_wasm_filter_core::request::RequestFlow;
use isotherm_wasm_filter_core::{Headers, RequestConfig, gate};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{LogLevel, MapType};

use crate::held_bodies::HeldBodies;
use crate::host;
use crate::metrics::{Metric, RequestMetrics};

/// The headers of a request.
type HeaderList = Vec<(String, Vec<u8>)>;

/// The way in which a request waits for its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The watch releases the request if its body does not arrive.
    Watched,
    /// Only the body, or its time limit, releases the request.
    Unwatched,
    /// The request does not wait, because the host would withhold its body.
    Refused,
}

#[derive(Debug)]
pub(crate) struct HostWatch {
    /// The root context, which owns the timer.
    root: u32,
    bodies: RefCell<BodyWatch<HeaderList>>,
    /// Whether the watch shortens the period of the timer.
    has_timer: Cell<bool>,
    limit: Cell<BufferLimit>,
    /// Whether the log tells that no gate follows.
    has_named_gate: Cell<bool>,
    /// Counts the requests that Envoy refused while the filter held their bodies.
    refused: Metric,
}

impl HostWatch {
    pub(crate) fn new(root: u32, config: &RequestConfig) -> Self {
        Self {
            root,
            bodies: RefCell::default(),
            has_timer: Cell::new(false),
            limit: Cell::new(BufferLimit::of(config)),
            has_named_gate: Cell::new(false),
            refused: Metric::counter("isotherm_filter_buffer_exceeded"),
        }
    }

    /// The bytes that the host buffers for a request.
    pub(crate) fn limit(&self) -> BufferLimit {
        self.limit.get()
    }

    /// Holds the current request for its body, if the filter can. While the host's behaviour is unknown, the watch keeps
    /// the headers of a bounded number of requests until their bodies arrive, and the others wait for what these show.
    pub(crate) fn hold(&self, request: u32, headers: HeaderList) -> Hold {
        let Ok(bodies) = self.bodies.try_borrow() else {
            return Hold::Refused;
        };
        match bodies.delivery() {
            BodyDelivery::Passed => return Hold::Unwatched,
            BodyDelivery::Withheld => return Hold::Refused,
            BodyDelivery::Unknown => {}
        }
        drop(bodies);
        match self.watch(request, headers) {
            true => Hold::Watched,
            false => Hold::Unwatched,
        }
    }

    /// Watches the current request until its body arrives. Returns false when too many requests are watched already.
    #[cold]
    #[inline(never)]
    fn watch(&self, request: u32, headers: HeaderList) -> bool {
        let Some(mut bodies) = self.bodies() else {
            return false;
        };
        let received_bytes = host::received_bytes().unwrap_or_default();
        let is_watched = bodies.hold(request, host::now(), received_bytes, headers);
        if is_watched && !self.has_timer.replace(true) {
            let _ = hostcalls::set_effective_context(self.root);
            host::set_timer(bodies.period());
            let _ = hostcalls::set_effective_context(request);
        }
        is_watched
    }

    /// Records that a piece of a body has arrived. Returns whether its request is still held: only a watched request can
    /// have been released.
    pub(crate) fn on_body(&self, request: u32, is_watched: bool) -> bool {
        let Some(mut bodies) = self.bodies() else {
            return true;
        };
        if !is_watched {
            bodies.on_unwatched_body();
            return true;
        }
        let before = bodies.delivery();
        let is_held = bodies.on_body(request);
        if bodies.delivery() == BodyDelivery::Withheld && before != BodyDelivery::Withheld {
            log_error(body_watch::WITHHELD);
        }
        is_held
    }

    /// Forgets a request.
    pub(crate) fn on_end(&self, request: u32) {
        if let Some(mut bodies) = self.bodies() {
            bodies.on_end(request);
        }
    }

    /// Releases the requests whose bodies do not arrive. Runs in the root context.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_timer(
        &self,
        config: &Arc<RequestConfig>,
        metrics: &RequestMetrics,
        bodies: &HeldBodies,
    ) {
        let Some(mut watched) = self.bodies().filter(|_| self.has_timer.get()) else {
            return;
        };
        let received =
            |request| host::in_request(self.root, request, host::received_bytes).flatten();
        for (request, headers) in watched.tick(host::now(), received) {
            bodies.abandon(request);
            host::in_request(self.root, request, || release(config, metrics, &headers));
        }
    }

    /// Sets the timer to the period of the watch or to `other`, whichever is shorter. Runs in the root context.
    pub(crate) fn set_timer_beside(&self, other: Option<Duration>) {
        if let Some(bodies) = self.bodies().filter(|_| self.has_timer.get()) {
            let own = bodies.period();
            self.has_timer.set(own.is_some());
            host::set_timer([own, other].into_iter().flatten().min());
        }
    }

    /// Reads a response that the host may have made because its buffer was full. `held_bytes` of the body were held, and
    /// `accepted_bytes` of them before the last piece.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_response(&self, held_bytes: usize, accepted_bytes: usize) {
        let status = hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, ":status");
        let status = status.ok().flatten();
        let details = || host::text_property(["response", "code_details"]);
        if BufferLimit::is_exceeded(status.as_deref(), details) {
            self.refused.add(1);
            let mut limit = self.limit.get();
            log_error(&limit.lower(Excess::Refusal, held_bytes, accepted_bytes));
            self.limit.set(limit);
        }
    }

    /// Reads that Envoy stopped reading a body after `held_bytes`, because its buffer was full.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_stall(&self, held_bytes: usize) {
        let mut limit = self.limit.get();
        log_error(&limit.lower(Excess::Stall, held_bytes, held_bytes / 2));
        self.limit.set(limit);
    }

    /// Reads that no gate follows the request role.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_missing_gate(&self) {
        if !self.has_named_gate.replace(true) {
            log_error(gate::MISSING);
        }
    }

    fn bodies(&self) -> Option<RefMut<'_, BodyWatch<HeaderList>>> {
        self.bodies.try_borrow_mut().ok()
    }
}

/// Releases the current request without its prompt.
fn release(config: &Arc<RequestConfig>, metrics: &RequestMetrics, headers: &Headers) {
    let mut flow = RequestFlow::with_metadata(Arc::clone(config), headers, true, host::property_at);
    flow.skip_body();
    let release = flow.release(host::unix_ms, || host::text_property(["source", "address"]));
    metrics.count(&release);
    host::apply(MapType::HttpRequestHeaders, &release.edits);
    let _ = hostcalls::resume_http_request();
}

fn log_error(line: &str) {
    let _ = hostcalls::log(LogLevel::Error, line);
}

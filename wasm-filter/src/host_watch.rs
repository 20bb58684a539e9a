//! The knowledge of a plugin instance about its host, which no property shows: whether the host passes the bodies of held
//! requests, and how many bytes it buffers.
//!
//! The root context checks the watched requests with its timer, beside the timer of the decision stream.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::time::Duration;

use isotherm_wasm_filter_core::body_watch::{self, BodyDelivery, BodyWatch};
use isotherm_wasm_filter_core::buffer_limit::BufferLimit;
use isotherm_wasm_filter_core::request::RequestFlow;
use isotherm_wasm_filter_core::{Headers, RequestConfig};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{LogLevel, MapType};

use crate::host;
use crate::metrics::{Metric, RequestMetrics};

/// The headers of a request.
type HeaderList = Vec<(String, Vec<u8>)>;

#[derive(Debug)]
pub(crate) struct HostWatch {
    /// The root context, which owns the timer.
    root: u32,
    bodies: RefCell<BodyWatch<HeaderList>>,
    /// Whether the watch shortens the period of the timer.
    has_timer: Cell<bool>,
    limit: Cell<BufferLimit>,
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
            refused: Metric::counter("isotherm_filter_buffer_exceeded"),
        }
    }

    /// The bytes that the host buffers for a request.
    pub(crate) fn limit(&self) -> BufferLimit {
        self.limit.get()
    }

    /// Whether the filter can hold the current request for its body. While the host's behaviour is unknown, the watch keeps
    /// the headers until the body arrives.
    pub(crate) fn can_hold(&self, request: u32, headers: HeaderList) -> bool {
        let Some(mut bodies) = self.bodies() else {
            return false;
        };
        match bodies.delivery() {
            BodyDelivery::Passed => return true,
            BodyDelivery::Withheld => return false,
            BodyDelivery::Unknown => {}
        }
        let received_bytes = received_bytes().unwrap_or_default();
        let is_watched = bodies.hold(request, host::now(), received_bytes, headers);
        if is_watched && !self.has_timer.replace(true) {
            let _ = hostcalls::set_effective_context(self.root);
            set_timer(bodies.period());
            let _ = hostcalls::set_effective_context(request);
        }
        is_watched
    }

    /// Records that a piece of a body has arrived. Returns whether its request is still held.
    pub(crate) fn on_body(&self, request: u32) -> bool {
        let Some(mut bodies) = self.bodies() else {
            return true;
        };
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
    pub(crate) fn on_timer(&self, config: &Arc<RequestConfig>, metrics: &RequestMetrics) {
        let Some(mut bodies) = self.bodies().filter(|_| self.has_timer.get()) else {
            return;
        };
        let received = |request| self.in_request(request, received_bytes).flatten();
        for (request, headers) in bodies.tick(host::now(), received) {
            self.in_request(request, || release(config, metrics, &headers));
        }
    }

    /// Sets the timer to the period of the watch or to `other`, whichever is shorter. Runs in the root context.
    pub(crate) fn set_timer_beside(&self, other: Option<Duration>) {
        if let Some(bodies) = self.bodies().filter(|_| self.has_timer.get()) {
            let own = bodies.period();
            self.has_timer.set(own.is_some());
            set_timer([own, other].into_iter().flatten().min());
        }
    }

    /// Reads a response that the host may have made because its buffer was full. `held_bytes` of the body were held, and
    /// `accepted_bytes` of them before the last piece.
    pub(crate) fn on_response(&self, held_bytes: usize, accepted_bytes: usize) {
        let status = hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, ":status");
        let status = status.ok().flatten();
        let details = || host::text_property(["response", "code_details"]);
        if BufferLimit::is_exceeded(status.as_deref(), details) {
            self.refused.add(1);
            let mut limit = self.limit.get();
            log_error(&limit.lower(held_bytes, accepted_bytes));
            self.limit.set(limit);
        }
    }

    fn bodies(&self) -> Option<RefMut<'_, BodyWatch<HeaderList>>> {
        self.bodies.try_borrow_mut().ok()
    }

    /// Runs a function in the context of a request, from the root context.
    fn in_request<T>(&self, request: u32, run: impl FnOnce() -> T) -> Option<T> {
        hostcalls::set_effective_context(request).ok()?;
        let result = run();
        let _ = hostcalls::set_effective_context(self.root);
        Some(result)
    }
}

/// Releases the current request without its prompt.
fn release(config: &Arc<RequestConfig>, metrics: &RequestMetrics, headers: &Headers) {
    let mut flow = RequestFlow::new(Arc::clone(config), headers, true);
    flow.skip_body();
    let release = flow.release(|| host::text_property(["source", "address"]));
    metrics.count(&release);
    host::apply(MapType::HttpRequestHeaders, &release.edits);
    let _ = hostcalls::resume_http_request();
}

/// The bytes of the current request that the host has received, headers included.
fn received_bytes() -> Option<u64> {
    let bytes = hostcalls::get_property(vec!["request", "total_size"]).ok()??;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Sets the period of the timer; `None` turns it off.
fn set_timer(period: Option<Duration>) {
    let _ = hostcalls::set_tick_period(period.unwrap_or_default());
}

fn log_error(line: &str) {
    let _ = hostcalls::log(LogLevel::Error, line);
}

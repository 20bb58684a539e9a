//! The role in front of the external processor, on the host. It also reads the responses to requests that were decided on
//! the decision stream.

use std::rc::Rc;
use std::sync::Arc;

use isotherm_fingerprint::names;
use isotherm_wasm_filter_core::body_timer::BodyIndex;
use isotherm_wasm_filter_core::cache_mask::CacheMask;
use isotherm_wasm_filter_core::request::{
    Admission, Rejection, Release, RequestFlow, is_traced, strip,
};
use isotherm_wasm_filter_core::response::{Nanoseconds, ResponseFlow, orca};
use isotherm_wasm_filter_core::{HeaderEdit, Headers, RequestConfig, gate};
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, MapType};

use crate::access_log;
use crate::decision_stream::SharedConnection;
use crate::held_bodies::HeldBodies;
use crate::host;
use crate::host_watch::{Hold, HostWatch};
use crate::metrics::RequestMetrics;

/// The most bytes of a body that one copy brings in: the size of a processor's own cache. One read of the host may bring a
/// megabyte, and such a copy would have left the cache before the filter reads it.
const COPY_BYTES_MAX: usize = 128 * 1024;

/// The state that all requests of a plugin instance share.
pub(crate) struct RequestRole {
    pub(crate) config: Arc<RequestConfig>,
    pub(crate) metrics: RequestMetrics,
    pub(crate) connection: Option<SharedConnection>,
    pub(crate) watch: HostWatch,
    pub(crate) bodies: HeldBodies,
}

impl RequestRole {
    /// Handles the timer. Runs in the root context.
    pub(crate) fn on_timer(&self) {
        let now = host::now();
        self.watch
            .on_timer(&self.config, &self.metrics, &self.bodies);
        self.bodies.on_timer(now);
        let mut period = self.bodies.timer_period();
        if let Some(connection) = &self.connection
            && let Ok(mut connection) = connection.try_borrow_mut()
        {
            connection.on_timer(now);
            period = Some(connection.timer_period());
        }
        self.watch.set_timer_beside(period);
    }
}

/// A request, held while the filter reads its body or waits for a decision.
pub(crate) struct RequestContext {
    role: Rc<RequestRole>,
    /// The id of the context on the host and of the request on the decision stream.
    id: u32,
    /// The time of the headers of a request that its caller traces.
    arrived_at: Option<Nanoseconds>,
    /// Present while the body is read.
    flow: Option<RequestFlow>,
    /// The place of the request among the held bodies.
    timer_index: Option<BodyIndex>,
    /// The bytes of the body that Envoy was to hold at the last piece.
    held_bytes: usize,
    /// The bytes of the body that Envoy held before the last piece.
    accepted_bytes: usize,
    /// Whether the watch of the host may release the request.
    is_watched: bool,
    /// Whether the gate holds the request, and this instance only reads it.
    is_gated: bool,
    /// Whether the request belongs to another application.
    is_passed: bool,
    /// Whether the request was sent on the decision stream.
    is_sent: bool,
    /// Present while the response to a request of the decision stream is read.
    response: Option<Box<ResponseFlow>>,
    /// Present while the body of a response is read whose client must not learn about the cache.
    mask: Option<Box<CacheMask>>,
}

impl RequestContext {
    pub(crate) fn new(role: &Rc<RequestRole>, id: u32) -> Self {
        Self {
            role: Rc::clone(role),
            id,
            arrived_at: None,
            flow: None,
            timer_index: None,
            held_bytes: 0,
            accepted_bytes: 0,
            is_watched: false,
            is_gated: false,
            is_passed: false,
            is_sent: false,
            response: None,
            mask: None,
        }
    }

    /// Whether the client's protocol does not bound the bytes of one read.
    fn has_large_reads() -> bool {
        host::text_property(["request", "protocol"])
            .is_none_or(|protocol| protocol.starts_with("HTTP/1"))
    }

    /// Responds to a request with a path or a method that clients may not use.
    #[cold]
    #[inline(never)]
    fn reject(&self, rejection: &Rejection) -> Action {
        self.role.metrics.count_rejected_path();
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(rejection.allow.map(|methods| ("allow", methods)));
        let body = Some(rejection.body.as_bytes());
        self.send_http_response(rejection.status.into(), headers, body);
        Action::Pause
    }

    /// Lets a request of another application pass, with its response.
    fn pass(&mut self, edits: &[HeaderEdit]) -> Action {
        self.role.metrics.count_passed_path();
        host::apply(MapType::HttpRequestHeaders, edits);
        self.is_passed = true;
        Action::Continue
    }

    /// Releases the request, or sends it on the decision stream.
    fn release(&mut self, flow: RequestFlow) -> Action {
        self.role.bodies.release(&mut self.timer_index);
        let mut release =
            flow.release(host::unix_ms, || host::text_property(["source", "address"]));
        self.role.metrics.count(&release);
        access_log::request(&release.edits);
        release.edits.extend(self.held_for());
        match self.send(release) {
            Ok(()) => Action::Pause,
            Err(edits) => {
                host::apply(MapType::HttpRequestHeaders, &edits);
                Action::Continue
            }
        }
    }

    /// Reads what is new in the host's buffer, which follows `bytes_before`. Returns whether the request must continue now.
    fn read(&self, flow: &mut RequestFlow, bytes_before: usize, buffered_bytes: usize) -> bool {
        let end = bytes_before.saturating_add(buffered_bytes);
        let mut is_full = false;
        if !flow.reads_body() {
            return flow.pass_over(end.saturating_sub(flow.body_bytes()));
        }
        while flow.body_bytes() < end {
            let start = flow.body_bytes() - bytes_before;
            let bytes = (end - flow.body_bytes()).min(COPY_BYTES_MAX);
            match self.get_http_request_body(start, bytes) {
                Some(piece) if !piece.is_empty() => is_full = flow.feed(&piece),
                Some(_) | None => break,
            }
        }
        is_full
    }

    /// Lets the headers pass to the gate. They carry what the headers alone tell, for a gate that opens early.
    #[cold]
    #[inline(never)]
    fn pass_to_gate(&mut self, mut flow: RequestFlow, headers: &Headers) -> Action {
        let mut without_body = RequestFlow::with_metadata(
            Arc::clone(&self.role.config),
            headers,
            true,
            host::property_at,
        );
        without_body.skip_body();
        let release =
            without_body.release(host::unix_ms, || host::text_property(["source", "address"]));
        host::apply(MapType::HttpRequestHeaders, &release.edits);
        self.set_http_request_header(names::GATE, Some("1"));
        flow.limit_buffer(self.role.watch.limit());
        self.flow = Some(flow);
        self.timer_index = self.role.bodies.hold(self.id);
        self.is_gated = true;
        Action::Continue
    }

    /// Reads a piece that passes to the gate.
    #[cold]
    #[inline(never)]
    fn read_before_gate(&mut self, mut flow: RequestFlow, bytes: usize, is_end: bool) -> Action {
        let bytes_before = flow.body_bytes();
        let stalled = (bytes_before > 0).then(|| host::property(gate::STALLED));
        if let Some(stalled) = stalled.flatten() {
            if gate::was_buffer_full(&stalled, host::now()) {
                self.role.watch.on_stall(bytes_before);
            }
            self.role.bodies.release(&mut self.timer_index);
            flow.skip_body();
            self.role
                .metrics
                .count(&flow.release(host::unix_ms, || None));
            return Action::Continue;
        }
        if is_end {
            flow.end_body();
        }
        if self.read(&mut flow, bytes_before, bytes) || is_end {
            return self.open_gate(flow);
        }
        self.flow = Some(flow);
        Action::Continue
    }

    /// Sends the request on the decision stream, which opens the gate later, or opens the gate.
    #[cold]
    #[inline(never)]
    fn open_gate(&mut self, flow: RequestFlow) -> Action {
        self.role.bodies.release(&mut self.timer_index);
        let mut release =
            flow.release(host::unix_ms, || host::text_property(["source", "address"]));
        self.role.metrics.count(&release);
        access_log::request(&release.edits);
        release.edits.extend(self.held_for());
        // Without the property, the gate takes the wait for a decision for a stalled body, and opens early.
        let _ = hostcalls::set_property(vec![gate::READ], Some(b"1"));
        if let Err(edits) = self.send(release)
            && !crate::gate::open(edits)
        {
            self.role.watch.on_missing_gate();
        }
        Action::Continue
    }

    /// The header that tells the service how long a traced request was held.
    fn held_for(&self) -> Option<HeaderEdit> {
        let arrived_at = self.arrived_at?;
        let held_us = host::now().saturating_sub(arrived_at) / 1000;
        let value = held_us.to_string().into_bytes();
        Some(HeaderEdit::Set(names::HELD, value))
    }

    /// Sends the request on the decision stream, or returns its headers.
    fn send(&mut self, release: Release) -> Result<(), Vec<HeaderEdit>> {
        let (Some(connection), Some(target)) = (&self.role.connection, &release.target) else {
            return Err(release.edits);
        };
        let Ok(mut connection) = connection.try_borrow_mut() else {
            return Err(release.edits);
        };
        connection.send_request(self.id, target, release.edits)?;
        self.is_sent = true;
        Ok(())
    }

    /// The flow of the response, if the decision stream decided on the request.
    fn take_response_flow(&self) -> Option<Box<ResponseFlow>> {
        let connection = self.role.connection.as_ref().filter(|_| self.is_sent)?;
        let mut connection = connection.try_borrow_mut().ok()?;
        connection.take_response_flow(self.id)
    }

    /// Tells the service that the response begins.
    fn start_response(&self) {
        if let Some(connection) = &self.role.connection
            && let Ok(mut connection) = connection.try_borrow_mut()
        {
            connection.start_response(self.id);
        }
    }

    /// Tells the service the id of a response that its replica may store.
    #[cold]
    #[inline(never)]
    fn store_response(&self, response_id: String) {
        if let Some(connection) = &self.role.connection
            && let Ok(mut connection) = connection.try_borrow_mut()
        {
            connection.store_response(self.id, response_id);
        }
    }

    /// Hides the decision, the engine's load, and the numbers of the cache in the body that follows, whose length may change.
    #[cold]
    #[inline(never)]
    fn hide_cache(&mut self) {
        self.remove_http_response_header(names::DECISION);
        self.remove_http_response_header(orca::REPORT_HEADER);
        let headers = self.get_http_response_headers_bytes();
        self.mask = CacheMask::for_response(&headers).map(Box::new);
        if self.mask.is_some() {
            self.remove_http_response_header("content-length");
        }
    }

    /// Hides the numbers of the cache in a piece of the response. The host replaces pieces as a whole only.
    #[cold]
    #[inline(never)]
    fn mask_body(&mut self, piece_bytes: usize, is_end: bool) {
        let piece = self.get_http_response_body(0, piece_bytes);
        let piece = piece.unwrap_or_default();
        let mask = self.mask.as_mut();
        if let Some(masked) = mask.and_then(|mask| mask.apply(&piece, is_end)) {
            self.set_http_response_body(0, piece.len(), &masked);
        }
    }

    fn report_outcome(&mut self) {
        if let Some(flow) = self.response.take()
            && let Some(outcome) = host::outcome(&flow, &self.role.metrics.responses)
        {
            self.end(Some(outcome));
        }
    }

    /// Ends the request on the decision stream, unless it has ended there.
    fn end(&self, outcome: Option<String>) {
        if let Some(connection) = &self.role.connection
            && self.is_sent
            && let Ok(mut connection) = connection.try_borrow_mut()
        {
            connection.end_request(self.id, outcome);
        }
    }
}

impl Drop for RequestContext {
    /// Ends a request without an outcome: its client has disconnected.
    fn drop(&mut self) {
        if self.flow.is_some() {
            self.role.watch.on_end(self.id);
        }
        self.role.bodies.release(&mut self.timer_index);
        self.end(None);
    }
}

impl Context for RequestContext {}

impl HttpContext for RequestContext {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let headers = self.get_http_request_headers_bytes();
        let config = &self.role.config;
        match Admission::of(config, &headers) {
            Admission::Serve => {}
            Admission::Reject(rejection) => return self.reject(&rejection),
            Admission::Pass(edits) => return self.pass(&edits),
        }
        host::apply(MapType::HttpRequestHeaders, &strip(config, &headers));
        self.arrived_at = is_traced(&headers).then(host::now);
        let mut flow = RequestFlow::with_metadata(
            Arc::clone(config),
            &headers,
            !end_of_stream,
            host::property_at,
        );
        if flow.is_held() && config.has_gate() {
            return self.pass_to_gate(flow, &headers);
        }
        let watch = &self.role.watch;
        if flow.is_held() {
            match watch.hold(self.id, headers) {
                Hold::Watched => self.is_watched = true,
                Hold::Unwatched => {}
                Hold::Refused => flow.skip_body(),
            }
        }
        if !flow.is_held() {
            return self.release(flow);
        }
        flow.limit_buffer(watch.limit());
        if flow.exceeds_buffer() && Self::has_large_reads() {
            flow.release_after_first_piece();
        }
        self.flow = Some(flow);
        self.timer_index = self.role.bodies.hold(self.id);
        Action::Pause
    }

    fn on_http_request_body(&mut self, buffered_bytes: usize, end_of_stream: bool) -> Action {
        let Some(mut flow) = self.flow.take() else {
            return Action::Continue;
        };
        if self.is_gated {
            return self.read_before_gate(flow, buffered_bytes, end_of_stream);
        }
        if !self.role.watch.on_body(self.id, self.is_watched) {
            self.role.bodies.release(&mut self.timer_index);
            return Action::Continue;
        }
        self.accepted_bytes = flow.body_bytes();
        self.held_bytes = buffered_bytes;
        if end_of_stream {
            flow.end_body();
        }
        // The host's buffer grows while a request is held: the new bytes follow the known ones.
        let is_full = self.read(&mut flow, 0, buffered_bytes);
        if is_full || end_of_stream {
            let action = self.release(flow);
            if action == Action::Continue && self.accepted_bytes == 0 {
                self.held_bytes = 0; // the host never held it
            }
            action
        } else {
            self.flow = Some(flow);
            Action::Pause
        }
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        let Some(mut flow) = self.flow.take() else {
            return Action::Continue;
        };
        flow.end_body();
        if self.is_gated {
            self.open_gate(flow)
        } else if self.role.watch.on_body(self.id, self.is_watched) {
            self.release(flow)
        } else {
            Action::Continue
        }
    }

    fn on_http_response_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        if let Some(mut flow) = self.take_response_flow() {
            host::response_headers(&mut flow);
            self.response = Some(flow);
        } else if self.held_bytes > 0 {
            let watch = &self.role.watch;
            watch.on_response(self.held_bytes, self.accepted_bytes);
        }
        if self.role.config.hides_cache() && !self.is_passed {
            self.hide_cache();
        }
        if end_of_stream {
            self.report_outcome();
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, piece_bytes: usize, end_of_stream: bool) -> Action {
        if let Some(flow) = &mut self.response {
            let had_begun = flow.has_begun();
            host::response_body(flow, piece_bytes);
            let has_begun = !had_begun && flow.has_begun() && !end_of_stream;
            let id = flow.take_new_id().map(str::to_owned);
            if has_begun {
                self.start_response();
            }
            if let Some(id) = id {
                self.store_response(id);
            }
        }
        if self.mask.is_some() {
            self.mask_body(piece_bytes, end_of_stream);
        }
        if end_of_stream {
            self.report_outcome();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.report_outcome();
        if !self.is_passed {
            // This role is the last to see a response; only the service reads the outcome.
            self.remove_http_response_trailer(names::OUTCOME);
        }
        Action::Continue
    }
}

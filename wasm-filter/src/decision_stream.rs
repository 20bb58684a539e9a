//! The decision stream on the host: a gRPC stream of the plugin's root context, for the requests of this worker.
//!
//! The host assigns each stream to the context that opened it. So a request switches to the root context to send
//! (`set_effective_context`), and the root context switches to a request to change its headers and release it. The host
//! defers callbacks into this module until the call has returned.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use isotherm_decision_proto::{ImmediateResponse, METHOD, SERVICE};
use isotherm_wasm_filter_core::decision_stream::{
    DecisionStream, Effect, FlushTimer, TICK, is_unanswered,
};
use isotherm_wasm_filter_core::request::RequestTarget;
use isotherm_wasm_filter_core::response::{Nanoseconds, ResponseFlow};
use isotherm_wasm_filter_core::{DecisionStreamConfig, HeaderEdit, RequestConfig};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};

use crate::metrics::Metric;
use crate::{access_log, gate, host};

/// A connection that a root context shares with its requests.
pub(crate) type SharedConnection = Rc<RefCell<Connection>>;

#[derive(Debug)]
pub(crate) struct Connection {
    /// The root context, which owns the gRPC stream.
    root: u32,
    /// Whether a gate holds the requests instead of this instance.
    has_gate: bool,
    cluster: String,
    /// The metadata of the gRPC call, which no client can set.
    metadata: Option<(&'static str, &'static str)>,
    grpc: Option<u32>,
    stream: DecisionStream,
    timer: FlushTimer,
    /// Counts the requests that the filter released without a decision.
    fallbacks: Metric,
    /// Counts the streams that became ready.
    opened: Metric,
}

impl Connection {
    /// Starts the timer, which opens the stream. Runs in the root context.
    pub(crate) fn start(
        root: u32,
        config: &RequestConfig,
        stream: &DecisionStreamConfig,
        now: Nanoseconds,
    ) -> SharedConnection {
        set_timer(Some(TICK));
        Rc::new(RefCell::new(Self {
            root,
            has_gate: config.has_gate(),
            cluster: stream.cluster.clone(),
            metadata: config.stream_metadata(),
            grpc: None,
            stream: DecisionStream::new(stream),
            timer: FlushTimer::new(now),
            fallbacks: Metric::counter("isotherm_filter_decision_stream_fallbacks"),
            opened: Metric::counter("isotherm_filter_decision_streams_opened"),
        }))
    }

    /// Sends a request, which is then held, or returns its headers. Runs in the request's context.
    pub(crate) fn send_request(
        &mut self,
        request: u32,
        target: &RequestTarget,
        edits: Vec<HeaderEdit>,
    ) -> Result<(), Vec<HeaderEdit>> {
        let message = self.stream.add_request(request, target, edits)?;
        self.perform_as_root(request, Effect::Send(message));
        Ok(())
    }

    /// The flow that reads the response to a request, which begins, if the service decided on the request. Runs in the
    /// request's context.
    pub(crate) fn take_response_flow(&mut self, request: u32) -> Option<Box<ResponseFlow>> {
        self.stream.take_response_flow(request)
    }

    /// Records the first token of the response to a request. Runs in the request's context.
    pub(crate) fn start_response(&mut self, request: u32) {
        if let Some(effect) = self.stream.start_response(request) {
            self.perform_as_root(request, effect);
        }
    }

    /// Records the id of the response to a request. Runs in the request's context.
    pub(crate) fn store_response(&mut self, request: u32, response_id: String) {
        if let Some(effect) = self.stream.store_response(request, response_id) {
            self.perform_as_root(request, effect);
        }
    }

    /// Ends a request. Runs in the request's context.
    pub(crate) fn end_request(&mut self, request: u32, outcome: Option<String>) {
        if let Some(effect) = self.stream.end_request(request, outcome) {
            self.perform_as_root(request, effect);
        }
    }

    /// Handles the timer. Runs in the root context.
    pub(crate) fn on_timer(&mut self, now: Nanoseconds) {
        let event = self.timer.fire(now);
        set_timer(event.period);
        if event.is_tick {
            let effects = self.stream.tick();
            self.perform(effects);
        }
        let effects = self.stream.flush_ends();
        self.perform(effects);
    }

    /// The period of the timer that the stream needs.
    pub(crate) fn timer_period(&self) -> Duration {
        self.timer.period()
    }

    /// Handles a message of the service. Runs in the root context.
    pub(crate) fn on_message(&mut self, grpc: u32, message_bytes: usize, now: Nanoseconds) {
        if self.grpc == Some(grpc) {
            let message = hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, message_bytes);
            let message = message.ok().flatten().unwrap_or_default();
            let effects = self.stream.on_message(&message, now);
            self.perform(effects);
        }
    }

    /// Handles the end of a gRPC stream. Runs in the root context.
    pub(crate) fn on_close(&mut self, grpc: u32) {
        if self.grpc == Some(grpc) {
            self.grpc = None;
            let effects = self.stream.on_close();
            self.perform(effects);
        }
    }

    fn perform(&mut self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            match effect {
                Effect::Open => {
                    // The library calls the context back that runs now.
                    let metadata = self.metadata.iter();
                    let metadata = metadata.map(|(name, value)| (*name, value.as_bytes()));
                    let grpc = hostcalls::open_grpc_stream(
                        &self.cluster,
                        SERVICE,
                        METHOD,
                        metadata.collect(),
                    );
                    self.grpc = grpc.ok();
                    self.stream.on_open(self.grpc.is_some());
                }
                Effect::Close => {
                    if let Some(grpc) = self.grpc.take() {
                        // An error means that the stream is closed already.
                        let _ = hostcalls::cancel_grpc_stream(grpc);
                    }
                }
                Effect::Release(request, edits) => {
                    self.in_request(request, || self.release(edits));
                }
                Effect::Dispatch(request, edits, record) => {
                    self.in_request(request, || {
                        access_log::decision(&record);
                        self.release(edits);
                    });
                }
                Effect::Respond(request, response) => {
                    self.in_request(request, || respond(&response));
                }
                Effect::RespondInstead(request, response) => {
                    self.in_request(request, || respond_instead(&response));
                }
                Effect::Send(message) => {
                    if let Some(grpc) = self.grpc {
                        // After an error the stream closes, which releases every request.
                        let _ = hostcalls::send_grpc_stream_message(grpc, Some(&message), false);
                    }
                }
                Effect::ScheduleFlush => set_timer(self.timer.schedule()),
            }
        }
        let counts = [
            (self.fallbacks, self.stream.take_fallbacks()),
            (self.opened, self.stream.take_opened()),
        ];
        for (metric, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            metric.add(count);
        }
    }

    /// Releases the current request.
    fn release(&self, edits: Vec<HeaderEdit>) {
        if self.has_gate {
            gate::open(edits);
        } else {
            host::apply(MapType::HttpRequestHeaders, &edits);
            let _ = hostcalls::resume_http_request();
        }
    }

    /// Performs an effect in the root context, from the context of a request.
    fn perform_as_root(&mut self, request: u32, effect: Effect) {
        self.enter_root();
        self.perform([effect]);
        let _ = hostcalls::set_effective_context(request);
    }

    /// Runs a function in the context of a request, from the root context.
    fn in_request(&self, request: u32, run: impl FnOnce()) {
        host::in_request(self.root, request, run);
    }

    fn enter_root(&self) {
        // The root context outlives its requests.
        let _ = hostcalls::set_effective_context(self.root);
    }
}

/// Sets the timer of the root context. On a host without a timer, the next request carries the ends.
fn set_timer(period: Option<Duration>) {
    if let Some(period) = period {
        let _ = hostcalls::set_tick_period(period);
    }
}

/// Responds to the client of the current request, unless its response is on the way. A response whose headers have passed is
/// cut off.
#[cold]
#[inline(never)]
fn respond_instead(response: &ImmediateResponse) {
    let upstream = host::text_property(["upstream", "address"]);
    // The host has no map of headers yet, and its library panics over that; the property is missing instead.
    let media_type = host::text_property(["response", "headers", "content-type"]);
    if is_unanswered(response, upstream.as_deref(), media_type.as_deref()) {
        respond(response);
    }
}

/// Responds to the client of the current request.
fn respond(response: &ImmediateResponse) {
    access_log::reason(&response.reason);
    let headers = response.headers.iter().filter_map(|header| {
        let value = str::from_utf8(&header.value).ok()?;
        Some((header.name.as_str(), value))
    });
    let _ = hostcalls::send_http_response(response.status, headers.collect(), Some(&response.body));
}

//! The decision stream on the host: a stream of the plugin's root context, for the requests of this worker.
//!
//! The host gives each stream to the context that opened it. So whoever sends takes the root's place for that one call
//! (`set_effective_context`), and the root takes a request's place to change its headers and let it go. The host
//! defers whatever would come back into this module until the call has returned.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use isotherm_decision_proto::{ImmediateResponse, METHOD, SERVICE};
use isotherm_wasm_filter_core::decision_stream::{DecisionStream, Effect, Pace, TICK};
use isotherm_wasm_filter_core::request::Target;
use isotherm_wasm_filter_core::response::{Nanoseconds, ResponseFlow};
use isotherm_wasm_filter_core::{DecisionStreamConfig, Edit};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};

use crate::metrics::DecisionStreamMetrics;

/// A decision stream that a root context and its requests share.
pub(crate) type Shared = Rc<RefCell<Wire>>;

/// The logic of a decision stream, and its stream.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The context that opens the stream.
    root: u32,
    cluster: String,
    stream: Option<u32>,
    decision_stream: DecisionStream,
    pace: Pace,
    metrics: DecisionStreamMetrics,
}

impl Wire {
    /// In the root's callback.
    pub(crate) fn start(root: u32, config: &DecisionStreamConfig, now: Nanoseconds) -> Shared {
        set_timer(TICK);
        Rc::new(RefCell::new(Self {
            root,
            cluster: config.cluster.clone(),
            stream: None,
            decision_stream: DecisionStream::new(config),
            pace: Pace::new(now),
            metrics: DecisionStreamMetrics::define(),
        }))
    }

    /// In a callback of the request: asks about it, and it has to be held back; or gives its headers again.
    pub(crate) fn ask(
        &mut self,
        request: u32,
        target: &Target,
        edits: Vec<Edit>,
    ) -> Result<(), Vec<Edit>> {
        let message = self.decision_stream.ask(request, target, edits)?;
        self.send_for(request, &message);
        Ok(())
    }

    /// What watches a request's answer, which has begun to come, if the request was decided here.
    pub(crate) fn answer(&mut self, request: u32) -> Option<Box<ResponseFlow>> {
        self.decision_stream.answer(request)
    }

    /// In a callback of the request: tells that it has ended.
    pub(crate) fn tell_end(&mut self, request: u32, outcome: Option<String>) {
        if let Some(effect) = self.decision_stream.ended(request, outcome) {
            self.be_the_root();
            self.perform([effect]);
            let _ = hostcalls::set_effective_context(request);
        }
    }

    /// In the root's callback: the timer has fired.
    pub(crate) fn fired(&mut self, now: Nanoseconds) {
        let fired = self.pace.fired(now);
        if let Some(period) = fired.period {
            set_timer(period);
        }
        if fired.is_tick {
            let effects = self.decision_stream.tick();
            self.perform(effects);
        }
        let effects = self.decision_stream.ends();
        self.perform(effects);
    }

    /// In the root's callback: a message came.
    pub(crate) fn heard(&mut self, stream: u32, message_bytes: usize, now: Nanoseconds) {
        if self.stream != Some(stream) {
            return;
        }
        let message = hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, message_bytes);
        let message = message.ok().flatten().unwrap_or_default();
        let effects = self.decision_stream.heard(&message, now);
        self.perform(effects);
    }

    /// In the root's callback: a stream has ended.
    pub(crate) fn closed(&mut self, stream: u32) {
        if self.stream == Some(stream) {
            self.stream = None;
            let effects = self.decision_stream.closed();
            self.perform(effects);
        }
    }

    fn perform(&mut self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            match effect {
                Effect::Open => self.open(),
                Effect::HangUp => {
                    if let Some(stream) = self.stream.take() {
                        // One that is gone already is what was wanted.
                        let _ = hostcalls::cancel_grpc_stream(stream);
                    }
                }
                Effect::LetGo(request, edits) => {
                    if hostcalls::set_effective_context(request).is_ok() {
                        apply(&edits);
                        let _ = hostcalls::resume_http_request();
                        self.be_the_root();
                    }
                }
                Effect::Reply(request, answer) => {
                    if hostcalls::set_effective_context(request).is_ok() {
                        reply(&answer);
                        self.be_the_root();
                    }
                }
                Effect::Send(message) => self.send(&message),
                Effect::Soon => {
                    if let Some(period) = self.pace.hurry() {
                        set_timer(period);
                    }
                }
            }
        }
        self.metrics.fell_back(self.decision_stream.take_given_up());
    }

    fn open(&mut self) {
        // The library notes who is called back about the stream: the context whose callback this is.
        self.stream = hostcalls::open_grpc_stream(&self.cluster, SERVICE, METHOD, Vec::new()).ok();
        self.decision_stream.opened(self.stream.is_some());
    }

    /// Sends in the root's place, from a callback of a request.
    fn send_for(&self, request: u32, message: &[u8]) {
        self.be_the_root();
        self.send(message);
        let _ = hostcalls::set_effective_context(request);
    }

    /// A stream that takes no message is about to end, and then everybody is let go.
    fn send(&self, message: &[u8]) {
        if let Some(stream) = self.stream {
            let _ = hostcalls::send_grpc_stream_message(stream, Some(message), false);
        }
    }

    fn be_the_root(&self) {
        // It exists for as long as any of its requests.
        let _ = hostcalls::set_effective_context(self.root);
    }
}

/// In the root's place. Where the host has no timer, questions tell the ends.
fn set_timer(period: Duration) {
    let _ = hostcalls::set_tick_period(period);
}

fn apply(edits: &[Edit]) {
    for edit in edits {
        let (name, value) = match edit {
            Edit::Remove(name) => (name.as_str(), None),
            Edit::Set(name, value) => (*name, Some(value.as_slice())),
        };
        let _ = hostcalls::set_map_value_bytes(MapType::HttpRequestHeaders, name, value);
    }
}

fn reply(answer: &ImmediateResponse) {
    let headers = answer.headers.iter().filter_map(|header| {
        let value = str::from_utf8(&header.value).ok()?;
        Some((header.name.as_str(), value))
    });
    let _ = hostcalls::send_http_response(answer.status, headers.collect(), Some(&answer.body));
}

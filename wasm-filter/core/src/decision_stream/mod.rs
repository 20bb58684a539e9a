//! The filter's end of the decision stream (see [`isotherm_decision_proto`]).
//!
//! ```text
//!            tick, backoff over         first message           no message within a request's timeout
//!  ┌──> Closed ─────────────> Opening ──────────────> Ready ────────────────────────────────> Stalled
//!  │      ^                      │                    │ ^             any message              │
//!  │      │        closed        │       go away      │ └──────────────────────────────────────┘
//!  │      └──────────────────────┴────< Draining <────┘
//!  └── every pending request is released with all its headers: external processing decides
//! ```
//! The filter sends a request only while the stream is ready. It releases each sent request exactly once: by a response, by
//! its timeout, by the end of the stream, or by its own end. After a timeout external processing does not decide either: a
//! service that hangs would delay the request as long again. No code here reads a clock: the shell calls
//! [`DecisionStream::tick`] every [`TICK`].
//!
//! The role that sent a request also reads its response ([`DecisionStream::take_response_flow`]), so the other role can stay
//! out of the filter chain: Envoy calls every filter instance again for every step of a request.

mod edits;
mod timer;

use std::collections::BTreeMap;
use std::mem;

use isotherm_decision_proto::{
    Action, ClientMessage, DecisionRequest, DecisionResponse, Header, ImmediateResponse,
    RequestEnd, ServerMessage, StoredResponse,
};
use prost::Message;

pub use timer::{FlushTimer, TICK, TimerEvent};

use crate::DecisionStreamConfig;
use crate::headers::HeaderEdit;
use crate::request::RequestTarget;
use crate::response::{EVENT_STREAM, Nanoseconds, ResponseFlow};
use edits::{forwarded, with_decision, without_decision, without_replica};

/// The most requests in flight on one stream.
const REQUESTS_MAX: usize = 65_536;

/// The number of ends that are sent at once.
const ENDS_MAX: usize = 64;

/// The first backoff after the stream closes, in ticks.
const BACKOFF_TICKS_MIN: u64 = 10;
/// The longest backoff after the stream closes, in ticks.
const BACKOFF_TICKS_MAX: u64 = 50;

/// Added to a timeout in ticks, because a request is sent between two ticks.
const SLACK_TICKS: u64 = 1;

/// A task for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Open the stream and call [`DecisionStream::on_open`].
    Open,
    /// Close the stream without a call of [`DecisionStream::on_close`].
    Close,
    /// Release a request, which has no decision, with these headers.
    Release(u32, Vec<HeaderEdit>),
    /// Release a request with the headers of its decision.
    Dispatch(u32, Vec<HeaderEdit>, DecisionRecord),
    /// Respond to the client of a request.
    Respond(u32, ImmediateResponse),
    /// Respond to the client of a request that its replica does not answer, if [`is_unanswered`] says so.
    RespondInstead(u32, ImmediateResponse),
    /// Send these bytes as one message.
    Send(Vec<u8>),
    /// Call [`DecisionStream::flush_ends`] soon (see [`FlushTimer`]).
    ScheduleFlush,
}

/// The part of a decision that the access log shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The reason for the replica.
    pub reason: String,
    /// The time that the request was queued, in milliseconds.
    pub queued_ms: u32,
}

impl DecisionRecord {
    fn of(reason: &mut String, queued_ms: u32) -> Self {
        Self {
            reason: mem::take(reason),
            queued_ms,
        }
    }
}

/// The state of the stream and of the requests on it.
#[derive(Debug)]
pub struct DecisionStream {
    timeout_ticks: u64,
    /// Whether clients see the decision.
    exposes_decisions: bool,
    state: State,
    requests: BTreeMap<u32, Request>,
    /// The ends that wait for the next message.
    ends: Vec<RequestEnd>,
    /// The requests whose response has begun, for the next message.
    starts: Vec<u32>,
    /// The responses that a replica may store, for the next message.
    stored: Vec<StoredResponse>,
    /// The current time in ticks.
    now: u64,
    backoff_ticks: u64,
    /// The requests that were released without a decision.
    fallbacks: u64,
    /// The streams that became ready.
    opened: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { retry_at: u64 },
    Opening,
    Ready,
    Stalled,
    Draining,
}

#[derive(Debug)]
enum Request {
    /// The filter holds the request.
    Pending {
        deadline: u64,
        /// All headers of the filter, for the case that the service does not respond.
        edits: Vec<HeaderEdit>,
        wants_report: bool,
        /// Whether another region forwarded the request, or it came back from one.
        has_origin: bool,
    },
    /// The service has decided. The flow reads the response once it arrives; the end is still to be sent.
    Decided(Option<Box<ResponseFlow>>),
    /// The first token of a streamed response came; the end is still to be sent.
    Begun,
    /// The stream of the decision has closed, so no end is sent. The flow still removes the load report from the response.
    Detached(Option<Box<ResponseFlow>>),
}

impl DecisionStream {
    /// A closed stream, which opens at the first tick.
    #[must_use]
    pub fn new(config: &DecisionStreamConfig) -> Self {
        Self {
            timeout_ticks: ticks(config.timeout_ms),
            exposes_decisions: config.decision,
            state: State::Closed { retry_at: 0 },
            requests: BTreeMap::new(),
            ends: Vec::new(),
            starts: Vec::new(),
            stored: Vec::new(),
            now: 0,
            backoff_ticks: BACKOFF_TICKS_MIN,
            fallbacks: 0,
            opened: 0,
        }
    }

    /// Adds a request with the headers that the filter sets. Returns the message to send, or the headers when the stream is
    /// not ready or full: the request continues without it.
    pub fn add_request(
        &mut self,
        id: u32,
        target: &RequestTarget,
        edits: Vec<HeaderEdit>,
    ) -> Result<Vec<u8>, Vec<HeaderEdit>> {
        if self.state != State::Ready || self.requests.len() >= REQUESTS_MAX {
            return Err(edits);
        }
        let written = edits.iter().filter_map(|edit| match edit {
            HeaderEdit::Set(name, value) => Some((*name, value.as_slice())),
            HeaderEdit::Remove(_) => None,
        });
        // The service reads the last header of a name, as if the edits were made.
        let headers = target.headers().chain(written);
        let headers = headers.map(|(name, value)| Header {
            name: name.to_owned(),
            value: value.to_owned(),
        });
        let message = ClientMessage {
            requests: vec![DecisionRequest {
                request_id: id,
                headers: headers.collect(),
            }],
            ends: mem::take(&mut self.ends),
            starts: mem::take(&mut self.starts),
            stored: mem::take(&mut self.stored),
        };
        let pending = Request::Pending {
            deadline: self.now + self.timeout_ticks + SLACK_TICKS,
            edits,
            wants_report: target.wants_report,
            has_origin: target.has_origin(),
        };
        self.requests.insert(id, pending);
        Ok(message.encode_to_vec())
    }

    /// The flow that reads the response to a request, once; `None` when the service did not decide on the request.
    pub fn take_response_flow(&mut self, id: u32) -> Option<Box<ResponseFlow>> {
        match self.requests.get_mut(&id)? {
            Request::Pending { .. } | Request::Begun => None,
            Request::Decided(flow) | Request::Detached(flow) => flow.take(),
        }
    }

    /// Records that the response to a request begins: its first token came.
    pub fn start_response(&mut self, id: u32) -> Option<Effect> {
        let request = self.requests.get_mut(&id)?;
        if !matches!(request, Request::Decided(_)) {
            return None;
        }
        *request = Request::Begun;
        self.starts.push(id);
        self.schedule()
    }

    /// Tells the service at once that the replica of a request may store its response under this id: the client may use the id on
    /// another worker next.
    pub fn store_response(&mut self, id: u32, response_id: String) -> Option<Effect> {
        let request = self.requests.get(&id)?;
        if !matches!(request, Request::Decided(_) | Request::Begun) {
            return None;
        }
        self.stored.push(StoredResponse {
            request_id: id,
            response_id,
        });
        self.flush_ends()
    }

    /// Schedules the waiting starts and ends.
    fn schedule(&mut self) -> Option<Effect> {
        match self.ends.len() + self.starts.len() {
            1 => Some(Effect::ScheduleFlush),
            ENDS_MAX.. => self.flush_ends(),
            _ => None,
        }
    }

    /// Ends a request with this outcome, if one is known.
    pub fn end_request(&mut self, id: u32, outcome: Option<String>) -> Option<Effect> {
        if let Request::Detached(_) = self.requests.remove(&id)? {
            return None;
        }
        self.push_end(id, outcome.unwrap_or_default());
        self.schedule()
    }

    fn push_end(&mut self, request_id: u32, outcome: String) {
        self.ends.push(RequestEnd {
            request_id,
            outcome: outcome.into_bytes(),
        });
    }

    /// Sends what waits for the next message.
    pub fn flush_ends(&mut self) -> Option<Effect> {
        let message = ClientMessage {
            requests: Vec::new(),
            ends: mem::take(&mut self.ends),
            starts: mem::take(&mut self.starts),
            stored: mem::take(&mut self.stored),
        };
        (message != ClientMessage::default()).then(|| Effect::Send(message.encode_to_vec()))
    }

    /// Advances the time by one tick.
    pub fn tick(&mut self) -> Vec<Effect> {
        self.now += 1;
        match self.state {
            State::Closed { retry_at } if retry_at <= self.now => return vec![Effect::Open],
            State::Closed { .. } => return Vec::new(),
            State::Opening | State::Ready | State::Stalled | State::Draining => {}
        }
        let now = self.now;
        let expired: Vec<(u32, Request)> = self
            .requests
            .extract_if(.., |_, request| {
                matches!(request, Request::Pending { deadline, .. } if *deadline <= now)
            })
            .collect();
        let mut effects = Vec::new();
        for (id, request) in expired {
            if let Request::Pending { edits, .. } = request {
                effects.push(Effect::Release(id, without_decision(id, edits)));
                self.push_end(id, String::new());
                self.fallbacks += 1;
            }
        }
        if !effects.is_empty() && self.state == State::Ready {
            self.state = State::Stalled;
        }
        effects.extend(self.flush_ends());
        effects
    }

    /// Records whether the stream could be opened.
    pub fn on_open(&mut self, is_open: bool) {
        if is_open {
            self.state = State::Opening;
        } else {
            self.back_off();
        }
    }

    /// Reads a message of the service. `now` is the time at which the released requests are sent.
    pub fn on_message(&mut self, message: &[u8], now: Nanoseconds) -> Vec<Effect> {
        let Ok(ServerMessage { responses, go_away }) = ServerMessage::decode(message) else {
            // The peer speaks another protocol; its next message would be no better.
            let mut effects = self.on_close();
            effects.push(Effect::Close);
            return effects;
        };
        if go_away.is_some() {
            self.state = State::Draining;
        } else if self.state != State::Draining {
            self.opened += u64::from(self.state == State::Opening);
            self.state = State::Ready;
            self.backoff_ticks = BACKOFF_TICKS_MIN;
        }
        let responses = responses.into_iter();
        responses
            .filter_map(|response| self.on_response(response, now))
            .collect()
    }

    /// Records that the stream has closed, and releases the pending requests.
    pub fn on_close(&mut self) -> Vec<Effect> {
        self.back_off();
        self.ends.clear();
        self.starts.clear();
        self.stored.clear();
        let mut effects = Vec::new();
        for (id, request) in mem::take(&mut self.requests) {
            match request {
                Request::Pending { edits, .. } => {
                    effects.push(Effect::Release(id, edits));
                    self.fallbacks += 1;
                }
                Request::Decided(flow) | Request::Detached(flow) => {
                    self.requests.insert(id, Request::Detached(flow));
                }
                Request::Begun => {
                    self.requests.insert(id, Request::Detached(None));
                }
            }
        }
        effects
    }

    /// The number of requests released without a decision since the last call.
    pub fn take_fallbacks(&mut self) -> u64 {
        mem::take(&mut self.fallbacks)
    }

    /// The number of streams that have become ready since the last call.
    pub fn take_opened(&mut self) -> u64 {
        mem::take(&mut self.opened)
    }

    fn back_off(&mut self) {
        self.state = State::Closed {
            retry_at: self.now + self.backoff_ticks,
        };
        self.backoff_ticks = (self.backoff_ticks * 2).min(BACKOFF_TICKS_MAX);
    }

    fn on_response(&mut self, response: DecisionResponse, now: Nanoseconds) -> Option<Effect> {
        let id = response.request_id;
        let request = self.requests.get_mut(&id)?;
        if let Request::Decided(_) = request {
            // The end of the response follows as usual.
            let instead = response.action.and_then(immediate_response);
            return instead.map(|instead| Effect::RespondInstead(id, instead));
        }
        let Request::Pending {
            deadline,
            edits,
            wants_report,
            has_origin,
        } = request
        else {
            return None;
        };
        let (wants_report, exposes) = (*wants_report, self.exposes_decisions);
        let sent = |decision: String| {
            let exposed = (exposes && !decision.is_empty()).then(|| decision.into_bytes());
            Box::new(ResponseFlow::sent(now, wants_report, exposed))
        };
        match response.action {
            Some(Action::Wait(wait)) => {
                *deadline = self.now + ticks(wait.timeout_ms) + SLACK_TICKS;
                None
            }
            Some(Action::Route(mut route)) => {
                let record = DecisionRecord::of(&mut route.reason, route.queued_ms);
                let decision = mem::take(&mut route.decision);
                let edits = mem::take(edits);
                let mut flow = sent(decision);
                flow.select(&route.destination);
                let edits = with_decision(id, edits, route, !wants_report, *has_origin);
                *request = Request::Decided(Some(flow));
                Some(Effect::Dispatch(id, edits, record))
            }
            Some(Action::Forward(mut forward)) => {
                let record = DecisionRecord::of(&mut forward.reason, forward.queued_ms);
                let decision = mem::take(&mut forward.decision);
                let edits = forwarded(id, mem::take(edits), forward);
                *request = Request::Decided(Some(sent(decision)));
                Some(Effect::Dispatch(id, edits, record))
            }
            Some(Action::ImmediateResponse(immediate)) => {
                self.requests.remove(&id);
                Some(Effect::Respond(id, immediate))
            }
            // An unknown action comes from a newer service, which also decides by external processing.
            Some(Action::ExtProcFallback(_)) | None => {
                let edits = without_replica(mem::take(edits));
                self.requests.remove(&id);
                Some(Effect::Release(id, edits))
            }
        }
    }
}

/// Whether the response to a request is still awaited from the replica that hangs. `upstream` is the host of the request, if
/// it has one, and `media_type` that of the response, once its headers came. A retry may be at another replica; and of a
/// response that is not streamed, headers are the beginning. The headers of a stream come before its first token.
#[must_use]
pub fn is_unanswered(
    response: &ImmediateResponse,
    upstream: Option<&str>,
    media_type: Option<&str>,
) -> bool {
    let is_there = upstream.is_none_or(|upstream| upstream == response.replica);
    is_there && media_type.is_none_or(|media_type| media_type.starts_with(EVENT_STREAM))
}

fn immediate_response(action: Action) -> Option<ImmediateResponse> {
    match action {
        Action::ImmediateResponse(response) => Some(response),
        Action::Route(_) | Action::Forward(_) | Action::Wait(_) | Action::ExtProcFallback(_) => {
            None
        }
    }
}

/// The number of ticks that cover this time.
fn ticks(timeout_ms: u32) -> u64 {
    let tick_ms = TICK.as_millis() as u64;
    u64::from(timeout_ms).div_ceil(tick_ms)
}

#[cfg(test)]
mod tests;

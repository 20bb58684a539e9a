//! The filter's end of the decision stream (see [`isotherm_decision_proto`]): which requests are out, and what to do when no answer comes.
//!
//! ```text
//!            tick, pause over          first message            silent for a request's time
//!  ┌──> Down ───────────────> Opening ──────────────> Up ─────────────────────────────────> Silent
//!  │      ^                      │                    │ ^            any message              │
//!  │      │        closed        │       leaving      │ └─────────────────────────────────────┘
//!  │      └──────────────────────┴─────< Leaving <────┘
//!  └── every request that is out is let go with all its headers: external processing decides on it
//! ```
//! A request asks only while the decision stream is up. Whatever else happens to the decision stream, each request that was taken in is let go
//! exactly once: by an answer, by its time, by the decision stream's end, or by its own. One whose time is up is nobody's to decide
//! any more: a service that hangs would let external processing wait as long again. Nothing here reads a clock: time is
//! counted in ticks, which the shell makes every [`TICK`].
//!
//! What is decided here is watched here: the role that asked sees the answer, too ([`DecisionStream::answer`]), so that the other role
//! need not be in its way at all: each instance of a filter is called again for every step of a request.

mod edits;
mod pace;

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use isotherm_decision_proto::{
    Action, ClientMessage, DecisionRequest, DecisionResponse, Header, ImmediateResponse,
    RequestEnd, ServerMessage,
};
use prost::Message;

pub use pace::{Fired, Pace, TICK};

use crate::DecisionStreamConfig;
use crate::headers::Edit;
use crate::request::Target;
use crate::response::{Nanoseconds, ResponseFlow};
use edits::{decided, undecided};

/// The most requests that may be out or under way at once.
const REQUESTS_MAX: usize = 65_536;

/// So many ends are enough for a message of their own.
const ENDS_ENOUGH: usize = 64;

/// How long the decision stream is left alone after it broke, in ticks: at first, and at most.
const PAUSE_TICKS_MIN: u64 = 10;
const PAUSE_TICKS_MAX: u64 = 50;

/// How much longer than the time for an answer a request is held back at most, in ticks: it was asked between two.
const SLACK_TICKS: u64 = 1;

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Open the stream; [`DecisionStream::opened`] is to be told.
    Open,
    /// Close the stream without another word; [`DecisionStream::closed`] need not be told.
    HangUp,
    /// Let a request go with these headers.
    LetGo(u32, Vec<Edit>),
    /// DecisionResponse a request's client.
    Reply(u32, ImmediateResponse),
    /// Send these bytes as one message.
    Send(Vec<u8>),
    /// Call [`DecisionStream::ends`] soon (see [`Pace`]): what waits to be told waits no longer.
    Soon,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct DecisionStream {
    /// How long a request is held back without a word of the service, in ticks.
    patience: u64,
    tells_decisions: bool,
    state: State,
    requests: BTreeMap<u32, Request>,
    /// What has ended, and is told with the next question or soon.
    ends: Vec<RequestEnd>,
    now: u64,
    /// How long the next pause is, in ticks.
    pause: u64,
    /// How many requests were let go without the service's answer.
    given_up: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down { until: u64 },
    Opening,
    Up,
    Silent,
    Leaving,
}

/// A request that the service knows of.
#[derive(Debug)]
enum Request {
    /// It is held back.
    Asked {
        until: u64,
        /// All its headers, for when the service does not answer.
        edits: Vec<Edit>,
        wants_report: bool,
    },
    /// It has been decided, and its end is still to be told; here is what watches its answer, until it comes.
    Decided(Option<Box<ResponseFlow>>),
    /// The same, but the stream on which it was decided has ended: nobody is to be told. Its answer is still cleared of what
    /// the client has not asked for.
    Outlived(Option<Box<ResponseFlow>>),
}

impl DecisionStream {
    /// A decision stream that is down.
    #[must_use]
    pub fn new(config: &DecisionStreamConfig) -> Self {
        let ticks = config.timeout.as_nanos().div_ceil(TICK.as_nanos());
        Self {
            patience: u64::try_from(ticks).unwrap_or(u64::MAX),
            tells_decisions: config.decision,
            state: State::Down { until: 0 },
            requests: BTreeMap::new(),
            ends: Vec::new(),
            now: 0,
            pause: PAUSE_TICKS_MIN,
            given_up: 0,
        }
    }

    /// Takes a request in, if the decision stream is good: `edits` are the headers that the filter writes. Returns the message to send, or
    /// the edits again.
    ///
    /// # Errors
    /// When the request has to go without the decision stream.
    pub fn ask(
        &mut self,
        id: u32,
        target: &Target,
        edits: Vec<Edit>,
    ) -> Result<Vec<u8>, Vec<Edit>> {
        if self.state != State::Up || self.requests.len() >= REQUESTS_MAX {
            return Err(edits);
        }
        let written = edits.iter().filter_map(|edit| match edit {
            Edit::Set(name, value) => Some((*name, value.as_slice())),
            Edit::Remove(_) => None,
        });
        let headers = target.headers().into_iter().chain(written);
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
        };
        let until = self.now + self.patience + SLACK_TICKS;
        let asked = Request::Asked {
            until,
            edits,
            wants_report: target.wants_report,
        };
        self.requests.insert(id, asked);
        Ok(message.encode_to_vec())
    }

    /// What watches a request's answer, which has begun to come; `None` when the request was not decided here.
    pub fn answer(&mut self, id: u32) -> Option<Box<ResponseFlow>> {
        match self.requests.get_mut(&id)? {
            Request::Asked { .. } => None,
            Request::Decided(flow) | Request::Outlived(flow) => flow.take(),
        }
    }

    /// A request has ended, as `outcome` says it or in a way that nobody knows.
    pub fn ended(&mut self, id: u32, outcome: Option<String>) -> Option<Effect> {
        if let Request::Outlived(_) = self.requests.remove(&id)? {
            return None;
        }
        let outcome = outcome.unwrap_or_default().into_bytes();
        self.ends.push(RequestEnd {
            request_id: id,
            outcome,
        });
        match self.ends.len() {
            1 => Some(Effect::Soon),
            ENDS_ENOUGH.. => self.ends(),
            _ => None,
        }
    }

    /// Tells the ends that wait to be told.
    pub fn ends(&mut self) -> Option<Effect> {
        let ends = mem::take(&mut self.ends);
        let message = ClientMessage {
            requests: Vec::new(),
            ends,
        };
        (!message.ends.is_empty()).then(|| Effect::Send(message.encode_to_vec()))
    }

    /// Time passes.
    pub fn tick(&mut self) -> Vec<Effect> {
        self.now += 1;
        match self.state {
            State::Down { until } if until <= self.now => return vec![Effect::Open],
            State::Down { .. } => return Vec::new(),
            State::Opening | State::Up | State::Silent | State::Leaving => {}
        }
        let is_late = |request: &Request| matches!(request, Request::Asked { until, .. } if *until <= self.now);
        let late = self.requests.iter().filter(|(_, request)| is_late(request));
        let late: Vec<u32> = late.map(|(id, _)| *id).collect();
        let mut effects = Vec::new();
        for id in late {
            if let Some(Request::Asked { edits, .. }) = self.requests.remove(&id) {
                effects.push(Effect::LetGo(id, undecided(id, edits)));
                let outcome = Vec::new();
                self.ends.push(RequestEnd {
                    request_id: id,
                    outcome,
                });
                self.given_up += 1;
            }
        }
        if !effects.is_empty() && self.state == State::Up {
            self.state = State::Silent;
        }
        effects.extend(self.ends());
        effects
    }

    /// The stream was opened, or could not be.
    pub fn opened(&mut self, is_open: bool) {
        if is_open {
            self.state = State::Opening;
        } else {
            self.rest();
        }
    }

    /// The service has said something; `now` is when what it let go begins to go up.
    pub fn heard(&mut self, message: &[u8], now: Nanoseconds) -> Vec<Effect> {
        let Ok(ServerMessage { responses, go_away }) = ServerMessage::decode(message) else {
            // Another protocol: it will not get better by the next message.
            let mut effects = self.closed();
            effects.push(Effect::HangUp);
            return effects;
        };
        if go_away.is_some() {
            self.state = State::Leaving;
        } else if self.state != State::Leaving {
            self.state = State::Up;
            self.pause = PAUSE_TICKS_MIN;
        }
        let effects = responses
            .into_iter()
            .filter_map(|answer| self.answered(answer, now));
        effects.collect()
    }

    /// The stream has ended.
    pub fn closed(&mut self) -> Vec<Effect> {
        self.rest();
        self.ends.clear();
        let requests = mem::take(&mut self.requests);
        let mut effects = Vec::new();
        for (id, request) in requests {
            match request {
                Request::Asked { edits, .. } => {
                    effects.push(Effect::LetGo(id, edits));
                    self.given_up += 1;
                }
                Request::Decided(flow) | Request::Outlived(flow) => {
                    self.requests.insert(id, Request::Outlived(flow));
                }
            }
        }
        effects
    }

    /// How many requests were let go without the service's answer since this was last asked.
    pub fn take_given_up(&mut self) -> u64 {
        mem::take(&mut self.given_up)
    }

    fn rest(&mut self) {
        self.state = State::Down {
            until: self.now + self.pause,
        };
        self.pause = (self.pause * 2).min(PAUSE_TICKS_MAX);
    }

    fn answered(
        &mut self,
        DecisionResponse {
            request_id: id,
            action,
        }: DecisionResponse,
        now: Nanoseconds,
    ) -> Option<Effect> {
        let request = self.requests.get_mut(&id)?;
        let Request::Asked {
            until,
            edits,
            wants_report,
        } = request
        else {
            return None;
        };
        match action {
            Some(Action::Wait(wait)) => {
                let ticks = Duration::from_millis(wait.timeout_ms.into()).as_nanos();
                let ticks = u64::try_from(ticks.div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX);
                *until = self.now.saturating_add(ticks).saturating_add(SLACK_TICKS);
                None
            }
            Some(Action::Route(mut route)) => {
                let decision = mem::take(&mut route.decision).into_bytes();
                let told = (self.tells_decisions && !decision.is_empty()).then_some(decision);
                let wants_report = *wants_report;
                let edits = decided(id, mem::take(edits), route, !wants_report);
                let flow = ResponseFlow::sent(now, wants_report, told);
                *request = Request::Decided(Some(Box::new(flow)));
                Some(Effect::LetGo(id, edits))
            }
            Some(Action::ImmediateResponse(immediate)) => {
                self.requests.remove(&id);
                Some(Effect::Reply(id, immediate))
            }
            // What is not known here is a newer service's: external processing will know what to do.
            Some(Action::ExtProcFallback(_)) | None => {
                let edits = mem::take(edits);
                self.requests.remove(&id);
                Some(Effect::LetGo(id, edits))
            }
        }
    }
}

#[cfg(test)]
mod tests;

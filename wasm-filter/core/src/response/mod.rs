//! An answer on its way back becomes one outcome: a trailer for the external processor, or a message on the decision stream.
//!
//! It tells the service how the request ended: status, time to the first byte, token counts, the engine's
//! load and the endpoint that served. No byte of the answer itself has to cross the service's connection, so an
//! output token costs it nothing.
//!
//! Answers pass unchanged and without delay. Of a body only a bounded tail is looked at, and the beginning once, before
//! the tail forgets it: streams of the messages API tell the prompt's tokens there. Nothing is looked at of a body whose
//! bytes say nothing (compressed, an error, another type). An answer without a body gets no trailer: a proxy cannot add
//! one there, and the end of the request tells the service enough.

pub(crate) mod orca;
mod tail;
mod usage;

use std::ops::Range;

use isotherm_fingerprint::names;
use isotherm_fingerprint::outcome::{LoadReport, Outcome};

use crate::ResponseConfig;
use crate::headers::{self, Edit, Headers};
use tail::Tail;
use usage::Usage;

/// The type of an answer that comes token by token.
const EVENT_STREAM: &str = "text/event-stream";
/// How the decision begins to send a request to another region.
const ELSEWHERE: &[u8] = b"region=";
/// The longest decision of the next service that is told, in bytes: three regions decide at most.
const NEXT_BYTES_MAX: usize = 2_048;

/// A moment on the host's clock, in nanoseconds. Only differences count.
pub type Nanoseconds = u64;

/// One request and its answer on their way through the filter.
#[derive(Debug)]
pub struct ResponseFlow {
    /// When the request had gone up, body and all; or so far, its headers.
    sent_at: Nanoseconds,
    first_byte_at: Option<Nanoseconds>,
    /// Whether the client has asked for the engine's load itself, and so shall get it.
    report_is_the_clients: bool,
    /// What the client is told of the decision.
    decision: Option<Vec<u8>>,
    status: Option<u16>,
    is_stream: bool,
    load: Option<LoadReport>,
    /// What the beginning of a long answer told; `None` while the tail still has it.
    beginning: Option<Usage>,
    /// `None` when nothing in the body is worth a look.
    tail: Option<Tail>,
}

impl ResponseFlow {
    /// A request goes up whose headers are known. `decision` is what its client is to be told of it.
    #[must_use]
    pub(crate) fn sent(
        now: Nanoseconds,
        report_is_the_clients: bool,
        decision: Option<Vec<u8>>,
    ) -> Self {
        Self {
            sent_at: now,
            first_byte_at: None,
            report_is_the_clients,
            decision,
            status: None,
            is_stream: false,
            load: None,
            beginning: None,
            tail: None,
        }
    }

    /// A request goes up. Returns the header that it is to get.
    ///
    /// One or two of its headers are asked for, since a proxy that hands over all of them copies all of them.
    #[must_use]
    pub fn start(
        config: ResponseConfig,
        header: impl Fn(&'static str) -> Option<Vec<u8>>,
        now: Nanoseconds,
    ) -> (Self, Option<(&'static str, &'static str)>) {
        let report_is_the_clients = header(orca::FORMAT_HEADER).is_some();
        let decision = config.decision.then(|| header(names::DECISION)).flatten();
        let flow = Self::sent(now, report_is_the_clients, decision);
        let asks = !report_is_the_clients;
        (flow, asks.then_some((orca::FORMAT_HEADER, orca::FORMAT)))
    }

    /// The request's body has gone up to its end: an engine starts no sooner.
    pub fn request_ended(&mut self, now: Nanoseconds) {
        if self.first_byte_at.is_none() {
            self.sent_at = now;
        }
    }

    /// The answer's headers.
    #[must_use]
    pub fn headers(&mut self, headers: &Headers) -> Vec<Edit> {
        self.status = headers::get(headers, ":status")
            .and_then(|status| str::from_utf8(status).ok())
            .and_then(|status| status.parse().ok());
        self.load = headers::get(headers, orca::REPORT_HEADER).and_then(orca::parse);
        let media_type = headers::media_type(headers);
        self.is_stream = media_type.as_deref() == Some(EVENT_STREAM);
        let may_tell = may_tell_usage(self.status, media_type.as_deref(), headers);
        self.tail = may_tell.then(Tail::default);

        let mut edits = Vec::new();
        if !self.report_is_the_clients && headers::get(headers, orca::REPORT_HEADER).is_some() {
            edits.push(Edit::Remove(orca::REPORT_HEADER.to_owned()));
        }
        let decision = self.decision.take();
        edits.extend(
            decision.map(|decision| Edit::Set(names::DECISION, followed(decision, headers))),
        );
        edits
    }

    /// A piece of the answer's body has come, of this size. Returns which of its bytes [`Self::body`] wants to see.
    ///
    /// `now` is only asked for the first byte.
    #[must_use]
    pub fn body_came(
        &mut self,
        piece_bytes: usize,
        now: impl FnOnce() -> Nanoseconds,
    ) -> Range<usize> {
        if piece_bytes > 0 && self.first_byte_at.is_none() {
            self.first_byte_at = Some(now());
        }
        match self.tail {
            Some(_) => Tail::range_of(piece_bytes),
            None => 0..0,
        }
    }

    /// The bytes of the piece that were wanted.
    pub fn body(&mut self, bytes: &[u8]) {
        if let Some(tail) = &mut self.tail {
            if self.beginning.is_none() && tail.drops_for(bytes.len()) {
                self.beginning = Some(usage::find(tail.bytes()).unwrap_or_default());
            }
            tail.push(bytes);
        }
    }

    /// How it went, at the end of the answer; `None` for an answer that never had headers.
    #[must_use]
    pub fn outcome(&self, served: Option<String>) -> Option<Outcome> {
        let usage = self
            .tail
            .as_ref()
            .and_then(|tail| usage::find(tail.bytes()))
            .unwrap_or_default()
            .with_prompt_of(self.beginning);
        Some(Outcome {
            status: self.status?,
            ttft_us: self
                .first_byte_at
                .map(|at| at.saturating_sub(self.sent_at) / 1000),
            is_stream: self.is_stream,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            load: self.load,
            served,
        })
    }
}

/// Whether the end of this answer's body may tell how many tokens it took.
fn may_tell_usage(status: Option<u16>, media_type: Option<&str>, headers: &Headers) -> bool {
    let succeeded = status.is_some_and(|status| (200..300).contains(&status));
    let of_a_type_that_has_it = media_type
        .is_some_and(|media_type| headers::is_json(media_type) || media_type == EVENT_STREAM);
    succeeded && of_a_type_that_has_it && !headers::is_encoded(headers)
}

/// What this service decided, and after it what the next one did: the region that the request went to, or this one's own
/// again when it came back. A replica decides nothing, so nothing that an engine writes under this name is passed on.
fn followed(mut decision: Vec<u8>, headers: &Headers) -> Vec<u8> {
    let next = headers::get(headers, names::DECISION)
        .filter(|next| decision.starts_with(ELSEWHERE) && next.len() <= NEXT_BYTES_MAX);
    if let Some(next) = next {
        decision.extend_from_slice(b", ");
        decision.extend_from_slice(next);
    }
    decision
}

#[cfg(test)]
mod tests;

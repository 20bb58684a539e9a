//! Turns a response into one outcome: a trailer for the external processor, or a message on the decision stream.
//!
//! The outcome has status, time to the first token, token counts, the engine's load, the id of a response that the engine may store,
//! and the endpoint that responded.
//!
//! Responses pass unchanged and without delay. The flow reads a bounded tail of a stream, and its beginning once, before the
//! tail drops it: streams of Anthropic's API report the prompt tokens there. It reads all of a whole response, and keeps next to
//! nothing of it. The flow reads nothing of a compressed body, an error or another media type. A response without a body gets
//! no trailer, because a proxy cannot add one.

mod error_event;
mod id;
mod opening;
pub mod orca;
mod tail;
mod usage;

use std::ops::Range;

use isotherm_fingerprint::names;
use isotherm_fingerprint::outcome::{LoadReport, Outcome};

use crate::ResponseConfig;
use crate::headers::{self, HeaderEdit, Headers};
use id::ResponseId;
use opening::OpeningEvents;
use tail::BodyTail;
use usage::{Usage, UsageScanner};

/// The media type of a streamed response.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// The details that Envoy gives to a response of an endpoint.
const VIA_UPSTREAM: &str = "via_upstream";
/// The start of a decision that forwards a request to another region.
const FORWARDED: &[u8] = b"region=";
/// The longest decision of the next service that the client sees, in bytes: at most three regions decide.
const NEXT_DECISION_BYTES_MAX: usize = 2_048;

/// A time of the host's clock in nanoseconds. Only differences matter.
pub type Nanoseconds = u64;

/// The state of a response in the filter.
#[derive(Debug)]
pub struct ResponseFlow {
    /// The time at which the request was sent, or its headers until its end is.
    sent_at: Nanoseconds,
    /// The time of the first token; of the first byte, where the flow reads no stream.
    first_token_at: Option<Nanoseconds>,
    /// The time of the last piece of a stream without a token yet, and that stream's opening.
    opening: Option<(Nanoseconds, OpeningEvents)>,
    /// Whether the client asked for the engine's load report, which then stays in the response.
    client_wants_report: bool,
    /// The decision that the client sees.
    decision: Option<Vec<u8>>,
    /// The replica that the service selected, as `ip:port`, where the filter knows it.
    selected: Option<Box<str>>,
    status: Option<u16>,
    is_stream: bool,
    /// Whether the response has a status of success, and a type of which no answer is.
    is_page: bool,
    load: Option<LoadReport>,
    /// The usage at the beginning of a long stream; `None` while the tail has the beginning.
    first_usage: Option<Usage>,
    id: ResponseId,
    /// Whether [`Self::take_new_id`] has returned the id.
    is_id_taken: bool,
    /// `None` when the body cannot contain usage.
    reader: Option<UsageReader>,
}

/// The reader of a body that may contain usage.
#[derive(Debug)]
enum UsageReader {
    Stream(BodyTail),
    Whole(UsageScanner),
}

impl ResponseFlow {
    /// A flow for a request that is sent now. `decision` is the header value for the client.
    #[must_use]
    pub fn sent(now: Nanoseconds, client_wants_report: bool, decision: Option<Vec<u8>>) -> Self {
        Self {
            sent_at: now,
            first_token_at: None,
            opening: None,
            client_wants_report,
            decision,
            selected: None,
            status: None,
            is_stream: false,
            is_page: false,
            load: None,
            first_usage: None,
            id: ResponseId::default(),
            is_id_taken: false,
            reader: None,
        }
    }

    /// A flow for a request that is sent now, and the header to add to the request.
    ///
    /// `header` looks up single headers, because a proxy copies all headers to pass all of them.
    #[must_use]
    pub fn new(
        config: ResponseConfig,
        header: impl Fn(&'static str) -> Option<Vec<u8>>,
        now: Nanoseconds,
    ) -> (Self, Option<(&'static str, &'static str)>) {
        let client_wants_report = header(orca::FORMAT_HEADER).is_some();
        let decision = config.decision.then(|| header(names::DECISION)).flatten();
        let mut flow = Self::sent(now, client_wants_report, decision);
        let destination = header(names::DESTINATION);
        if let Some(destination) = destination.and_then(|value| String::from_utf8(value).ok()) {
            flow.select(&destination);
        }
        let report = (!client_wants_report).then_some((orca::FORMAT_HEADER, orca::FORMAT));
        (flow, report)
    }

    /// Names the endpoints of the request: the selected replica and its fallbacks, separated by commas.
    pub fn select(&mut self, destination: &str) {
        self.selected = destination.split(',').next().map(Into::into);
    }

    /// Whether another endpoint than the selected replica responded.
    #[must_use]
    pub fn is_elsewhere(&self, upstream: Option<&str>) -> bool {
        let selected = self.selected.as_deref();
        selected
            .zip(upstream)
            .is_some_and(|(one, other)| one != other)
    }

    /// Records the end of the request's body: an engine starts no sooner.
    pub fn end_request(&mut self, now: Nanoseconds) {
        if self.first_token_at.is_none() {
            self.sent_at = now;
        }
    }

    /// Records that the response begins, for a reader that gets no bodies. The headers of a stream come before its first
    /// token, so they tell nothing of it.
    pub fn begin(&mut self, now: Nanoseconds) {
        if !self.is_stream {
            self.first_token_at = Some(now);
        }
    }

    /// Reads the headers of the response and returns their changes.
    #[must_use]
    pub fn headers(&mut self, headers: &Headers) -> Vec<HeaderEdit> {
        self.status = headers::get(headers, ":status")
            .and_then(|status| str::from_utf8(status).ok()?.parse().ok());
        let report = headers::get(headers, orca::REPORT_HEADER);
        self.load = report.and_then(orca::parse);
        let media_type = headers::media_type(headers);
        self.is_stream = media_type.as_deref() == Some(EVENT_STREAM);
        self.is_page = is_success(self.status)
            && media_type
                .as_deref()
                .is_some_and(|media_type| !is_answer(media_type));
        let may_contain_usage = may_contain_usage(self.status, media_type.as_deref(), headers);
        self.reader = may_contain_usage.then(|| match self.is_stream {
            true => UsageReader::Stream(BodyTail::default()),
            false => UsageReader::Whole(UsageScanner::default()),
        });

        let mut edits = Vec::new();
        if !self.client_wants_report && report.is_some() {
            edits.push(HeaderEdit::Remove(orca::REPORT_HEADER.to_owned()));
        }
        if let Some(decision) = self.decision.take() {
            let value = append_next_decision(decision, headers);
            edits.push(HeaderEdit::Set(names::DECISION, value));
        }
        edits
    }

    /// Records a piece of the body and returns the range of its bytes that [`Self::feed`] needs.
    ///
    /// `now` is called until the first token only.
    #[must_use]
    pub fn body(&mut self, piece_bytes: usize, now: impl FnOnce() -> Nanoseconds) -> Range<usize> {
        if piece_bytes > 0 && self.first_token_at.is_none() {
            if self.is_stream && self.reader.is_some() {
                let opening = self.opening.take().unwrap_or_default();
                self.opening = Some((now(), opening.1));
                return 0..piece_bytes;
            }
            self.first_token_at = Some(now());
        }
        match self.reader {
            Some(UsageReader::Stream(_)) => BodyTail::range_of(piece_bytes),
            Some(UsageReader::Whole(_)) => 0..piece_bytes,
            None => 0..0,
        }
    }

    /// Whether the first token of a streamed response came.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.is_stream && self.first_token_at.is_some()
    }

    /// The id of a response that the engine may store, once, as soon as it was read.
    pub fn take_new_id(&mut self) -> Option<&str> {
        let id = self.id.get().filter(|_| !self.is_id_taken)?;
        self.is_id_taken = true;
        Some(id)
    }

    /// Reads the requested bytes of a piece.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.reader.is_some() {
            self.id.feed(bytes);
        }
        if let Some((at, opening)) = &mut self.opening
            && !bytes.is_empty()
            && opening.has_token(bytes)
        {
            self.first_token_at = Some(*at);
            self.opening = None;
        }
        match &mut self.reader {
            Some(UsageReader::Stream(tail)) => {
                if self.first_usage.is_none() && tail.drops_for(bytes.len()) {
                    self.first_usage = Some(usage::find(tail.bytes()).unwrap_or_default());
                }
                tail.push(bytes);
            }
            Some(UsageReader::Whole(scanner)) => scanner.feed(bytes),
            None => {}
        }
    }

    /// Whether the first event of a stream is an error: engines report one behind a status of success.
    fn begins_with_error(&self) -> bool {
        match &self.reader {
            Some(UsageReader::Stream(tail)) if self.first_usage.is_none() => {
                error_event::is_first(tail.bytes())
            }
            Some(_) | None => false,
        }
    }

    /// The outcome at the end of the response; `None` for a response without headers.
    #[must_use]
    pub fn outcome(&self, upstream: Option<String>) -> Option<Outcome> {
        let usage = match &self.reader {
            Some(UsageReader::Stream(tail)) => usage::find(tail.bytes()),
            Some(UsageReader::Whole(scanner)) => scanner.usage(),
            None => None,
        };
        let usage = usage.unwrap_or_default().with_prompt_of(self.first_usage);
        // A stream that ends in its opening has no token; its last piece stands for one.
        let opened_at = self.opening.as_ref().map(|(at, _)| *at);
        let ttft = self
            .first_token_at
            .or(opened_at)
            .map(|at| at.saturating_sub(self.sent_at) / 1000);
        Some(Outcome {
            status: self.status?,
            ttft_us: ttft,
            is_stream: self.is_stream,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            load: self.load,
            response_id: self.id.get().map(str::to_owned),
            upstream,
            attempts: None,
            cluster: None,
            is_broken: false,
            is_timeout: false,
            is_unsent: false,
            is_error: self.is_page || self.begins_with_error(),
        })
    }
}

/// Adds to an outcome how the proxy came to respond itself, by the details that Envoy gives to the end of a response.
pub fn explain_local(outcome: &mut Outcome, details: &str) {
    outcome.is_broken = outcome.status >= 500 && is_broken(details);
    outcome.is_timeout = is_timeout(details);
    outcome.is_unsent = outcome.upstream.is_none() && details != VIA_UPSTREAM;
}

/// Whether a replica broke on its request: the connection ended after the replica got the request. A replica that no connection
/// reaches has not read the request.
fn is_broken(details: &str) -> bool {
    let reason = details.strip_prefix("upstream_reset_before_response_started{");
    reason.is_some_and(|reason| {
        ["connection_termination", "remote_reset", "protocol_error"]
            .iter()
            .any(|broken| reason.starts_with(broken))
    })
}

/// Whether a timeout of the proxy ended a request.
fn is_timeout(details: &str) -> bool {
    [
        "response_timeout",
        "upstream_response_timeout",
        "upstream_per_try_timeout",
        "upstream_per_try_idle_timeout",
        "upstream_max_stream_duration_reached",
        "stream_idle_timeout",
        "request_overall_timeout",
        "max_duration_timeout",
    ]
    .contains(&details)
}

fn may_contain_usage(status: Option<u16>, media_type: Option<&str>, headers: &Headers) -> bool {
    is_success(status) && media_type.is_some_and(is_answer) && !headers::is_encoded(headers)
}

fn is_success(status: Option<u16>) -> bool {
    status.is_some_and(|status| (200..300).contains(&status))
}

/// Whether an answer may have this type.
fn is_answer(media_type: &str) -> bool {
    headers::is_json(media_type) || media_type == EVENT_STREAM
}

/// Appends to a decision that forwards the request the decision of the next service: the other region's, or this region's
/// own after the request came back. A replica decides nothing, so the header of an engine is dropped.
fn append_next_decision(mut decision: Vec<u8>, headers: &Headers) -> Vec<u8> {
    let next = headers::get(headers, names::DECISION)
        .filter(|next| decision.starts_with(FORWARDED) && next.len() <= NEXT_DECISION_BYTES_MAX);
    if let Some(next) = next {
        decision.extend_from_slice(b", ");
        decision.extend_from_slice(next);
    }
    decision
}

#[cfg(test)]
mod tests;

//! An external processing stream: the life of one of Envoy's requests.
//!
//! ```text
//! headers ─┬─ fingerprint, no body, or no bodies from the gateway ─┬─ decide ─ reply ─ bodies pass ─ outcome
//!          └─ hold the body, to its end or a limit ────────────────┴─ late: 408
//! ```
//! The HTTP/2 connection polls the stream, which has no task and no channel of its own. Ten thousand queued requests are
//! therefore ten thousand small structs. The end of the stream drops the [`RequestLifecycle`], which releases the request.
//!
//! While a request is queued, further messages of Envoy stay where they are (HTTP/2 flow control holds them back), except
//! for one, which has to be read to see the end of the stream.
//!
//! A client that has the whole response may close at once. Envoy then resets the stream right after the message with the
//! outcome, before the service has read it. The stream therefore looks for that message once more when it is dropped.

mod outcome;
mod request;

use std::collections::VecDeque;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::HeaderMap;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::mode::StreamModes;
use super::prompt::{HeldBody, PromptReader};
use super::reader::ResponseReader;
use super::response::{self, RouteForm};
use super::settings::Settings;
use crate::frontends::request::{ListenerKind, RequestContext, RequestHead, RequestLifecycle};
use crate::pool::PoolDecision;

/// The messages that Envoy sends on one stream.
pub(super) trait Inbound:
    Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin + 'static
{
}

impl<I> Inbound for I where
    I: Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin + 'static
{
}

/// A stream of Envoy, for one request.
pub(super) struct RequestStream<I: Inbound> {
    lifecycle: RequestLifecycle,
    settings: Arc<Settings>,
    listener: ListenerKind,
    inbound: I,
    /// Whether the gateway has closed its side.
    has_closed: bool,
    modes: StreamModes,
    /// The request whose body is read.
    reading: Option<Box<(RequestHead, PromptReader)>>,
    /// Yields the decision on a queued request.
    decision: Option<oneshot::Receiver<PoolDecision>>,
    /// The parts of the reply besides the decision.
    form: RouteForm,
    /// The body that was read, until the decision.
    held: Option<HeldBody>,
    /// Whether the request has ended, and whether with trailers.
    has_ended: bool,
    has_trailers: bool,
    response: Option<ResponseReader>,
    /// Changes when a replica was found to hang; present where the gateway shows when the response begins.
    hangs: Option<watch::Receiver<u64>>,
    /// The message that was read while the request was queued.
    held_back: Option<ProcessingRequest>,
    /// Replies that are ready.
    outbox: VecDeque<ProcessingResponse>,
    /// Whether the stream ends with the last reply.
    is_over: bool,
}

impl<I: Inbound> RequestStream<I> {
    /// Returns the replies to the messages of `inbound`.
    pub(super) fn replies(
        context: Arc<RequestContext>,
        settings: Arc<Settings>,
        listener: ListenerKind,
        inbound: I,
    ) -> impl Stream<Item = Result<ProcessingResponse, Status>> + Send + 'static {
        let stream = Self {
            lifecycle: RequestLifecycle::new(context),
            settings,
            listener,
            inbound,
            has_closed: false,
            modes: StreamModes::default(),
            reading: None,
            decision: None,
            form: RouteForm::default(),
            held: None,
            has_ended: false,
            has_trailers: false,
            response: None,
            hangs: None,
            held_back: None,
            outbox: VecDeque::new(),
            is_over: false,
        };
        futures_util::stream::unfold(stream, |mut stream| async move {
            let reply = stream.next_reply().await?;
            Some((Ok(reply), stream))
        })
    }

    /// Returns the next message for Envoy; `None` at the end of the stream.
    async fn next_reply(&mut self) -> Option<ProcessingResponse> {
        loop {
            if let Some(reply) = self.outbox.pop_front() {
                return Some(reply);
            }
            if self.is_over {
                return None;
            }
            if self.decision.is_some() {
                self.await_decision().await?;
            } else {
                self.advance().await?;
            }
        }
    }

    /// Returns Envoy's next message; `None` once the stream has ended. The way it ended has no meaning: Envoy ends the
    /// stream alike when the client leaves and when a response without outcome ends.
    async fn receive(&mut self) -> Option<ProcessingRequest> {
        match self.held_back.take() {
            Some(message) => Some(message),
            None if self.has_closed => None,
            None => self.inbound.next().await?.ok(),
        }
    }

    /// Handles Envoy's next message, or the news that a replica hangs; `None` once the stream has ended.
    async fn advance(&mut self) -> Option<()> {
        let reading = self.reading.as_ref();
        if let Some(deadline) = reading.and_then(|reading| reading.1.deadline()) {
            return self.advance_body(deadline).await;
        }
        let is_waiting = self.held_back.is_none() && !self.has_closed;
        let Some(hangs) = self.hangs.as_mut().filter(|_| is_waiting) else {
            let message = self.receive().await?;
            self.handle(message);
            return Some(());
        };
        tokio::select! {
            biased;
            message = self.inbound.next() => {
                let message = message?.ok()?;
                self.handle(message);
            }
            changed = hangs.changed() => match changed {
                Ok(()) => self.end_if_hung(),
                Err(_) => self.hangs = None,
            },
        }
        Some(())
    }

    /// Handles Envoy's next message on a request whose body is read, or responds to the client when the body is late.
    async fn advance_body(&mut self, deadline: Instant) -> Option<()> {
        match timeout_at(deadline, self.receive()).await {
            Ok(message) => self.handle(message?),
            Err(_) => {
                self.reading = None;
                let reply = self.lifecycle.reject_late_body();
                self.reply(reply);
            }
        }
        Some(())
    }

    /// Responds to the client if the replica of the request hangs and the response has not begun.
    fn end_if_hung(&mut self) {
        let is_awaited = |reader: &ResponseReader| reader.outcome().is_none();
        if self.response.as_ref().is_some_and(is_awaited)
            && let Some((_, reply)) = self.lifecycle.take_abandonment()
        {
            self.outbox.push_back(response::immediate(&reply));
            self.is_over = true;
        }
    }

    fn handle(&mut self, message: ProcessingRequest) {
        if let Some(config) = &message.protocol_config {
            self.modes = StreamModes::of(config);
        }
        // Envoy ignores replies in this mode, so a decision would have no effect.
        if message.observability_mode {
            return;
        }
        let metadata = message.metadata_context;
        let attributes = message.attributes;
        match message.request {
            Some(Request::RequestHeaders(message)) => self.headers(message, metadata.as_ref()),
            Some(Request::RequestBody(piece)) => {
                let metrics = &self.lifecycle.context().metrics;
                metrics.request_body_bytes.inc_by(piece.body.len() as u64);
                self.body(piece);
            }
            Some(Request::RequestTrailers(_)) => self.trailers(),
            Some(Request::ResponseHeaders(message)) => {
                self.response_headers(message, metadata.as_ref(), &attributes);
            }
            Some(Request::ResponseBody(piece)) => {
                let metrics = &self.lifecycle.context().metrics;
                metrics.response_body_bytes.inc_by(piece.body.len() as u64);
                self.response_body(piece);
            }
            Some(Request::ResponseTrailers(message)) => {
                self.finish(message.trailers.as_ref());
                self.outbox.push_back(response::response_trailers());
            }
            None => {}
        }
    }

    /// Waits for the decision on a queued request, or for the client to leave.
    async fn await_decision(&mut self) -> Option<()> {
        let receiver = self.decision.as_mut()?;
        let decision = loop {
            tokio::select! {
                // The decision comes first, so that a dispatched request is not taken for a queued one.
                biased;
                decision = &mut *receiver => break decision,
                message = self.inbound.next(), if self.held_back.is_none() && !self.has_closed => match message {
                    Some(message) => self.held_back = Some(message.ok()?),
                    // A gateway that announces no modes closes its side early, and waits for the reply.
                    None if !self.modes.is_announced => self.has_closed = true,
                    // At the end of the stream, dropping it releases the request.
                    None => return None,
                }
            }
        };
        self.decision = None;
        let reply = self.lifecycle.resolve(decision)?;
        self.reply(reply);
        Some(())
    }
}

impl<I: Inbound> Drop for RequestStream<I> {
    fn drop(&mut self) {
        // Reads the messages that have arrived, up to the end of the stream.
        while self.lifecycle.is_in_flight()
            && let Some(Some(Ok(message))) = self.inbound.next().now_or_never()
        {
            self.handle(message);
            self.outbox.clear();
        }
        self.finish_with_stream();
    }
}

fn decode_headers(headers: Option<HeaderMap>) -> Vec<(String, Vec<u8>)> {
    let headers = headers.map(|map| map.headers).unwrap_or_default();
    let headers = headers.into_iter().map(|header| {
        let value = response::into_value(header.value, header.raw_value);
        (header.key, value)
    });
    headers.collect()
}

#[cfg(test)]
mod tests;

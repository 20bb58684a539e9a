//! One request of Envoy's, from its headers to the end of its response: one gRPC stream.
//!
//! The exchange is polled by the HTTP/2 connection itself; it has no task and no channel of its own, so that ten
//! thousand waiting requests are ten thousand small structures and nothing else. Whatever ends the stream drops the
//! exchange, and with it the [`RequestLifecycle`], which gives the request's place back.
//!
//! While a request waits, what Envoy sends meanwhile is left where it is (HTTP/2 flow control holds it back), apart
//! from one message, which has to be read to see the stream's end.
//!
//! A client that has the whole body of its response may close at once, and then Envoy resets the stream right behind
//! the message with the outcome, which nobody has read yet. So the last thing that an exchange does is to look whether
//! that message is there (one outcome in ten was lost before it did).

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::HeaderMap;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
};
use futures_util::{FutureExt, Stream, StreamExt};
use isotherm_fingerprint::names;
use tokio::sync::oneshot;
use tonic::Status;

use super::super::request::head::{self, RequestHead};
use super::super::request::reply::Reply;
use super::super::request::{Context, Listener};
use super::super::request::{Placed, RequestLifecycle};
use super::response;
use crate::pool::PoolDecision;

/// `FULL_DUPLEX_STREAMED` of Envoy's `ProcessingMode.BodySendMode`.
const FULL_DUPLEX: i32 = 4;

/// What Envoy sends on one stream.
pub(super) trait Inbound:
    Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin + 'static
{
}

impl<I> Inbound for I where
    I: Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin + 'static
{
}

/// One request of Envoy's.
pub(super) struct Exchange<I: Inbound> {
    lifecycle: RequestLifecycle,
    listener: Listener,
    inbound: I,
    /// What it waits for.
    verdict: Option<oneshot::Receiver<PoolDecision>>,
    /// Read while the request waited; to be answered next.
    held_back: Option<ProcessingRequest>,
    /// Envoy sends bodies in full-duplex mode: of requests, of responses.
    full_duplex: (bool, bool),
}

impl<I: Inbound> Exchange<I> {
    /// The answers to what comes in on `inbound`.
    pub(super) fn answers(
        context: Arc<Context>,
        listener: Listener,
        inbound: I,
    ) -> impl Stream<Item = Result<ProcessingResponse, Status>> + Send + 'static {
        let exchange = Self {
            lifecycle: RequestLifecycle::new(context),
            listener,
            inbound,
            verdict: None,
            held_back: None,
            full_duplex: (false, false),
        };
        futures_util::stream::unfold(exchange, |mut exchange| async move {
            let answer = exchange.next_answer().await?;
            Some((Ok(answer), exchange))
        })
    }

    /// The next message for Envoy; `None` at the end of the stream.
    async fn next_answer(&mut self) -> Option<ProcessingResponse> {
        if self.verdict.is_some() {
            return self.wait().await;
        }
        if self.lifecycle.is_answered() {
            return None;
        }
        loop {
            let message = self.receive().await?;
            if let Some(config) = &message.protocol_config {
                self.full_duplex = full_duplex(config);
            }
            // Envoy listens to no answer in this mode, so a decision would steer nothing.
            let listens = !message.observability_mode;
            let metadata = message.metadata_context;
            let Some(request) = message.request.filter(|_| listens) else {
                continue;
            };
            return Some(match request {
                Request::RequestHeaders(headers) => {
                    let head = RequestHead::read(
                        headers.headers.as_ref(),
                        metadata.as_ref(),
                        self.listener,
                        &self.lifecycle.context().metrics,
                    );
                    self.place(head)
                }
                Request::ResponseHeaders(_) => response::response_headers(),
                Request::RequestBody(body) => response::body(body, self.full_duplex.0, true),
                Request::ResponseBody(body) => response::body(body, self.full_duplex.1, false),
                Request::RequestTrailers(_) => response::request_trailers(),
                Request::ResponseTrailers(trailers) => self.outcome(trailers.trailers.as_ref()),
            });
        }
    }

    /// The next message of Envoy's; `None` once the stream has ended. How it did says nothing: to the client's going
    /// away, and to the end of a response that nobody reports on, Envoy puts the same end.
    async fn receive(&mut self) -> Option<ProcessingRequest> {
        match self.held_back.take() {
            Some(message) => Some(message),
            None => self.inbound.next().await?.ok(),
        }
    }

    fn place(&mut self, head: RequestHead) -> ProcessingResponse {
        let table = self.lifecycle.context().pool_registry.table();
        match self.lifecycle.place(head, &table) {
            Placed::Decided(reply) => self.reply(reply),
            Placed::Waits { timeout, verdict } => {
                self.verdict = Some(verdict);
                response::wait(timeout)
            }
        }
    }

    fn reply(&self, reply: Reply) -> ProcessingResponse {
        self.lifecycle.context().metrics.count_request(reply.kind());
        response::reply(reply)
    }

    /// Waits for the verdict, or for the client to go away.
    async fn wait(&mut self) -> Option<ProcessingResponse> {
        let waited_for = self.verdict.as_mut()?;
        let verdict = loop {
            tokio::select! {
                // The verdict first: a request that was sent on its way must not be taken for one that still waits.
                biased;
                verdict = &mut *waited_for => break verdict,
                message = self.inbound.next(), if self.held_back.is_none() => {
                    // The end of the stream, in either way: dropping the exchange frees the place.
                    self.held_back = Some(message?.ok()?);
                }
            }
        };
        self.verdict = None;
        let reply = self.lifecycle.told(verdict)?;
        Some(self.reply(reply))
    }

    /// The response has ended: what the filter says of it goes to the pool, and not to the client.
    fn outcome(&mut self, trailers: Option<&HeaderMap>) -> ProcessingResponse {
        let trailers = trailers.map_or(&[][..], |map| &map.headers);
        let trailer = trailers
            .iter()
            .find(|trailer| trailer.key == names::OUTCOME);
        // Nothing comes behind trailers, and a stream that ends together with the answer to them needs no reset of Envoy's,
        // which would cost both sides another write and another read.
        self.lifecycle.ended(trailer.map(head::bytes));
        response::response_trailers()
    }
}

impl<I: Inbound> Drop for Exchange<I> {
    fn drop(&mut self) {
        // Ends at the stream's end, which is there, or at the first message that is not.
        while self.lifecycle.is_sent()
            && let Some(Some(Ok(message))) = self.inbound.next().now_or_never()
        {
            if let Some(Request::ResponseTrailers(trailers)) = message.request {
                self.outcome(trailers.trailers.as_ref());
            }
        }
    }
}

fn full_duplex(config: &ProtocolConfiguration) -> (bool, bool) {
    (
        config.request_body_mode == FULL_DUPLEX,
        config.response_body_mode == FULL_DUPLEX,
    )
}

#[cfg(test)]
mod tests;

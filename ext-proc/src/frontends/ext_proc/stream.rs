//! An external processing stream: the life of one of Envoy's requests.
//!
//! The HTTP/2 connection polls the stream, which has no task and no channel of its own. Ten thousand queued requests are
//! therefore ten thousand small structs. The end of the stream drops the [`RequestLifecycle`], which releases the request.
//!
//! While a request is queued, further messages of Envoy stay where they are (HTTP/2 flow control holds them back), except
//! for one, which has to be read to see the end of the stream.
//!
//! A client that has the whole response may close at once. Envoy then resets the stream right after the message with the
//! outcome, before the service has read it. The stream therefore looks for that message once more when it is dropped.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, Metadata};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
};
use futures_util::{FutureExt, Stream, StreamExt};
use isotherm_fingerprint::names;
use tokio::sync::oneshot;
use tonic::Status;

use super::{response, subset};
use crate::frontends::request::reply::Reply;
use crate::frontends::request::{
    ListenerKind, RequestContext, RequestHead, RequestLifecycle, RouteStatus,
};
use crate::metrics::Metrics;
use crate::pool::PoolDecision;

/// `FULL_DUPLEX_STREAMED` of Envoy's `ProcessingMode.BodySendMode`.
const FULL_DUPLEX: i32 = 4;

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
    listener: ListenerKind,
    inbound: I,
    /// Yields the decision on a queued request.
    decision: Option<oneshot::Receiver<PoolDecision>>,
    /// The message that was read while the request was queued.
    held_back: Option<ProcessingRequest>,
    /// Whether Envoy sends request bodies and response bodies in full-duplex mode.
    full_duplex: (bool, bool),
}

impl<I: Inbound> RequestStream<I> {
    /// Returns the replies to the messages of `inbound`.
    pub(super) fn replies(
        context: Arc<RequestContext>,
        listener: ListenerKind,
        inbound: I,
    ) -> impl Stream<Item = Result<ProcessingResponse, Status>> + Send + 'static {
        let stream = Self {
            lifecycle: RequestLifecycle::new(context),
            listener,
            inbound,
            decision: None,
            held_back: None,
            full_duplex: (false, false),
        };
        futures_util::stream::unfold(stream, |mut stream| async move {
            let reply = stream.next_reply().await?;
            Some((Ok(reply), stream))
        })
    }

    /// Returns the next message for Envoy; `None` at the end of the stream.
    async fn next_reply(&mut self) -> Option<ProcessingResponse> {
        if self.decision.is_some() {
            return self.next_decision().await;
        }
        if self.lifecycle.is_closed() {
            return None;
        }
        loop {
            let message = self.receive().await?;
            if let Some(config) = &message.protocol_config {
                self.full_duplex = full_duplex(config);
            }
            // Envoy ignores replies in this mode, so a decision would have no effect.
            let expects_reply = !message.observability_mode;
            let metadata = message.metadata_context;
            let Some(request) = message.request.filter(|_| expects_reply) else {
                continue;
            };
            return Some(match request {
                Request::RequestHeaders(message) => {
                    let metrics = &self.lifecycle.context().metrics;
                    let (headers, metadata) = (message.headers.as_ref(), metadata.as_ref());
                    let head = read_head(headers, metadata, self.listener, metrics);
                    self.route(head)
                }
                Request::ResponseHeaders(_) => response::response_headers(),
                Request::RequestBody(body) => response::body(body, self.full_duplex.0, true),
                Request::ResponseBody(body) => response::body(body, self.full_duplex.1, false),
                Request::RequestTrailers(_) => response::request_trailers(),
                Request::ResponseTrailers(trailers) => self.finish(trailers.trailers.as_ref()),
            });
        }
    }

    /// Returns Envoy's next message; `None` once the stream has ended. The way it ended has no meaning: Envoy ends the
    /// stream alike when the client leaves and when a response without outcome ends.
    async fn receive(&mut self) -> Option<ProcessingRequest> {
        match self.held_back.take() {
            Some(message) => Some(message),
            None => self.inbound.next().await?.ok(),
        }
    }

    fn route(&mut self, head: RequestHead) -> ProcessingResponse {
        let table = self.lifecycle.context().pool_registry.table();
        match self.lifecycle.route(head, &table) {
            RouteStatus::Replied(reply) => self.encode(reply),
            RouteStatus::Queued { timeout, decision } => {
                self.decision = Some(decision);
                response::wait(timeout)
            }
        }
    }

    fn encode(&self, reply: Reply) -> ProcessingResponse {
        self.lifecycle.context().metrics.count_request(reply.kind());
        response::encode(reply)
    }

    /// Waits for the decision on a queued request, or for the client to leave.
    async fn next_decision(&mut self) -> Option<ProcessingResponse> {
        let receiver = self.decision.as_mut()?;
        let decision = loop {
            tokio::select! {
                // The decision comes first, so that a dispatched request is not taken for a queued one.
                biased;
                decision = &mut *receiver => break decision,
                message = self.inbound.next(), if self.held_back.is_none() => {
                    // At the end of the stream, dropping it releases the request.
                    self.held_back = Some(message?.ok()?);
                }
            }
        };
        self.decision = None;
        let reply = self.lifecycle.resolve(decision)?;
        Some(self.encode(reply))
    }

    /// Passes the outcome in the response trailers to the pool. The reply ends the stream: nothing follows trailers, and
    /// a stream that ends with its last reply needs no reset by Envoy.
    fn finish(&mut self, trailers: Option<&HeaderMap>) -> ProcessingResponse {
        let trailers = trailers.map_or(&[][..], |map| &map.headers);
        let mut trailers = trailers.iter();
        let outcome = trailers.find(|trailer| trailer.key == names::OUTCOME);
        self.lifecycle.finish(outcome.map(value));
        response::response_trailers()
    }
}

impl<I: Inbound> Drop for RequestStream<I> {
    fn drop(&mut self) {
        // Reads the messages that have arrived, up to the end of the stream.
        while self.lifecycle.is_in_flight()
            && let Some(Some(Ok(message))) = self.inbound.next().now_or_never()
        {
            if let Some(Request::ResponseTrailers(trailers)) = message.request {
                self.finish(trailers.trailers.as_ref());
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

/// Reads a request's headers, and the gateway's restriction to some replicas from the metadata.
fn read_head(
    headers: Option<&HeaderMap>,
    metadata: Option<&Metadata>,
    listener: ListenerKind,
    metrics: &Metrics,
) -> RequestHead {
    let headers = headers.map_or(&[][..], |map| &map.headers);
    let headers = headers.iter().map(|header| (&*header.key, value(header)));
    let mut head = RequestHead::read(headers, listener, metrics);
    head.request.subset = metadata.and_then(subset::read);
    head
}

/// Returns the value of a header. Envoy writes one of two members, depending on its version.
fn value(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() {
        header.value.as_bytes()
    } else {
        &header.raw_value
    }
}

#[cfg(test)]
mod tests;

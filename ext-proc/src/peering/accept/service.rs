//! The gRPC service `isotherm.peering.v1.Peering`: one [`InboundStream`] for each link of a caller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use isotherm_regions::{Incarnation, Session};
use prost::Message as _;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

use super::limiter::VerifiedConnection;
use super::{Caller, MessageHandler};
use crate::peering::convert::{decode, encode, is_within_bounds};
use crate::peering::wire::peering_server::{Peering, PeeringServer};
use crate::peering::wire::{Envelope, Payload};
use crate::peering::{LocalIdentity, MESSAGE_BYTES_MAX, Message, PROTOCOL_VERSION, hello};

/// The gRPC service.
pub(super) struct PeeringService<H> {
    identity: Arc<LocalIdentity>,
    hello_max: Duration,
    handler: Arc<H>,
    stopping: watch::Receiver<bool>,
}

impl<H: MessageHandler> PeeringService<H> {
    pub(super) fn server(
        identity: Arc<LocalIdentity>,
        hello_max: Duration,
        handler: Arc<H>,
        stopping: watch::Receiver<bool>,
    ) -> PeeringServer<Self> {
        let service = Self {
            identity,
            hello_max,
            handler,
            stopping,
        };
        PeeringServer::new(service)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Waits for the caller's Hello, which must name the region in the caller's certificate.
    async fn greet(
        &self,
        connection: Option<VerifiedConnection>,
        inbound: &mut Streaming<Envelope>,
    ) -> Result<Caller, Status> {
        let connection =
            connection.ok_or_else(|| Status::internal("the connection is not known"))?;
        if !connection.is_within_limit {
            let why = "the region has too many connections";
            return Err(Status::resource_exhausted(why));
        }
        let first = timeout(self.hello_max, inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no Hello"))??;
        let Some(Envelope {
            session,
            payload: Some(Payload::Hello(hello)),
        }) = first
        else {
            return Err(Status::invalid_argument("the first message is no Hello"));
        };
        if hello.protocol_version != PROTOCOL_VERSION {
            let why = format!("this service speaks version {PROTOCOL_VERSION} of the protocol");
            return Err(Status::failed_precondition(why));
        }
        // The region may have been removed since the handshake.
        let region = self.identity.allowed().get(&hello.region).ok_or_else(|| {
            let own = self.identity.region();
            Status::permission_denied(format!("the region is no peer of `{own}`"))
        })?;
        if connection.region.is_some_and(|verified| verified != region) {
            let why = "the certificate is another region's than the Hello";
            return Err(Status::permission_denied(why));
        }
        Ok(Caller {
            region,
            session: Session(session),
            incarnation: Incarnation(hello.incarnation),
        })
    }
}

#[tonic::async_trait]
impl<H: MessageHandler> Peering for PeeringService<H> {
    type StreamMessagesStream = BoxStream<'static, Result<Envelope, Status>>;

    async fn stream_messages(
        &self,
        request: Request<Streaming<Envelope>>,
    ) -> Result<Response<Self::StreamMessagesStream>, Status> {
        let connection = request.extensions().get::<VerifiedConnection>().cloned();
        let from = connection.as_ref().map(|connection| connection.from);
        let mut inbound = request.into_inner();
        let caller = match self.greet(connection, &mut inbound).await {
            Ok(caller) => caller,
            Err(status) => {
                tracing::debug!(?from, why = status.message(), "stream rejected");
                self.handler.on_rejected(from, status.message());
                return Err(status);
            }
        };
        self.handler.on_open(&caller);
        let stream = InboundStream {
            replies: [hello(&self.identity, caller.session)].into(),
            identity: Arc::clone(&self.identity),
            handler: Arc::clone(&self.handler),
            stopping: self.stopping.clone(),
            caller,
            inbound,
            has_ended: false,
        };
        let replies = stream::unfold(stream, |mut stream| async move {
            let reply = stream.next().await?;
            Some((reply, stream))
        });
        Ok(Response::new(replies.boxed()))
    }
}

/// A caller's stream.
struct InboundStream<H: MessageHandler> {
    identity: Arc<LocalIdentity>,
    handler: Arc<H>,
    stopping: watch::Receiver<bool>,
    caller: Caller,
    inbound: Streaming<Envelope>,
    replies: VecDeque<Envelope>,
    has_ended: bool,
}

impl<H: MessageHandler> InboundStream<H> {
    /// The next reply; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Result<Envelope, Status>> {
        loop {
            if self.has_ended {
                return None;
            }
            if let Some(reply) = self.replies.pop_front() {
                return Some(Ok(reply));
            }
            let envelope = tokio::select! {
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                envelope = self.inbound.message() => envelope.ok()??,
            };
            if self.identity.allowed().get(&self.caller.region).is_none() {
                return self.fail(Status::permission_denied("the region is no peer any more"));
            }
            let session = Session(envelope.session);
            let message = match decode(envelope) {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(error) => return self.fail(Status::invalid_argument(error.to_string())),
            };
            let replies = self
                .handler
                .on_message(&self.caller, session, message)
                .await;
            let session = self.caller.session;
            self.replies.extend(
                replies
                    .iter()
                    .filter_map(|reply| encode_reply(session, reply)),
            );
        }
    }

    fn fail(&mut self, status: Status) -> Option<Result<Envelope, Status>> {
        self.has_ended = true;
        self.handler.on_rejected(None, status.message());
        Some(Err(status))
    }
}

impl<H: MessageHandler> Drop for InboundStream<H> {
    fn drop(&mut self) {
        self.handler.on_close(&self.caller);
    }
}

/// The encoded reply; `None` for a reply that is too long. It would end the stream, and each stream after it.
fn encode_reply(session: Session, reply: &Message) -> Option<Envelope> {
    let envelope = encode(session, reply);
    let bytes = envelope.encoded_len();
    if bytes <= MESSAGE_BYTES_MAX && is_within_bounds(reply) {
        return Some(envelope);
    }
    tracing::error!(bytes, "a reply is too long and is not sent");
    None
}

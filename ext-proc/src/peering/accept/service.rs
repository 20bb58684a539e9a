//! The gRPC service `isotherm.peering.v1.Peering`: one [`InboundStream`] for each link of a caller.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use isotherm_regions::Session;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Request, Status, Streaming};

use super::limiter::VerifiedConnection;
use super::{AcceptorContext, Caller, MessageHandler};
use crate::peering::convert::{decode, encode_within_bounds};
use crate::peering::wire::{self, Envelope, Payload};
use crate::peering::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION, hello};
use crate::streaming_server::StreamingMethod;

/// The method `StreamMessages`; one call for each link.
pub(super) struct LinkMethod<H> {
    pub(super) context: Arc<AcceptorContext<H>>,
    pub(super) stopping: watch::Receiver<bool>,
}

impl<H> Clone for LinkMethod<H> {
    fn clone(&self) -> Self {
        Self {
            context: Arc::clone(&self.context),
            stopping: self.stopping.clone(),
        }
    }
}

impl<H: MessageHandler> StreamingMethod for LinkMethod<H> {
    const SERVICE: &'static str = wire::SERVICE;
    const METHOD: &'static str = wire::METHOD;
    const BUFFER_BYTES: usize = 8 * 1024;
    const YIELD_BYTES: usize = 32 * 1024;
    type Request = Envelope;
    type Response = Envelope;
    type ResponseStream = BoxStream<'static, Result<Envelope, Status>>;

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn serve(&self, request: Request<Streaming<Envelope>>) -> Result<Self::ResponseStream, Status> {
        let accepted = stream::once(self.clone().accept(request));
        Ok(accepted
            .map_ok(InboundStream::replies)
            .try_flatten()
            .boxed())
    }
}

impl<H: MessageHandler> LinkMethod<H> {
    async fn accept(
        self,
        request: Request<Streaming<Envelope>>,
    ) -> Result<InboundStream<H>, Status> {
        let connection = request.extensions().get::<VerifiedConnection>().cloned();
        let from = connection.as_ref().map(|connection| connection.from);
        let mut inbound = request.into_inner();
        let context = self.context;
        let greeted = context.greet(connection, &mut inbound).await;
        let caller = greeted.inspect_err(|status| {
            tracing::debug!(?from, reason = status.message(), "stream rejected");
            context.handler.on_rejected(from, status.message());
        })?;
        context.handler.on_open(&caller);
        Ok(InboundStream {
            replies: [hello(&context.identity, caller.session)].into(),
            context,
            stopping: self.stopping,
            caller,
            inbound,
            has_ended: false,
        })
    }
}

impl<H: MessageHandler> AcceptorContext<H> {
    /// Waits for the caller's Hello, which must name the region in the caller's certificate.
    async fn greet(
        &self,
        connection: Option<VerifiedConnection>,
        inbound: &mut Streaming<Envelope>,
    ) -> Result<Caller, Status> {
        let connection =
            connection.ok_or_else(|| Status::internal("the connection is not known"))?;
        if !connection.is_within_limit {
            let reason = "the region has too many connections";
            return Err(Status::resource_exhausted(reason));
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
            let reason = format!("this service speaks version {PROTOCOL_VERSION} of the protocol");
            return Err(Status::failed_precondition(reason));
        }
        // The region may have been removed since the handshake.
        let region = self.identity.allowed().get(&hello.region).ok_or_else(|| {
            let own = self.identity.region();
            Status::permission_denied(format!("the region is no peer of `{own}`"))
        })?;
        if connection.region.is_some_and(|verified| verified != region) {
            let reason = "the certificate is another region's than the Hello";
            return Err(Status::permission_denied(reason));
        }
        Ok(Caller {
            region,
            session: Session(session),
        })
    }
}

struct InboundStream<H: MessageHandler> {
    context: Arc<AcceptorContext<H>>,
    stopping: watch::Receiver<bool>,
    caller: Caller,
    inbound: Streaming<Envelope>,
    replies: VecDeque<Envelope>,
    has_ended: bool,
}

impl<H: MessageHandler> InboundStream<H> {
    fn replies(self) -> impl Stream<Item = Result<Envelope, Status>> + Send {
        stream::unfold(self, |mut stream| async move {
            let reply = stream.next().await?;
            Some((reply, stream))
        })
    }

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
            let allowed = self.context.identity.allowed();
            if allowed.get(&self.caller.region).is_none() {
                return self.fail(Status::permission_denied("the region is no peer any more"));
            }
            let session = Session(envelope.session);
            let message = match decode(envelope) {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(error) => return self.fail(Status::invalid_argument(error.to_string())),
            };
            let handler = &self.context.handler;
            let replies = handler.on_message(&self.caller, session, message).await;
            for reply in &replies {
                match encode_within_bounds(self.caller.session, reply) {
                    Some(envelope) => self.replies.push_back(envelope),
                    None => tracing::error!("a reply is too long and is not sent"),
                }
            }
        }
    }

    fn fail(&mut self, status: Status) -> Option<Result<Envelope, Status>> {
        self.has_ended = true;
        self.context.handler.on_rejected(None, status.message());
        Some(Err(status))
    }
}

impl<H: MessageHandler> Drop for InboundStream<H> {
    fn drop(&mut self) {
        self.context.handler.on_close(&self.caller);
    }
}

//! The gRPC service, and one stream of it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use isotherm_regions::{Incarnation, Session};
use prost::Message as _;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::codegen::{Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::limiter::Proved;
use super::{Caller, MessageHandler};
use crate::peering::convert::{from_wire, has_bounds, to_wire};
use crate::peering::wire::{self, Payload};
use crate::peering::{LocalIdentity, MESSAGE_BYTES_MAX, METHOD, Message, PROTOCOL, SERVICE, hello};

/// The service; clones share everything.
pub(super) struct Peering<A>(Arc<Shared<A>>);

struct Shared<A> {
    own: Arc<LocalIdentity>,
    greeting_max: Duration,
    handler: Arc<A>,
    stopping: watch::Receiver<bool>,
}

impl<A> Peering<A> {
    pub(super) fn new(
        own: Arc<LocalIdentity>,
        greeting_max: Duration,
        handler: Arc<A>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self(Arc::new(Shared {
            own,
            greeting_max,
            handler,
            stopping,
        }))
    }
}

impl<A> Clone for Peering<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A> NamedService for Peering<A> {
    const NAME: &'static str = SERVICE;
}

impl<A, B> Service<http::Request<B>> for Peering<A>
where
    A: MessageHandler,
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let converse = Converse(Arc::clone(&self.0));
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("the only method is Converse").into_http());
            }
            let codec = ProstCodec::<wire::Envelope, wire::Envelope>::default();
            let bound = Some(MESSAGE_BYTES_MAX);
            let mut grpc = Grpc::new(codec).apply_max_message_size_config(bound, bound);
            Ok(grpc.streaming(converse, request).await)
        })
    }
}

struct Converse<A>(Arc<Shared<A>>);

impl<A: MessageHandler> StreamingService<wire::Envelope> for Converse<A> {
    type Response = wire::Envelope;
    type ResponseStream = BoxStream<'static, Result<wire::Envelope, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<wire::Envelope>>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let proved = request.extensions().get::<Proved>().cloned();
            let from = proved.as_ref().map(|proved| proved.from);
            let mut inbound = request.into_inner();
            let caller = match shared.greet(proved, &mut inbound).await {
                Ok(caller) => caller,
                Err(status) => {
                    tracing::debug!(?from, why = status.message(), "turned away");
                    shared.handler.on_rejected(from, status.message());
                    return Err(status);
                }
            };
            let first = hello(&shared.own, caller.session);
            shared.handler.on_open(&caller);
            let conversation = Conversation {
                shared,
                caller,
                inbound,
                answers: [first].into(),
                ended: false,
            };
            let answers = stream::unfold(conversation, |mut conversation| async move {
                let answer = conversation.next().await?;
                Some((answer, conversation))
            });
            Ok(Response::new(Box::pin(answers) as Self::ResponseStream))
        })
    }
}

impl<A> Shared<A> {
    /// Hears who calls. What it says and what its certificate says must be the same.
    async fn greet(
        &self,
        proved: Option<Proved>,
        inbound: &mut Streaming<wire::Envelope>,
    ) -> Result<Caller, Status> {
        let proved = proved.ok_or_else(|| Status::internal("the connection is not known"))?;
        if !proved.has_room {
            let why = "the region has too many connections";
            return Err(Status::resource_exhausted(why));
        }
        let first = timeout(self.greeting_max, inbound.message());
        let first = first
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello"))??;
        let Some(wire::Envelope {
            session,
            payload: Some(Payload::Hello(hello)),
        }) = first
        else {
            return Err(Status::invalid_argument("the first message is no Hello"));
        };
        if hello.protocol != PROTOCOL {
            let why = format!("this service speaks version {PROTOCOL} of the protocol");
            return Err(Status::failed_precondition(why));
        }
        // A place among the known may have been lost since the handshake.
        let region = self.own.known().get(&hello.region).ok_or_else(|| {
            let own = self.own.region();
            Status::permission_denied(format!("the region is no peer of `{own}`"))
        })?;
        if proved.region.is_some_and(|proved| proved != region) {
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

/// One stream.
struct Conversation<A: MessageHandler> {
    shared: Arc<Shared<A>>,
    caller: Caller,
    inbound: Streaming<wire::Envelope>,
    answers: VecDeque<wire::Envelope>,
    ended: bool,
}

impl<A: MessageHandler> Conversation<A> {
    async fn next(&mut self) -> Option<Result<wire::Envelope, Status>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(answer) = self.answers.pop_front() {
                return Some(Ok(answer));
            }
            let mut stopping = self.shared.stopping.clone();
            let message = tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return None,
                message = self.inbound.message() => message.ok()??,
            };
            // A caller whose region is no peer any more has nothing to say.
            if self.shared.own.known().get(&self.caller.region).is_none() {
                return self.end(Status::permission_denied("the region is no peer any more"));
            }
            let session = Session(message.session);
            let said = match from_wire(message) {
                Ok(Some(said)) => said,
                Ok(None) => continue,
                Err(nonsense) => return self.end(Status::invalid_argument(nonsense.to_string())),
            };
            let answers = self
                .shared
                .handler
                .on_message(&self.caller, session, said)
                .await;
            self.answers.extend(
                answers
                    .iter()
                    .filter_map(|answer| fitting(self.caller.session, answer)),
            );
        }
    }

    fn end(&mut self, status: Status) -> Option<Result<wire::Envelope, Status>> {
        self.ended = true;
        self.shared.handler.on_rejected(None, status.message());
        Some(Err(status))
    }
}

impl<A: MessageHandler> Drop for Conversation<A> {
    fn drop(&mut self) {
        self.shared.handler.on_close(&self.caller);
    }
}

/// An answer on the wire. One that is too long would end the stream, and the next one as well.
fn fitting(session: Session, answer: &Message) -> Option<wire::Envelope> {
    let message = to_wire(session.0, answer);
    let bytes = message.encoded_len();
    if bytes <= MESSAGE_BYTES_MAX && has_bounds(answer) {
        return Some(message);
    }
    tracing::error!(bytes, "an answer is too long and is not sent");
    None
}

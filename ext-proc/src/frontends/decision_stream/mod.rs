//! The gRPC service `isotherm.decision.v1.Decisions`: one stream for all requests of one of Envoy's workers.
//!
//! What crosses, and why there is such a thing beside external processing, is told where its messages are
//! ([`isotherm_decision_proto`]). A decision stream decides only what stays in this region: a request that goes to another one changes
//! headers that belong to external processing. So where there are regions no decision stream opens, and one that is open when a
//! reload brings them passes everything on.

mod response;
mod session;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use futures_util::future::BoxFuture;
use isotherm_decision_proto::{ClientMessage, PATH, SERVICE, ServerMessage};
use tokio::sync::watch;
use tonic::codec::Streaming;
use tonic::codegen::{Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::request::Context;
use session::Conversation;

/// The longest message that is read, in bytes. Requests that ask together share one, at a few kilobytes each.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The service; clones share everything.
#[derive(Clone, Debug)]
pub struct DecisionService {
    context: Arc<Context>,
    /// Turns true when the service stops.
    stopping: watch::Receiver<bool>,
}

impl DecisionService {
    pub(super) fn over(context: Arc<Context>, stopping: watch::Receiver<bool>) -> Self {
        Self { context, stopping }
    }
}

impl NamedService for DecisionService {
    const NAME: &'static str = SERVICE;
}

impl<B> Service<http::Request<B>> for DecisionService
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = StreamDecisions(self.clone());
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("the only method is StreamDecisions").into_http());
            }
            let mut grpc = Grpc::new(ProstCodec::default())
                .apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
            Ok(grpc.streaming(method, request).await)
        })
    }
}

struct StreamDecisions(DecisionService);

impl StreamingService<ClientMessage> for StreamDecisions {
    type Response = ServerMessage;
    type ResponseStream = Conversation<Streaming<ClientMessage>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<ClientMessage>>) -> Self::Future {
        let DecisionService { context, stopping } = self.0.clone();
        std::future::ready(if context.pool_registry.table().peer_table().is_some() {
            Err(Status::failed_precondition(
                "regions need external processing",
            ))
        } else {
            let conversation = Conversation::new(context, stopping, request.into_inner());
            Ok(Response::new(conversation))
        })
    }
}

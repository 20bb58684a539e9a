//! The gRPC service `isotherm.decision.v1.Decisions`: one stream for all requests of one Envoy worker.
//!
//! [`isotherm_decision_proto`] describes the messages, and the reason for a second protocol besides external processing.

mod response;
mod session;

use std::sync::Arc;

use isotherm_decision_proto::{ClientMessage, METHOD, SERVICE, ServerMessage};
use tokio::sync::watch;
use tonic::codec::Streaming;
use tonic::{Request, Status};

use super::request::{ListenerKind, RequestContext};
use crate::streaming_server::{StreamingMethod, StreamingServer};
use session::DecisionSession;

/// The method `StreamDecisions`; one call for each Envoy worker.
#[derive(Clone, Debug)]
pub(crate) struct DecisionMethod {
    pub(crate) context: Arc<RequestContext>,
    /// Turns true when the service stops; the streams then send `GoAway`.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Requests that arrive together share a message, at a few kilobytes each.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(crate) type DecisionServer = StreamingServer<DecisionMethod>;

impl StreamingMethod for DecisionMethod {
    const SERVICE: &'static str = SERVICE;
    const METHOD: &'static str = METHOD;
    const BUFFER_BYTES: usize = 8 * 1024;
    const YIELD_BYTES: usize = 32 * 1024;
    type Request = ClientMessage;
    type Response = ServerMessage;
    type ResponseStream = DecisionSession<Streaming<ClientMessage>>;

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn serve(
        &self,
        request: Request<Streaming<ClientMessage>>,
    ) -> Result<Self::ResponseStream, Status> {
        let Self { context, stopping } = self.clone();
        let listener = ListenerKind::of_call(request.metadata());
        let inbound = request.into_inner();
        Ok(DecisionSession::new(context, listener, stopping, inbound))
    }
}

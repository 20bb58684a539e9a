//! The gRPC service `envoy.service.ext_proc.v3.ExternalProcessor`, the server side of Envoy's external processing filter.
//!
//! Envoy sends request headers and response trailers only. The shipped configuration switches everything else off: once
//! the filter has read prompts and responses, the service has no use for them. A message of another kind gets a reply
//! that lets it pass.
//!
//! A delayed reply to the request headers *is* the queue. Envoy's `message_timeout` is short, so that Envoy notices at
//! once when the service hangs. For a request that has to wait, the service first extends that timeout
//! (`override_message_timeout`), and replies when the pool decides. Envoy ignores an extension beyond
//! `max_message_timeout`, which must exceed the pools' `wait_ms_max` by five seconds.

mod response;
mod stream;
mod subset;

use std::sync::Arc;

use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures_util::stream::BoxStream;
use isotherm_fingerprint::names;
use tonic::codec::Streaming;
use tonic::{Request, Status};

use super::request::{ListenerKind, RequestContext};
use crate::streaming_server::{StreamingMethod, StreamingServer};
use stream::RequestStream;

/// The method `Process`; one call for each request.
#[derive(Clone, Debug)]
pub(crate) struct ProcessMethod(pub(crate) Arc<RequestContext>);

pub(crate) type ExtProcServer = StreamingServer<ProcessMethod>;

impl StreamingMethod for ProcessMethod {
    const SERVICE: &'static str = "envoy.service.ext_proc.v3.ExternalProcessor";
    const METHOD: &'static str = "Process";
    /// Envoy limits request headers to 60 KiB by default, and sends a streamed body in pieces below its buffer limit of 1 MiB.
    const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
    /// Most messages have a few hundred bytes.
    const BUFFER_BYTES: usize = 512;
    /// A stream has at most one reply ready.
    const YIELD_BYTES: usize = 4 * 1024;
    type Request = ProcessingRequest;
    type Response = ProcessingResponse;
    type ResponseStream = BoxStream<'static, Result<ProcessingResponse, Status>>;

    fn serve(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Self::ResponseStream, Status> {
        let listener = match request.metadata().get(names::LISTENER) {
            Some(value) if value.as_bytes() == names::LISTENER_REGIONS.as_bytes() => {
                ListenerKind::Regions
            }
            Some(_) | None => ListenerKind::Clients,
        };
        let context = Arc::clone(&self.0);
        let replies = RequestStream::replies(context, listener, request.into_inner());
        Ok(Box::pin(replies))
    }
}

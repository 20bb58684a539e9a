//! The gRPC service `envoy.service.ext_proc.v3.ExternalProcessor`, the server side of Envoy's external processing filter.
//!
//! A gateway sends one stream for each request, and announces which parts of it follow:
//!
//! | gateway | request | response |
//! | --- | --- | --- |
//! | with the filter in front (`envoy/standalone.yaml`) | headers with the fingerprint | headers; the end of the stream is its end |
//! | the same, with the filter's second instance | headers with the fingerprint | the filter's trailer |
//! | of the Gateway API Inference Extension, full duplex | the service reads the body, and sends it back | the same |
//! | the same, buffered | the body is one message; the decision goes into its reply | streamed or none |
//! | the same, without announced modes | the service replies to the headers after the body | none |
//!
//! Where the service reads bodies, it runs the filter's own code on them, and no header of the client counts as the
//! filter's. [`stream`] has the steps.
//!
//! A delayed reply to the request headers *is* the queue. Envoy's `message_timeout` is short, so that Envoy notices at
//! once when the service hangs. For a request that has to wait, the service first extends that timeout
//! (`override_message_timeout`), and replies when the pool decides. Envoy ignores an extension beyond
//! `max_message_timeout`, which must exceed the pools' `wait_ms_max` by five seconds.

mod body;
mod held_bytes;
mod mode;
mod prompt;
mod reader;
mod response;
mod settings;
mod stream;
mod subset;

use std::sync::Arc;

use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures_util::stream::BoxStream;
use tonic::codec::Streaming;
use tonic::{Request, Status};

use super::request::{ListenerKind, RequestContext};
use crate::streaming_server::{StreamingMethod, StreamingServer};
pub(crate) use settings::Settings;
use stream::RequestStream;

/// The longest message that the service accepts. A gateway that buffers bodies sends each as one message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The method `Process`; one call for each request.
#[derive(Clone, Debug)]
pub(crate) struct ProcessMethod {
    pub(crate) context: Arc<RequestContext>,
    pub(crate) settings: Arc<Settings>,
}

pub(crate) type ExtProcServer = StreamingServer<ProcessMethod>;

impl StreamingMethod for ProcessMethod {
    const SERVICE: &'static str = "envoy.service.ext_proc.v3.ExternalProcessor";
    const METHOD: &'static str = "Process";
    /// Most messages have a few hundred bytes.
    const BUFFER_BYTES: usize = 512;
    /// A stream has at most one reply ready.
    const YIELD_BYTES: usize = 4 * 1024;
    type Request = ProcessingRequest;
    type Response = ProcessingResponse;
    type ResponseStream = BoxStream<'static, Result<ProcessingResponse, Status>>;

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn serve(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Self::ResponseStream, Status> {
        let listener = ListenerKind::of_call(request.metadata());
        let (context, settings) = (Arc::clone(&self.context), Arc::clone(&self.settings));
        let replies = RequestStream::replies(context, settings, listener, request.into_inner());
        Ok(Box::pin(replies))
    }
}

//! The gRPC service `envoy.service.ext_proc.v3.ExternalProcessor`, with buffers of its own size.
//!
//! The generated server gives each stream 16 KiB of buffers for as long as it lives, and a stream lives as long as
//! its request: ten thousand waiting ones would hold 160 MB of air. The messages here are a few hundred bytes out
//! and a few kilobytes in, so the buffers start small and grow when they must. That is the only difference.

mod response;
mod stream;
pub(crate) mod subset;

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use isotherm_fingerprint::names;
use tokio::sync::watch;
use tonic::codec::{BufferSettings, Codec, Streaming};
use tonic::codegen::{Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use super::decision_stream::DecisionService;
use super::request::{Context, Listener};
use crate::metrics::Metrics;
use crate::pool::PoolRegistry;
use stream::Exchange;

const PATH: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// What a stream's two buffers start with, in bytes.
const BUFFER_BYTES: usize = 512;

/// How much is gathered before it is sent, in bytes: no stream ever has two answers ready.
const YIELD_BYTES: usize = 4 * 1024;

/// The longest message that is read, in bytes: Envoy's own limit on the headers of a request is 60 KiB by default, and
/// a body in Envoy's streamed modes comes in pieces that are smaller than its buffer limit of 1 MiB.
const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The service; clones share everything.
#[derive(Clone, Debug)]
pub struct ExtProc {
    context: Arc<Context>,
}

impl ExtProc {
    /// The service over a pool_registry. `started_unix_s` is the age that its models get, in seconds since 1970.
    #[must_use]
    pub fn new(
        pool_registry: Arc<PoolRegistry>,
        metrics: Arc<Metrics>,
        started_unix_s: u64,
    ) -> Self {
        Self {
            context: Arc::new(Context {
                pool_registry,
                metrics,
                started_unix_s,
            }),
        }
    }

    /// The service of decision streams; they close when `stopping` turns true.
    #[must_use]
    pub fn decisions(&self, stopping: watch::Receiver<bool>) -> DecisionService {
        DecisionService::over(Arc::clone(&self.context), stopping)
    }
}

impl NamedService for ExtProc {
    const NAME: &'static str = "envoy.service.ext_proc.v3.ExternalProcessor";
}

impl<B> Service<http::Request<B>> for ExtProc
where
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
        let process = Process(Arc::clone(&self.context));
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("the only method is Process").into_http());
            }
            let mut grpc = Grpc::new(SmallCodec::default())
                .apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
            Ok(grpc.streaming(process, request).await)
        })
    }
}

struct Process(Arc<Context>);

impl StreamingService<ProcessingRequest> for Process {
    type Response = ProcessingResponse;
    type ResponseStream = BoxStream<'static, Result<ProcessingResponse, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let listener = match request.metadata().get(names::LISTENER) {
            Some(value) if value.as_bytes() == names::LISTENER_REGIONS.as_bytes() => {
                Listener::Regions
            }
            Some(_) | None => Listener::Clients,
        };
        let answers = Exchange::answers(Arc::clone(&self.0), listener, request.into_inner());
        std::future::ready(Ok(Response::new(Box::pin(answers))))
    }
}

/// `tonic_prost`'s codec with small buffers.
struct SmallCodec<T, U>(PhantomData<fn() -> (T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: prost::Message + Send + 'static,
    U: prost::Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }
}

//! A gRPC server for a service with one bidirectional streaming method.
//!
//! Unlike tonic's generated servers it sets the size of a stream's buffers. The generated ones give each stream 16 KiB
//! for as long as it lives. An external processing stream lives as long as its request, so ten thousand queued requests
//! would hold 160 MB of empty buffers. Buffers here start small and grow when they must.

use std::convert::Infallible;
use std::future::ready;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::future::BoxFuture;
use tonic::codec::{BufferSettings, Codec, Streaming};
use tonic::codegen::{Service, StdError, http};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};
use tower::service_fn;

/// A streaming gRPC method and the limits of its streams.
pub(crate) trait StreamingMethod: Clone + Send + 'static {
    const SERVICE: &'static str;
    const METHOD: &'static str;
    /// Initial size of each of a stream's two buffers, in bytes.
    const BUFFER_BYTES: usize;
    /// Bytes that are gathered before they are sent.
    const YIELD_BYTES: usize;
    type Request: prost::Message + Default + Send + 'static;
    type Response: prost::Message + Send + 'static;
    /// Messages of the server on one stream.
    type ResponseStream: Stream<Item = Result<Self::Response, Status>> + Send + 'static;

    /// Longest message that is read, in bytes.
    fn message_bytes_max(&self) -> usize;

    /// Serves a new stream.
    /// Fails when the service does not serve the stream.
    fn serve(
        &self,
        request: Request<Streaming<Self::Request>>,
    ) -> Result<Self::ResponseStream, Status>;
}

/// Serves a [`StreamingMethod`]. Clones share the method.
#[derive(Clone, Debug)]
pub(crate) struct StreamingServer<M>(pub(crate) M);

impl<M: StreamingMethod> NamedService for StreamingServer<M> {
    const NAME: &'static str = M::SERVICE;
}

impl<M, B> Service<http::Request<B>> for StreamingServer<M>
where
    M: StreamingMethod,
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = self.0.clone();
        let message_bytes_max = method.message_bytes_max();
        let serve = service_fn(move |request: Request<Streaming<M::Request>>| {
            ready(method.serve(request).map(Response::new))
        });
        Box::pin(async move {
            let path = request.uri().path().strip_prefix('/');
            if path.and_then(|path| path.split_once('/')) != Some((M::SERVICE, M::METHOD)) {
                let message = format!("the only method is {}", M::METHOD);
                return Ok(Status::unimplemented(message).into_http());
            }
            let mut grpc = Grpc::new(BufferedCodec::<M>(PhantomData))
                .apply_max_message_size_config(Some(message_bytes_max), None);
            Ok(grpc.streaming(serve, request).await)
        })
    }
}

/// `tonic_prost`'s codec with the buffers of a method.
struct BufferedCodec<M>(PhantomData<fn() -> M>);

impl<M: StreamingMethod> Codec for BufferedCodec<M> {
    type Encode = M::Response;
    type Decode = M::Request;
    type Encoder = ProstEncoder<M::Response>;
    type Decoder = ProstDecoder<M::Request>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<M::Response, M::Request>::raw_encoder(buffers::<M>())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<M::Response, M::Request>::raw_decoder(buffers::<M>())
    }
}

fn buffers<M: StreamingMethod>() -> BufferSettings {
    BufferSettings::new(M::BUFFER_BYTES, M::YIELD_BYTES)
}

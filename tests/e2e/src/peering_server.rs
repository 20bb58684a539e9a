//! A server of the peering protocol, `peering.proto`, without TLS, whose replies a test decides.

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use isotherm_ext_proc::peering::wire::Envelope;
use isotherm_harness::TcpServer;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// The replies on one stream.
pub(crate) type Replies = BoxStream<'static, Result<Envelope, Status>>;

/// The response to the caller that opens a stream.
pub(crate) type StreamResponse = BoxFuture<'static, Result<Response<Replies>, Status>>;

/// Starts a server that calls `open` with the messages of each stream.
pub(crate) async fn serve_peering(
    open: impl Fn(Streaming<Envelope>) -> StreamResponse + Clone + Send + 'static,
) -> anyhow::Result<TcpServer> {
    TcpServer::start(move |connection| {
        let method = Method(open.clone());
        let service = service_fn(move |request| {
            let method = method.clone();
            async move {
                let mut grpc = Grpc::new(ProstCodec::default());
                Ok::<_, Infallible>(grpc.streaming(method, request).await)
            }
        });
        let server = Builder::new(TokioExecutor::new());
        let served = server.serve_connection(TokioIo::new(connection), service);
        async move { drop(served.await) } // ends when the caller disconnects
    })
    .await
}

#[derive(Clone)]
struct Method<F>(F);

impl<F: Fn(Streaming<Envelope>) -> StreamResponse> StreamingService<Envelope> for Method<F> {
    type Response = Envelope;
    type ResponseStream = Replies;
    type Future = StreamResponse;

    fn call(&mut self, request: Request<Streaming<Envelope>>) -> Self::Future {
        (self.0)(request.into_inner())
    }
}

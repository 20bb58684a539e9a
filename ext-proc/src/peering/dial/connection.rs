//! One HTTP/2 connection, and the stream on it.
//!
//! hyper drives HTTP/2. Rejected: tonic's channel, which redials by itself, hides the error of the connection, and keeps the
//! connection alive in a task of its own.

use std::task::Poll;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::peering::transport::{TlsFault, Transport};
use crate::peering::wire::{self, Envelope};
use crate::peering::{LinkError, MESSAGE_BYTES_MAX, WINDOW_BYTES};

/// HTTP/2's keepalive, for a link without pings.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// An HTTP/2 connection; dropping it closes the socket.
pub(super) struct Connection {
    requests: http2::SendRequest<tonic::body::Body>,
    tls_fault: TlsFault,
    _tasks: DropGuard,
}

impl Connection {
    pub(super) async fn open(transport: Transport<()>) -> Result<Self, LinkError> {
        let tls_fault = transport.tls_fault();
        let end = CancellationToken::new();
        let executor = LinkExecutor(end.clone());
        let tasks = end.drop_guard();
        let opened = http2::Builder::new(executor.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(transport))
            .await;
        let (requests, connection) = opened.map_err(|error| {
            let fault = tls_fault.get().map(LinkError::tls);
            fault.unwrap_or_else(|| LinkError::broken(error))
        })?;
        executor.execute(async move {
            // The stream reports how the connection ends.
            let _ = connection.await;
        });
        Ok(Self {
            requests,
            tls_fault,
            _tasks: tasks,
        })
    }

    pub(super) async fn stream_messages(
        &self,
        outbound: impl Stream<Item = Envelope> + Send + 'static,
    ) -> Result<Streaming<Envelope>, LinkError> {
        let origin = http::Uri::from_static("https://isotherm");
        let mut client = Grpc::with_origin(Requests(self.requests.clone()), origin)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let path = PathAndQuery::from_static(wire::PATH);
        let codec = ProstCodec::<Envelope, Envelope>::default();
        let opened = client.streaming(Request::new(outbound), path, codec).await;
        let response = opened.map_err(|status| self.error(&status))?;
        Ok(response.into_inner())
    }

    /// Why a stream ended.
    pub(super) fn error(&self, status: &Status) -> LinkError {
        let fault = self.tls_fault.get().map(LinkError::tls);
        fault.unwrap_or_else(|| LinkError::status(status))
    }
}

/// Runs the tasks of one connection for hyper, until the token is cancelled. hyper keeps a connection until every stream has
/// ended in good order, which takes for ever with a silent peer; here the tasks end with the link.
#[derive(Clone, Debug)]
struct LinkExecutor(CancellationToken);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for LinkExecutor {
    fn execute(&self, task: F) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(task));
    }
}

/// hyper's sender of requests, as a service for tonic's client.
struct Requests(http2::SendRequest<tonic::body::Body>);

impl Service<http::Request<tonic::body::Body>> for Requests {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), hyper::Error>> {
        // The call reports a closed connection, with its cause.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

//! One HTTP/2 connection, and the stream on it.
//!
//! HTTP/2 is spoken by hyper directly and not through tonic's channel, which would dial again by itself, hide what
//! failed, and keep the connection in a task of its own for as long as it likes.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tonic::codegen::{Service, http};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{LinkError, millis};
use crate::peering::link_error::{ConnectPhase, RefusedError, UnreachableError};
use crate::peering::transport::{Fault, Io};
use crate::peering::{MESSAGE_BYTES_MAX, METHOD, wire};

/// How much may be under way and not read, in bytes: less than a message would make a long one take many round trips,
/// and the pings behind it wait for them.
const WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// HTTP/2's own question whether the other side lives, for when it is asked nothing else.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// An HTTP/2 connection; dropping it closes the socket.
pub(super) struct Connection {
    requests: http2::SendRequest<tonic::body::Body>,
    fault: Fault,
    _tasks: Running,
}

impl Connection {
    pub(super) async fn open(
        io: Io<()>,
        until: Instant,
        within: Duration,
    ) -> Result<Self, LinkError> {
        let fault = io.fault();
        let tasks = Running(Tasks::default());
        let opening = http2::Builder::new(tasks.0.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io));
        let (requests, connection) = match timeout_at(until, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                return Err(refused_by_tls(&fault).unwrap_or_else(|| {
                    LinkError::Unreachable(UnreachableError::Broken(error.to_string()))
                }));
            }
            Err(_) => {
                let (step, after_ms) = (ConnectPhase::Hello, millis(within));
                return Err(LinkError::Unreachable(UnreachableError::Timeout {
                    step,
                    after_ms,
                }));
            }
        };
        let drive = async move {
            // How it ends is seen on the stream.
            let _ = connection.await;
        };
        tasks.0.execute(drive);
        Ok(Self {
            requests,
            fault,
            _tasks: tasks,
        })
    }

    /// Opens the stream.
    pub(super) async fn converse(
        &self,
        outbound: impl Stream<Item = wire::Envelope> + Send + 'static,
    ) -> Result<Streaming<wire::Envelope>, LinkError> {
        let origin = http::Uri::from_static("https://isotherm");
        let requests = Requests(self.requests.clone());
        let mut grpc = tonic::client::Grpc::with_origin(requests, origin)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let codec = ProstCodec::<wire::Envelope, wire::Envelope>::default();
        let path = http::uri::PathAndQuery::from_static(METHOD);
        let answered = grpc.streaming(Request::new(outbound), path, codec).await;
        match answered {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(self.why(&status)),
        }
    }

    /// Why a stream ended.
    pub(super) fn why(&self, status: &Status) -> LinkError {
        refused_by_tls(&self.fault).unwrap_or_else(|| LinkError::status(status))
    }
}

fn refused_by_tls(fault: &Fault) -> Option<LinkError> {
    let why = fault.get()?.to_owned();
    Some(LinkError::Refused(RefusedError::Tls(why)))
}

/// What hyper runs for one connection. It would let the connection live until every stream has ended in good order, with
/// a peer that does not answer for ever; here all of it ends when the link is dropped.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn execute(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(task);
    }
}

/// Ends all tasks when it is dropped. They hold clones of what holds them, so that alone is not enough.
struct Running(Tasks);

impl Drop for Running {
    fn drop(&mut self) {
        let mut tasks = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        Self::execute(self, task);
    }
}

/// hyper's requests as the service that tonic's client wants.
struct Requests(http2::SendRequest<tonic::body::Body>);

impl Service<http::Request<tonic::body::Body>> for Requests {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

//! Counts the connections of Envoys, which tell whether this service has a gateway.
//!
//! Other regions must know whether requests can still enter here: replicas behind a region without an Envoy are idle.
//! A connection belongs to an Envoy from the first call that only an Envoy makes (external processing, decision streams,
//! endpoint discovery, or Envoy's own health check) until it closes. Envoy keeps such connections open: one for each
//! worker after its first request, one for endpoint discovery, and one for health checks. An Envoy that dies closes them
//! at once, and one that freezes loses them to the server's keepalive.
//!
//! Rejected: counting open streams. Without endpoint discovery, an Envoy has a stream only while it has requests, so a quiet
//! night would look like a dead gateway. Rejected: counting every connection. Probes of an orchestrator use the same port.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::server::Connected;

/// Beginning of the user agent of Envoy's health checker.
const HEALTH_CHECKER: &[u8] = b"Envoy/HC";

/// The count of open connections of Envoys. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvoyConnections(watch::Sender<usize>);

impl EnvoyConnections {
    pub(super) fn count(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }

    /// Tracks a connection until it is dropped.
    pub(super) fn track<S>(&self, stream: S) -> TrackedConnection<S> {
        TrackedConnection {
            stream,
            connection: Connection(Arc::new(ConnectionState {
                envoys: self.clone(),
                is_envoy: AtomicBool::new(false),
            })),
        }
    }
}

/// A connection, which counts after a call that only an Envoy makes.
#[derive(Debug)]
pub(super) struct TrackedConnection<S> {
    stream: S,
    connection: Connection,
}

#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<ConnectionState>);

#[derive(Debug)]
struct ConnectionState {
    envoys: EnvoyConnections,
    is_envoy: AtomicBool,
}

impl Connection {
    fn mark(&self) {
        // All requests after the first only need to read.
        let state = &self.0;
        if !state.is_envoy.load(Ordering::Relaxed) && !state.is_envoy.swap(true, Ordering::Relaxed)
        {
            state.envoys.0.send_modify(|count| *count += 1);
        }
    }
}

impl<S> Drop for TrackedConnection<S> {
    fn drop(&mut self) {
        // A request may outlive its connection for a moment. The mark stays, so that such a request does not count the
        // connection again.
        let state = &self.connection.0;
        if state.is_envoy.swap(true, Ordering::Relaxed) {
            state
                .envoys
                .0
                .send_modify(|count| *count = count.saturating_sub(1));
        }
    }
}

impl<S> Connected for TrackedConnection<S> {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// Does not offer vectored writes. With them, the HTTP/2 layer writes each reply of a few hundred bytes on its own. Without
/// them, it copies the replies of all ready streams into one buffer: one write here, and one read in Envoy.
impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedConnection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The clients of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerKind {
    Envoy,
    /// Any client; the user agent of its health checker identifies an Envoy.
    Any,
}

/// Marks the connections of the Envoys that call a service.
#[derive(Clone, Debug)]
pub(super) struct EnvoyDetector<S> {
    service: S,
    callers: CallerKind,
}

impl<S> EnvoyDetector<S> {
    pub(super) fn new(service: S, callers: CallerKind) -> Self {
        Self { service, callers }
    }
}

impl<S: NamedService> NamedService for EnvoyDetector<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for EnvoyDetector<S>
where
    S: Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> S::Future {
        if self.is_from_envoy(&request)
            && let Some(connection) = request.extensions().get::<Connection>()
        {
            connection.mark();
        }
        self.service.call(request)
    }
}

impl<S> EnvoyDetector<S> {
    fn is_from_envoy<B>(&self, request: &http::Request<B>) -> bool {
        match self.callers {
            CallerKind::Envoy => true,
            CallerKind::Any => {
                let agent = request.headers().get(http::header::USER_AGENT);
                agent.is_some_and(|agent| agent.as_bytes().starts_with(HEALTH_CHECKER))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_connection_counts_once_until_it_closes() {
        let envoys = EnvoyConnections::default();
        let count = || *envoys.count().borrow();
        let (first, second) = (envoys.track(()), envoys.track(()));
        assert_eq!(count(), 0);
        let late = first.connect_info();
        for _ in 0..3 {
            late.mark();
        }
        assert_eq!(count(), 1);
        drop(second);
        assert_eq!(count(), 1);
        drop(first);
        late.mark();
        assert_eq!(count(), 0);
    }

    #[test]
    fn the_user_agent_identifies_envoys_health_check() {
        let service = EnvoyDetector::new((), CallerKind::Any);
        let from = |agent: &str| {
            http::Request::builder()
                .header("user-agent", agent)
                .body(())
        };
        assert!(service.is_from_envoy(&from("Envoy/HC").unwrap()));
        assert!(!service.is_from_envoy(&from("grpc-go/1.60").unwrap()));
        assert!(EnvoyDetector::new((), CallerKind::Envoy).is_from_envoy(&from("any").unwrap()));
    }
}

//! Which connections are an Envoy's, and so whether this service has a gateway at all.
//!
//! Other regions must know whether requests can still enter here: replicas behind a region without an Envoy are idle.
//! A connection counts as an Envoy's from the moment that it carries what only an Envoy says (external processing,
//! endpoint discovery, or Envoy's own health check) until it closes. Envoy keeps such connections open: one for each
//! worker once it has traffic, one for endpoint discovery, one for health checks. A process that dies closes them at
//! once, and one that freezes loses them to the server's keepalive.
//!
//! Counting open streams was tried on paper and rejected: without endpoint discovery an Envoy has a stream open only
//! while it has requests, so a quiet night would look like a dead gateway. So was counting every connection: probes of
//! an orchestrator come to the same port.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::server::Connected;

/// How Envoy's health checker names itself.
const HEALTH_CHECKER: &[u8] = b"Envoy/HC";

/// Counts open connections of Envoys. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct Envoys(watch::Sender<usize>);

impl Envoys {
    /// The count, now and whenever it changes.
    pub(super) fn count(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }

    /// Watches a connection until it is dropped.
    pub(super) fn watch<S>(&self, stream: S) -> Watched<S> {
        Watched {
            stream,
            connection: Connection(Arc::new(Seen {
                envoys: self.clone(),
                is_envoy: AtomicBool::new(false),
            })),
        }
    }
}

/// A connection that counts once it was found to be an Envoy's.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    connection: Connection,
}

/// What requests know of their connection.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<Seen>);

#[derive(Debug)]
struct Seen {
    envoys: Envoys,
    is_envoy: AtomicBool,
}

impl Connection {
    fn mark(&self) {
        // Looked at first, since all but the first request only need to read.
        let seen = &self.0;
        if !seen.is_envoy.load(Ordering::Relaxed) && !seen.is_envoy.swap(true, Ordering::Relaxed) {
            seen.envoys.0.send_modify(|count| *count += 1);
        }
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        // Requests may outlive their connection for a moment; the connection itself is what counts. Marked for good, so
        // that a late one does not count it again.
        let seen = &self.connection.0;
        if seen.is_envoy.swap(true, Ordering::Relaxed) {
            seen.envoys
                .0
                .send_modify(|count| *count = count.saturating_sub(1));
        }
    }
}

impl<S> Connected for Watched<S> {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// Does not say that it takes several pieces at once, although it could: the HTTP/2 layer then hands over an answer of a
/// few hundred bytes as a piece of its own, with a write for each. Without that it copies the answers of all streams
/// that are ready into one buffer, which is one write here, and one read in Envoy.
impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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

/// Who calls a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callers {
    /// Nobody but Envoys.
    Envoys,
    /// Anybody; an Envoy is known by the name of its health checker.
    Anybody,
}

/// A service that marks the connections of the Envoys which call it.
#[derive(Clone, Debug)]
pub(super) struct Marking<S> {
    service: S,
    callers: Callers,
}

impl<S> Marking<S> {
    pub(super) fn new(service: S, callers: Callers) -> Self {
        Self { service, callers }
    }
}

impl<S: NamedService> NamedService for Marking<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for Marking<S>
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

impl<S> Marking<S> {
    fn is_from_envoy<B>(&self, request: &http::Request<B>) -> bool {
        match self.callers {
            Callers::Envoys => true,
            Callers::Anybody => {
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
    fn a_connection_counts_once_from_its_first_mark_to_its_end() {
        let envoys = Envoys::default();
        let count = || *envoys.count().borrow();
        let (first, second) = (envoys.watch(()), envoys.watch(()));
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
    fn a_health_check_counts_when_it_is_envoys() {
        let service = Marking::new((), Callers::Anybody);
        let from = |agent: &str| {
            http::Request::builder()
                .header("user-agent", agent)
                .body(())
        };
        assert!(service.is_from_envoy(&from("Envoy/HC").unwrap()));
        assert!(!service.is_from_envoy(&from("grpc-go/1.60").unwrap()));
        assert!(Marking::new((), Callers::Envoys).is_from_envoy(&from("any").unwrap()));
    }
}

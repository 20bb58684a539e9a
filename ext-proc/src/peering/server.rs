//! The called end of links: accepts connections, verifies their callers, and answers their requests.

mod limiter;
mod requests;

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::credentials::Credentials;
use super::{LocalIdentity, Message, TransportSecurity};
use crate::accept::accept_next;
use limiter::ConnectionLimiter;

/// Limit of TLS handshakes at once; further callers wait in the system's queue.
const HANDSHAKES_MAX: usize = 128;
/// Bound on a handshake: longer than a caller's attempt, so that the caller gives up first.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Bounds on draining a connection whose handshake failed, in time and bytes. A socket that closes with unread bytes resets
/// the connection, and the caller loses the TLS alert.
const DRAIN_MAX: Duration = Duration::from_millis(500);
const DRAIN_BYTES: usize = 16 * 1024;

/// Receiver of the messages of callers.
pub trait InboundHandler: Debug + Send + Sync + 'static {
    /// Handles a message of a service of `region`, and returns the reply to a ping. A sibling has this service's region.
    fn on_message(&self, region: &Arc<str>, message: Message) -> Option<Message>;

    /// Handles the rejection of a caller: by its certificate, by a limit, or for an invalid request.
    fn on_rejected(&self, from: SocketAddr, reason: &str);
}

/// The called end of all links of a service.
#[derive(Debug)]
pub struct LinkServer {
    identity: Arc<LocalIdentity>,
    handler: Arc<dyn InboundHandler>,
    limiter: ConnectionLimiter,
    stopping: CancellationToken,
}

impl LinkServer {
    /// Creates a server that serves until `stopping` is cancelled.
    pub fn new(
        identity: Arc<LocalIdentity>,
        handler: Arc<dyn InboundHandler>,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            identity,
            handler,
            limiter: ConnectionLimiter::default(),
            stopping,
        }
    }

    /// Serves callers until the service stops and the requests under way have ended. Without TLS, no other machine may reach the
    /// listener: the service trusts every caller.
    pub async fn run(self, listener: TcpListener) {
        let this = Arc::new(self);
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let mut connections = JoinSet::new();
        let next = || accept_next(&handshakes, || listener.accept());
        while let Some(((socket, from), handshake)) =
            this.stopping.run_until_cancelled(next()).await
        {
            while connections.try_join_next().is_some() {}
            connections.spawn(Arc::clone(&this).serve(socket, from, handshake));
        }
        // The system refuses new callers at once.
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// Serves one connection, from its handshake on.
    async fn serve(
        self: Arc<Self>,
        socket: TcpStream,
        from: SocketAddr,
        handshake: OwnedSemaphorePermit,
    ) {
        // The option only reduces latency.
        let _ = socket.set_nodelay(true);
        let TransportSecurity::Tls(credentials) = self.identity.security() else {
            drop(handshake);
            return self.serve_requests(socket, None, from).await;
        };
        let accepted = timeout(HANDSHAKE_MAX, self.accept_tls(credentials, socket));
        let Some(accepted) = self.stopping.run_until_cancelled(accepted).await else {
            return;
        };
        drop(handshake);
        match accepted {
            Ok(Ok(Some(tls))) => {
                let certificate = tls.get_ref().1.peer_certificates();
                let certificate = certificate.and_then(<[_]>::first).cloned();
                self.serve_requests(tls, certificate, from).await;
            }
            // For example a health check.
            Ok(Ok(None)) => tracing::debug!(%from, "caller disconnected"),
            Ok(Err(error)) => self.reject(from, &error.to_string()),
            Err(_) => self.reject(from, "the TLS handshake took too long"),
        }
    }

    /// Runs the handshake of a connection; `None` when the caller disconnects.
    async fn accept_tls(
        &self,
        credentials: &Credentials,
        socket: TcpStream,
    ) -> io::Result<Option<TlsStream<TcpStream>>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&credentials.current().server));
        match acceptor.accept(socket).into_fallible().await {
            Ok(tls) => Ok(Some(tls)),
            Err((error, _)) if is_disconnect(&error) => Ok(None),
            Err((error, socket)) => {
                drain(socket).await;
                Err(error)
            }
        }
    }

    fn reject(&self, from: SocketAddr, reason: &str) {
        tracing::debug!(%from, reason, "caller rejected");
        self.handler.on_rejected(from, reason);
    }
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Gives the caller time to read the TLS alert.
async fn drain(mut socket: TcpStream) {
    let drained = async {
        socket.shutdown().await?;
        let mut unread = vec![0; DRAIN_BYTES];
        while socket.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // The connection ends in any case.
    let _ = timeout(DRAIN_MAX, drained).await;
}

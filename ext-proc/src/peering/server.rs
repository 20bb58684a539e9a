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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::credentials::Credentials;
use super::{LocalIdentity, Message, TransportSecurity};
use limiter::ConnectionLimiter;

/// Limit of TLS handshakes at once; further callers wait in the system's queue.
const HANDSHAKES_MAX: usize = 128;
/// Bound on a handshake: longer than a caller's attempt, so that the caller gives up first.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Bounds on draining a connection whose handshake failed, in time and bytes. A socket that closes with unread bytes resets
/// the connection, and the caller loses the TLS alert.
const DRAIN_MAX: Duration = Duration::from_millis(500);
const DRAIN_BYTES: usize = 16 * 1024;

/// Pause when the system has no socket for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    context: Arc<ServerContext>,
    listener: TcpListener,
}

/// State that all connections share.
#[derive(Debug)]
struct ServerContext {
    identity: Arc<LocalIdentity>,
    handler: Arc<dyn InboundHandler>,
    limiter: ConnectionLimiter,
}

impl LinkServer {
    /// Creates a server on `listener`. Without TLS, no other machine may reach it: the service trusts every caller.
    pub fn new(
        identity: Arc<LocalIdentity>,
        listener: TcpListener,
        handler: Arc<dyn InboundHandler>,
    ) -> Self {
        let context = Arc::new(ServerContext {
            identity,
            handler,
            limiter: ConnectionLimiter::default(),
        });
        Self { context, listener }
    }

    /// Serves until `stopping` turns true and the requests under way have ended.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let mut connections = JoinSet::new();
        let stop = stopping.clone();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                () = stopped(&mut stopping) => break,
                accepted = accept(&self.listener, &handshakes) => accepted,
            };
            match accepted {
                Ok((socket, from, permit)) => {
                    let context = Arc::clone(&self.context);
                    connections.spawn(context.serve(socket, from, permit, stop.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // The system refuses new callers at once.
        drop(self.listener);
        while connections.join_next().await.is_some() {}
    }
}

/// Waits until the service stops. A dropped sender stops it, too.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    drop(stopping.wait_for(|stopping| *stopping).await);
}

async fn accept(
    listener: &TcpListener,
    handshakes: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(handshakes).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (socket, from) = listener.accept().await?;
    Ok((socket, from, permit))
}

impl ServerContext {
    /// Serves one connection, from its handshake on.
    async fn serve(
        self: Arc<Self>,
        socket: TcpStream,
        from: SocketAddr,
        handshake: OwnedSemaphorePermit,
        mut stopping: watch::Receiver<bool>,
    ) {
        // The option only reduces latency.
        let _ = socket.set_nodelay(true);
        let TransportSecurity::Tls(credentials) = self.identity.security() else {
            drop(handshake);
            return self.serve_requests(socket, None, from, stopping).await;
        };
        let accepted = tokio::select! {
            () = stopped(&mut stopping) => return,
            accepted = timeout(HANDSHAKE_MAX, self.accept_tls(credentials, socket)) => accepted,
        };
        drop(handshake);
        match accepted {
            Ok(Ok(Some(tls))) => {
                let certificate = tls.get_ref().1.peer_certificates();
                let certificate = certificate.and_then(<[_]>::first).cloned();
                self.serve_requests(tls, certificate, from, stopping).await;
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

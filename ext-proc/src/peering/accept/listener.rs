//! Accepts TCP connections, runs their TLS handshakes, and verifies their callers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;

use super::limiter::{ConnectionPermit, VerifiedConnection};
use super::{AcceptorContext, MessageHandler};
use crate::peering::TransportSecurity;
use crate::peering::credentials::region_of;
use crate::peering::transport::Transport;

/// Limit of TLS handshakes at once; further callers wait in the system's queue.
const HANDSHAKES_MAX: usize = 128;

/// Bounds on draining a connection whose handshake failed, in time and bytes. A socket that closes with unread bytes resets
/// the connection, and the caller loses the TLS alert.
const DRAIN_MAX: Duration = Duration::from_millis(500);
const DRAIN_BYTES: usize = 16 * 1024;

/// Pause when the system has no socket for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection whose handshake has succeeded.
pub(super) type AcceptedConnection = Transport<ConnectionPermit>;

impl Connected for AcceptedConnection {
    type ConnectInfo = VerifiedConnection;

    fn connect_info(&self) -> VerifiedConnection {
        self.context.connection.clone()
    }
}

impl<H: MessageHandler> AcceptorContext<H> {
    /// Accepts connections until this future is dropped; dropping it ends all handshakes.
    pub(super) async fn listen(
        self: Arc<Self>,
        listener: TcpListener,
        accepted: mpsc::Sender<AcceptedConnection>,
    ) {
        let permits = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let mut handshakes = JoinSet::new();
        loop {
            while handshakes.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            let (socket, from) = match listener.accept().await {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (this, accepted) = (Arc::clone(&self), accepted.clone());
            handshakes.spawn(async move {
                let _permit = permit;
                match timeout(this.hello_max, this.accept(socket, from)).await {
                    // The send fails when the server has stopped.
                    Ok(Ok(Some(connection))) => drop(accepted.send(connection).await),
                    // For example a health check.
                    Ok(Ok(None)) => tracing::debug!(%from, "caller disconnected"),
                    Ok(Err(reason)) => this.reject(from, &reason),
                    Err(_) => this.reject(from, "the TLS handshake took too long"),
                }
            });
        }
    }

    /// Runs the handshake of a connection; `None` when the caller disconnects.
    async fn accept(
        &self,
        socket: TcpStream,
        from: SocketAddr,
    ) -> Result<Option<AcceptedConnection>, String> {
        // The option only reduces latency.
        let _ = socket.set_nodelay(true);
        let TransportSecurity::Tls(credentials) = self.identity.security() else {
            let permit = self.limiter.acquire(None, from)?;
            return Ok(Some(Transport::new(socket, permit)));
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&credentials.current().server));
        let tls = match acceptor.accept(socket).into_fallible().await {
            Ok(tls) => tls,
            Err((error, _)) if is_disconnect(&error) => return Ok(None),
            Err((error, socket)) => {
                drain(socket).await;
                return Err(error.to_string());
            }
        };
        let certificate = tls.get_ref().1.peer_certificates();
        let certificate = certificate.and_then(<[_]>::first).ok_or("no certificate")?;
        let region = region_of(certificate, self.identity.allowed());
        let region = region.map_err(|error| error.to_string())?;
        let permit = self.limiter.acquire(Some(region), from)?;
        Ok(Some(Transport::new(tls, permit)))
    }

    fn reject(&self, from: SocketAddr, reason: &str) {
        tracing::debug!(%from, reason, "connection rejected");
        self.handler.on_rejected(Some(from), reason);
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

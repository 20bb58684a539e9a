//! The sockets that Envoy connects to. The service believes a client because of the address that it listens on.
//!
//! Rejected: names of clients beside the authority, since a private authority for Envoys says the same; resumed TLS sessions,
//! which skip the check of the client's certificate; a warning for plaintext, which changes no deployment.

use std::io;
use std::net::{self, SocketAddr};
use std::os::unix;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::OwnedSemaphorePermit;

use super::authority::AuthorityReplacer;
use super::bounded_connection::BoundedConnection;
use super::socket_file::SocketFile;
use super::tls::{self, GatewayTls};
use crate::config::{Config, Listen};

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    /// A TCP socket whose connections have TLS.
    Tls(TcpListener, Arc<GatewayTls>),
    /// A Unix socket with its file.
    Unix(UnixListener, SocketFile),
}

/// The sockets of a configuration.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) sockets: Vec<Socket>,
    pub(super) tls: Option<Arc<GatewayTls>>,
    /// For health checks alone.
    pub(super) health: Option<TcpListener>,
}

impl Listeners {
    /// Opens the sockets.
    /// Fails when an address cannot be listened on, or the certificate cannot be used.
    pub(super) async fn open(config: &Config) -> anyhow::Result<Self> {
        let mut listeners = Self {
            sockets: Vec::new(),
            tls: None,
            health: None,
        };
        for address in &config.listen {
            let socket = Socket::open(address).await;
            let socket = socket.with_context(|| format!("cannot listen on {address}"))?;
            listeners.sockets.push(socket);
        }
        if let Some(tls) = &config.tls {
            let shared = Arc::new(GatewayTls::load(tls, tls::GRPC)?);
            for address in &tls.listen {
                let socket = bind(*address, "tls.listen").await?;
                let socket = Socket::Tls(socket, Arc::clone(&shared));
                listeners.sockets.push(socket);
            }
            listeners.tls = Some(shared);
        }
        if let Some(address) = config.health_listen {
            listeners.health = Some(bind(address, "health_listen").await?);
        }
        Ok(listeners)
    }
}

/// Formats addresses for the log.
pub(super) fn joined(addresses: &[Listen]) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(",")
}

/// Listens on the address of an option. Fails with the name of the option.
pub(super) async fn bind(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    let socket = TcpListener::bind(address).await;
    socket.with_context(|| format!("cannot listen on {address} (`{option}`)"))
}

impl Socket {
    async fn open(address: &Listen) -> anyhow::Result<Self> {
        match address {
            Listen::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Listen::Unix(path) => {
                let (listener, file) = SocketFile::listen(path).await?;
                Ok(Self::Unix(listener, file))
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<AcceptedConnection> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(AcceptedConnection::Tcp(stream.into_std()?))
            }
            Self::Tls(listener, tls) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(AcceptedConnection::Tls(stream.into_std()?, Arc::clone(tls)))
            }
            Self::Unix(listener, _file) => {
                let (stream, _) = listener.accept().await?;
                Ok(AcceptedConnection::Unix(stream.into_std()?))
            }
        }
    }

    /// Returns the address, with the port that the system chose.
    pub(super) fn address(&self) -> anyhow::Result<Listen> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => Ok(Listen::Tcp(listener.local_addr()?)),
            Self::Unix(_, file) => Ok(Listen::Unix(file.path().to_owned())),
        }
    }
}

/// An accepted connection on its way to a worker; it belongs to no runtime.
#[derive(Debug)]
pub(super) enum AcceptedConnection {
    Tcp(net::TcpStream),
    Tls(net::TcpStream, Arc<GatewayTls>),
    Unix(unix::net::UnixStream),
}

impl AcceptedConnection {
    /// Registers the connection with the current runtime, and encrypts it if it has TLS. The connection counts by `permit`.
    pub(super) async fn into_stream(
        self,
        permit: OwnedSemaphorePermit,
    ) -> anyhow::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(stream) => bounded(TcpStream::from_std(stream)?, permit),
            Self::Tls(stream, tls) => {
                bounded(tls.accept(TcpStream::from_std(stream)?).await?, permit)
            }
            Self::Unix(stream) => bounded(UnixStream::from_std(stream)?, permit),
        })
    }
}

fn bounded(stream: impl Connection + 'static, permit: OwnedSemaphorePermit) -> Box<dyn Connection> {
    Box::new(AuthorityReplacer::new(BoundedConnection::new(
        stream, permit,
    )))
}

pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

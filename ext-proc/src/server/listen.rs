//! The sockets that Envoy connects to.

use std::io::{self, ErrorKind};
use std::net::{self, SocketAddr};
use std::os::unix;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::authority::AuthorityReplacer;
use super::tls::GatewayTls;
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
            let shared = Arc::new(GatewayTls::load(tls)?);
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

async fn bind(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    let socket = TcpListener::bind(address).await;
    socket.with_context(|| format!("cannot listen on {address} (`{option}`)"))
}

/// The file of a Unix socket, which is removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that is gone already needs no removal.
        drop(std::fs::remove_file(&self.0));
    }
}

impl Socket {
    pub(super) async fn open(address: &Listen) -> anyhow::Result<Self> {
        match address {
            Listen::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Listen::Unix(path) => {
                clear(path).await?;
                let listener = UnixListener::bind(path)?;
                Ok(Self::Unix(listener, SocketFile(path.clone())))
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
            Self::Unix(_, file) => Ok(Listen::Unix(file.0.clone())),
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
    /// Registers the connection with the current runtime, and encrypts it if it has TLS.
    pub(super) async fn into_stream(self) -> anyhow::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(stream) => replace(TcpStream::from_std(stream)?),
            Self::Tls(stream, tls) => replace(tls.accept(TcpStream::from_std(stream)?).await?),
            Self::Unix(stream) => replace(UnixStream::from_std(stream)?),
        })
    }
}

fn replace(stream: impl Connection + 'static) -> Box<dyn Connection> {
    Box::new(AuthorityReplacer::new(stream))
}

pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// Removes the socket file of a process that was killed. A socket with a listening process, and a file that is no socket,
/// stay.
async fn clear(path: &Path) -> anyhow::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            bail!("{} exists and is not a socket; remove it", path.display());
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(error.into()),
        Ok(_) => bail!("another process listens on {}", path.display()),
    }
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

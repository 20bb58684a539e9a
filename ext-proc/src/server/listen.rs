//! The sockets that Envoy connects to.

use std::io::{self, ErrorKind};
use std::net;
use std::os::unix;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::config::Listen;

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    /// A Unix socket with its file.
    Unix(UnixListener, SocketFile),
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
            Self::Unix(listener, _file) => {
                let (stream, _) = listener.accept().await?;
                Ok(AcceptedConnection::Unix(stream.into_std()?))
            }
        }
    }

    /// Returns the address, with the port that the system chose.
    pub(super) fn address(&self) -> anyhow::Result<Listen> {
        match self {
            Self::Tcp(listener) => Ok(Listen::Tcp(listener.local_addr()?)),
            Self::Unix(_, file) => Ok(Listen::Unix(file.0.clone())),
        }
    }
}

/// An accepted connection on its way to a worker; it belongs to no runtime.
#[derive(Debug)]
pub(super) enum AcceptedConnection {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

impl AcceptedConnection {
    /// Registers the connection with the current runtime.
    pub(super) fn into_stream(self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(stream) => Box::new(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Box::new(UnixStream::from_std(stream)?),
        })
    }
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

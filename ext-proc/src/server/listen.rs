//! Sockets that Envoy connects to.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net;
use std::os::unix;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::sleep;

use super::workers::Workers;
use crate::config::Listen;

/// How long to wait when no connection can be taken, for want of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An open socket.
#[derive(Debug)]
pub(super) enum Socket {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket, and the file that goes when it is closed.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; removed when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever removed it before us has done our work.
        drop(std::fs::remove_file(&self.0));
    }
}

impl Socket {
    /// Opens it.
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

    /// Takes connections and deals them out to the threads, until `stop` resolves.
    pub(super) async fn accept(self, workers: Workers, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            let next = tokio::select! {
                () = &mut stop => return,
                next = self.next() => next,
            };
            match next {
                Ok(connection) => workers.deal(connection).await,
                Err(error) => {
                    tracing::warn!(%error, "no connection can be taken");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn next(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream.into_std()?))
            }
            Self::Unix(listener, _file) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted::Unix(stream.into_std()?))
            }
        }
    }

    /// Where it is, with the port that the system chose.
    pub(super) fn address(&self) -> anyhow::Result<Listen> {
        match self {
            Self::Tcp(listener) => Ok(Listen::Tcp(listener.local_addr()?)),
            Self::Unix(_, file) => Ok(Listen::Unix(file.0.clone())),
        }
    }
}

/// A connection on its way to the thread that will serve it; it belongs to no runtime.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

impl Accepted {
    /// Makes it one of the runtime that this is called in.
    pub(super) fn into_stream(self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(stream) => Box::new(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Box::new(UnixStream::from_std(stream)?),
        })
    }
}

/// A connection of either kind.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// Makes way for a new socket: a process that was killed leaves its file behind. A socket that somebody answers on,
/// and a file that is no socket, stay.
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

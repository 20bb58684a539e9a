//! Sockets that Envoy connects to.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::config::Listen;

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

    /// Where it is, with the port that the system chose.
    pub(super) fn address(&self) -> anyhow::Result<Listen> {
        match self {
            Self::Tcp(listener) => Ok(Listen::Tcp(listener.local_addr()?)),
            Self::Unix(_, file) => Ok(Listen::Unix(file.0.clone())),
        }
    }
}

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

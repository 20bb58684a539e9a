//! The file of a Unix socket: its permissions, and its removal.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::net::{UnixListener, UnixStream};

/// Permissions of a socket's file, for its user and its group. A folder with the setgid bit gives the file its own group.
const MODE: u32 = 0o660;

/// The file of a Unix socket, which is removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that is gone already needs no removal.
        drop(std::fs::remove_file(&self.0));
    }
}

impl SocketFile {
    /// Listens on a path.
    /// Fails when another process listens there, or the path is no socket.
    pub(super) async fn listen(path: &Path) -> anyhow::Result<(UnixListener, Self)> {
        clear(path).await?;
        let listener = UnixListener::bind(path)?;
        let file = Self(path.to_owned());
        std::fs::set_permissions(path, Permissions::from_mode(MODE))?;
        Ok((listener, file))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_for_its_user_and_its_group_and_leaves_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grpc.sock");
        let (_listener, file) = SocketFile::listen(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        drop(file);
        assert!(!path.exists());
    }
}

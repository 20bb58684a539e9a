//! The file of a Unix socket: its permissions, and its removal.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::unistd::Group;
use tokio::net::{UnixListener, UnixStream};

use crate::config::UnixSocketConfig;

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
    /// Listens on a path with the configured permissions.
    /// Fails when another process listens there, the path is no socket, or the group is unknown.
    pub(super) async fn listen(
        path: &Path,
        config: &UnixSocketConfig,
    ) -> anyhow::Result<(UnixListener, Self)> {
        clear(path).await?;
        let listener = UnixListener::bind(path)?;
        let file = Self(path.to_owned());
        if let Some(group) = &config.group {
            let id = group_id(group)?;
            chown(path, None, Some(id))
                .with_context(|| format!("cannot give the file to the group `{group}`"))?;
        }
        // Last, so that only the final group gets the permissions.
        std::fs::set_permissions(path, Permissions::from_mode(config.mode.0))?;
        Ok((listener, file))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Returns the number of a group that is given by name or number.
fn group_id(group: &str) -> anyhow::Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let found = Group::from_name(group).context("cannot read the groups of this system")?;
    let found = found.with_context(|| format!("`unix.group`: there is no group `{group}`"))?;
    Ok(found.gid.as_raw())
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
    use crate::config::SocketMode;

    #[tokio::test]
    async fn a_socket_has_the_configured_mode_and_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grpc.sock");
        let config = UnixSocketConfig {
            mode: SocketMode(0o600),
            group: Some(nix::unistd::getgid().to_string()),
        };
        let (_listener, file) = SocketFile::listen(&path, &config).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_unknown_group_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grpc.sock");
        let config = UnixSocketConfig {
            group: Some("no-such-group".into()),
            ..UnixSocketConfig::default()
        };
        let error = SocketFile::listen(&path, &config).await.unwrap_err();
        assert!(error.to_string().contains("no-such-group"), "{error}");
        assert!(!path.exists(), "no socket is left behind");
    }
}

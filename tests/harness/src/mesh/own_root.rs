//! A root folder of its own for Envoy Gateway, with what only a cluster has: certificates at `/certs`, and names of Services.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::control_plane::{ControlPlane, User};

/// Makes a root folder of this machine's folders, and starts a program in it. What Envoy Gateway creates in `/var/lib`, where
/// it keeps modules, is gone with the program.
const ENTER: &str = r#"
set -eu
root=$1 certificates=$2 hosts=$3
shift 3
mirror() {
    mount -t tmpfs tmpfs "$root$1"
    for entry in "$1"/*; do
        if [ -L "$entry" ]; then
            cp -P "$entry" "$root$entry"
        elif [ -d "$entry" ]; then
            mkdir "$root$entry"
            mount --rbind "$entry" "$root$entry"
        fi
    done
}
mirror ""
mirror /var/lib
mkdir -p "$root/certs"
mount --bind "$certificates" "$root/certs"
mount --bind "$hosts" "$root/etc/hosts"
exec chroot "$root" "$@"
"#;

/// Fails where the system allows no root folder of its own.
pub(super) fn check_root() -> anyhow::Result<()> {
    let mut mount = Command::new("unshare");
    mount.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]);
    let mounted = mount.output().context("cannot start unshare")?;
    ensure!(
        mounted.status.success(),
        "Envoy Gateway needs a root folder of its own (`unshare --mount`): {}",
        String::from_utf8_lossy(&mounted.stderr).trim()
    );
    Ok(())
}

/// The program in a root folder with Envoy Gateway's certificates and these names of Services.
pub(super) fn in_own_root(
    program: &Path,
    plane: &ControlPlane,
    directory: &Path,
    services: &[(IpAddr, &str)],
) -> anyhow::Result<Command> {
    let root = directory.join("root");
    fs::create_dir(&root)?;
    let hosts = directory.join("hosts");
    let mut names = vec!["127.0.0.1 localhost".to_owned()];
    names.extend(
        services
            .iter()
            .map(|(address, name)| format!("{address} {name}")),
    );
    fs::write(&hosts, names.join("\n") + "\n")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", ENTER, "sh"]);
    command.arg(root);
    command.arg(directory.join("config/certs/envoy-gateway"));
    command.arg(hosts).arg(program);
    command.env("KUBECONFIG", plane.kubeconfig(User::Admin)?);
    Ok(command)
}

//! The programs for arm64, under qemu where this machine is another one.

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use tar::Archive;
use tempfile::TempDir;

use crate::files::{find, successful, variable};
use crate::packages::ROUTE;

/// Names of qemu's emulator of programs.
const QEMU: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];

/// The programs below the prefix.
const PROGRAMS: [&str; 3] = [
    "bin/isotherm",
    "libexec/isotherm/isotherm-engine",
    "libexec/isotherm/isotherm-demo",
];

/// A configuration for `isotherm check`.
const CONFIGURATION: &str = "../../examples/quickstart/isotherm.yaml";

#[test]
fn the_programs_for_arm64_run() -> anyhow::Result<()> {
    let Some(folder) = unpack()? else {
        return Ok(());
    };
    let run = |path: &str, arguments: &[&str]| -> anyhow::Result<String> {
        let mut program = Command::new(folder.path().join(path));
        let output = successful(program.args(arguments))?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let version = run("bin/isotherm", &["--version"])?;
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    run("bin/isotherm", &["check", CONFIGURATION])?;
    run("libexec/isotherm/isotherm-engine", &["--help"])?;
    run("libexec/isotherm/isotherm-demo", &["--help"])?;
    Ok(())
}

#[test]
fn the_service_for_arm64_decides_behind_an_envoy_of_this_machine() -> anyhow::Result<()> {
    let Some(folder) = unpack()? else {
        return Ok(());
    };
    let mut route = Command::new("python3");
    route.current_dir(folder.path()).args(["-c", ROUTE]);
    successful(route.arg(folder.path()).arg(variable("ISOTHERM_ENVOY")?))?;
    Ok(())
}

/// A prefix with the programs of the archive for arm64; `None` where they cannot run, which is printed.
fn unpack() -> anyhow::Result<Option<TempDir>> {
    let Ok(archive) = find("isotherm-", "-aarch64-linux.tar.gz") else {
        println!("no programs for arm64: this release has the host's architecture only");
        return Ok(None);
    };
    let qemu = emulator();
    if qemu.is_none() && env::consts::ARCH != "aarch64" {
        println!("the programs for arm64 do not run: no qemu; install `qemu-user-static`");
        return Ok(None);
    }
    let folder = tempfile::tempdir()?;
    Archive::new(GzDecoder::new(File::open(&archive)?)).unpack(folder.path())?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let prefix = folder.path().join(name.trim_end_matches(".tar.gz"));
    for program in PROGRAMS {
        let path = folder.path().join(program);
        fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
        match &qemu {
            Some(qemu) => write_script(&path, qemu, &prefix.join(program))?,
            None => symlink(prefix.join(program), path)?,
        }
    }
    Ok(Some(folder))
}

/// Writes a script that starts a program under qemu.
fn write_script(path: &Path, qemu: &Path, program: &Path) -> anyhow::Result<()> {
    let [qemu, program] = [qemu, program].map(Path::display);
    fs::write(path, format!("#!/bin/sh\nexec {qemu} {program} \"$@\"\n"))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

/// The emulator, where this machine needs one and has it.
fn emulator() -> Option<PathBuf> {
    let folders = env::var_os("PATH").filter(|_| env::consts::ARCH != "aarch64")?;
    let mut found =
        env::split_paths(&folders).flat_map(|folder| QEMU.map(|name| folder.join(name)));
    found.find(|path| path.is_file())
}

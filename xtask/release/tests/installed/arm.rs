//! The programs for arm64, under qemu where this machine is another one.

use std::env;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use flate2::read::GzDecoder;
use tar::Archive;

use crate::files::{find, successful};

/// Names of qemu's emulator of programs.
const QEMU: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];

/// A configuration for `isotherm check`.
const CONFIGURATION: &str = "../../examples/quickstart/isotherm.yaml";

#[test]
fn the_programs_for_arm64_run() -> anyhow::Result<()> {
    let Ok(archive) = find("isotherm-", "-aarch64-linux.tar.gz") else {
        println!("no programs for arm64: this release has the host's architecture only");
        return Ok(());
    };
    let Some(mut emulator) = emulator() else {
        println!("the programs for arm64 do not run: no qemu; install `qemu-user-static`");
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    Archive::new(GzDecoder::new(File::open(&archive)?)).unpack(folder.path())?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let prefix = folder.path().join(name.trim_end_matches(".tar.gz"));
    let mut run = |path: &str, arguments: &[&str]| -> anyhow::Result<String> {
        let mut program = emulator(prefix.join(path));
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

/// A function that makes the command of a program for arm64 from its path.
fn emulator() -> Option<Box<dyn FnMut(PathBuf) -> Command>> {
    if env::consts::ARCH == "aarch64" {
        return Some(Box::new(Command::new));
    }
    let folders = env::var_os("PATH")?;
    let mut found =
        env::split_paths(&folders).flat_map(|folder| QEMU.map(|name| folder.join(name)));
    let qemu = found.find(|path| path.is_file())?;
    Some(Box::new(move |program| {
        let mut command = Command::new(&qemu);
        command.arg(program);
        command
    }))
}

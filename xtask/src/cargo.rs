//! Where the project is, and how its parts are built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{run, say};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where what this project makes and names in its documents goes: Envoy, the filter, reports.
///
/// Not cargo's target directory, which a person may have moved elsewhere: the paths in `envoy/standalone.yaml` and in
/// the README hold wherever that is.
pub(crate) fn made(root: &Path) -> PathBuf {
    root.join("target")
}

/// `cargo` as this program was started by, in the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// Builds the binaries of these packages in release mode, and returns the directory that holds them.
pub(crate) fn build_release(root: &Path, packages: &[&str]) -> anyhow::Result<PathBuf> {
    say(&format!("building {} (release)", packages.join(", ")));
    let mut command = cargo(root);
    command.args(["build", "--release", "--locked", "--bins"]);
    for package in packages {
        command.args(["--package", package]);
    }
    run(&mut command)?;
    Ok(target_dir(root).join("release"))
}

/// Builds the service as it is delivered, and returns the program.
pub(crate) fn build_delivered(root: &Path) -> anyhow::Result<PathBuf> {
    say("building isotherm (dist)");
    let mut command = cargo(root);
    command.args(["build", "--profile", "dist", "--locked"]);
    run(command.args(["--package", "isotherm-ext-proc", "--bin", "isotherm"]))?;
    Ok(target_dir(root).join("dist").join("isotherm"))
}

/// Where cargo builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(given) => root.join(given), // an absolute one replaces the root
        None => root.join("target"),
    }
}

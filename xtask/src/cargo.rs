//! Paths of the project, and `cargo` on its packages.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{announce, run};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The folder of everything that the documents name: Envoy, the filter, reports.
///
/// It differs from cargo's target directory where a user has moved that one. The paths in `envoy/standalone.yaml` and in
/// the README hold all the same.
pub(crate) fn output_directory(root: &Path) -> PathBuf {
    root.join("target")
}

/// The `cargo` that started this program, in the root of the workspace.
///
/// Cargo describes xtask in variables of its environment. They are removed: a build script that reads them, like that of
/// ring, would run again, with everything built on it, at each change between `cargo xtask` and `cargo`.
pub(crate) fn cargo(root: &Path) -> Command {
    const OF_THIS_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if OF_THIS_PACKAGE.iter().any(|start| text.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Builds binaries of these packages in release mode, all of them or `only` some, and returns the directory that holds them.
pub(crate) fn build_release(
    root: &Path,
    packages: &[&str],
    only: &[&str],
) -> anyhow::Result<PathBuf> {
    announce(&format!("building {} (release)", packages.join(", ")));
    let mut command = cargo(root);
    command.args(["build", "--release", "--locked"]);
    if only.is_empty() {
        command.arg("--bins");
    }
    for program in only {
        command.args(["--bin", program]);
    }
    for package in packages {
        command.args(["--package", package]);
    }
    run(&mut command)?;
    Ok(target_dir(root).join("release"))
}

/// Builds every program and every test. The end-to-end tests start the programs of the workspace, so one build makes both.
pub(crate) fn build_all(root: &Path) -> anyhow::Result<()> {
    run(cargo(root).args(["build", "--locked", "--quiet", "--bins", "--tests"]))
}

/// Cargo's target directory.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(given) => root.join(given), // an absolute one replaces the root
        None => root.join("target"),
    }
}

//! `demo`, `up`, `validate`, `bench path`, `profile`: gets and builds what they need, then hands over to the program that does the work.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::cargo::{build_delivered, build_release, made, root};
use crate::envoy;
use crate::filter::{self, Wasm};

const BENCH_PATH: &str = "isotherm-bench-path";

/// Replaces this program by `isotherm-demo MODE ARGUMENTS`, with everything that it starts in place.
///
/// # Errors
/// When something cannot be downloaded, built or started.
pub(crate) fn run(mode: &str, arguments: &[String]) -> anyhow::Result<()> {
    let arguments = [mode].into_iter().chain(texts(arguments));
    start("isotherm-demo", "isotherm-demo", arguments, &[])
}

/// Replaces this program by `isotherm-bench-path ARGUMENTS`, in the same way.
///
/// # Errors
/// When something cannot be downloaded, built or started.
pub(crate) fn bench_path(arguments: &[String]) -> anyhow::Result<()> {
    if wants_help(arguments) {
        return start(BENCH_PATH, BENCH_PATH, texts(arguments), &[]);
    }
    let module = filter::build(&root(), Wasm::BenchFilter)?;
    let service = build_delivered(&root())?;
    let more = [("ISOTHERM_BENCH_FILTER", module), ("ISOTHERM_BIN", service)];
    start(BENCH_PATH, BENCH_PATH, texts(arguments), &more)
}

/// Replaces this program by `isotherm-profile ARGUMENTS`, in the same way.
///
/// # Errors
/// When something cannot be downloaded, built or started.
pub(crate) fn profile(arguments: &[String]) -> anyhow::Result<()> {
    start(BENCH_PATH, "isotherm-profile", texts(arguments), &[])
}

fn texts(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().map(String::as_str)
}

fn wants_help(arguments: &[impl AsRef<str>]) -> bool {
    arguments
        .iter()
        .any(|one| ["--help", "-h"].contains(&one.as_ref()))
}

fn start<'a>(
    package: &str,
    program: &str,
    arguments: impl Iterator<Item = &'a str>,
    more: &[(&str, PathBuf)],
) -> anyhow::Result<()> {
    let root = root();
    let arguments: Vec<&str> = arguments.collect();
    if wants_help(&arguments) {
        // Help needs neither Envoy nor the filter nor the service.
        let binaries = build_release(&root, &[package])?;
        return hand_over(Command::new(binaries.join(program)).args(arguments));
    }
    let envoy = envoy::obtain(&root)?;
    let filter = filter::build(&root, Wasm::Filter)?;
    let packages = ["isotherm-ext-proc", "isotherm-engine", package];
    let binaries = build_release(&root, &packages)?;
    let mut command = Command::new(binaries.join(program));
    command
        .args(arguments)
        .env("ISOTHERM_ENVOY", envoy)
        .env("ISOTHERM_FILTER", filter)
        .env("ISOTHERM_OUTPUT", made(&root))
        .envs(more.iter().map(|(name, path)| (name, path)));
    hand_over(&mut command)
}

/// The program takes this process's place, so that Ctrl-C reaches it and nothing else has to be waited for.
#[cfg(unix)]
pub(crate) fn hand_over(command: &mut Command) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt as _;
    Err(command.exec())
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))
}

#[cfg(not(unix))]
pub(crate) fn hand_over(command: &mut Command) -> anyhow::Result<()> {
    crate::process::run(command)
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_is_asked_for_anywhere() {
        assert!(super::wants_help(&["demo", "--regions", "3", "-h"]));
        assert!(super::wants_help(&["--help".to_owned()]));
        assert!(!super::wants_help(&["demo", "--hel"]));
    }
}

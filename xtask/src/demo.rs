//! `demo`, `up`, `bench path`, `profile`: gets and builds what they need, then hands over to the program that does the work.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::cargo::{build_release, made, root};
use crate::envoy;
use crate::filter::{self, Wasm};

/// Replaces this program by `isotherm-demo MODE ARGUMENTS`, with everything that it starts in place.
///
/// # Errors
/// When something cannot be downloaded, built or started.
pub(crate) fn run(mode: &str, arguments: &[String]) -> anyhow::Result<()> {
    start(
        "isotherm-demo",
        [mode].into_iter().chain(texts(arguments)),
        &[],
    )
}

/// Replaces this program by `isotherm-bench-path ARGUMENTS`, in the same way.
///
/// # Errors
/// When something cannot be downloaded, built or started.
pub(crate) fn bench_path(arguments: &[String]) -> anyhow::Result<()> {
    let module = filter::build(&root(), Wasm::BenchFilter)?;
    start(
        "isotherm-bench-path",
        texts(arguments),
        &[("ISOTHERM_BENCH_FILTER", module)],
    )
}

/// Replaces this program by `isotherm-profile ARGUMENTS`, in the same way.
///
/// # Errors
/// When something cannot be downloaded, built or started.
pub(crate) fn profile(arguments: &[String]) -> anyhow::Result<()> {
    start("isotherm-profile", texts(arguments), &[])
}

fn texts(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().map(String::as_str)
}

fn start<'a>(
    program: &str,
    arguments: impl Iterator<Item = &'a str>,
    more: &[(&str, PathBuf)],
) -> anyhow::Result<()> {
    let root = root();
    let envoy = envoy::obtain(&root)?;
    let filter = filter::build(&root, Wasm::Filter)?;
    let binaries = build_release(&root, &["isotherm", "isotherm-engine", "isotherm-load"])?;
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

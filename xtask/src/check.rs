//! `test`: the whole check, the same for a person and for CI.
//!
//! From cheap to dear, so that a missing semicolon is not found after ten minutes. The tests come last and print
//! straight to the terminal, so the last lines are the test runner's own. Clippy and rustdoc share what they compile;
//! the tests are built once, in the same target directory and profile as what they start.

use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use crate::cargo::{cargo, root};
use crate::process::{self, output, say};
use crate::{envoy, filter, licences};

/// Runs every step; stops at the first that fails.
///
/// # Errors
/// What the failed step said.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = root();

    step("format", || {
        process::run(cargo(&root).args(["fmt", "--all", "--check"]))
    })?;
    step("licences, sources, advisories", || licences::check(&root))?;
    step("lints", || {
        process::run(cargo(&root).args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("documentation", || {
        process::run(
            cargo(&root)
                .args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })?;
    let filter = step("filter", || filter::build(&root))?;
    let envoy = step("Envoy", || envoy::obtain(&root))?;
    step("Envoy's configuration", || {
        output(Command::new(&envoy).current_dir(&root).args([
            "--mode",
            "validate",
            "--log-level",
            "warning",
            "--config-path",
            "envoy/standalone.yaml",
        ]))
        .map(|_| ())
        .context("envoy/standalone.yaml is refused by Envoy")
    })?;

    say("tests");
    // The service and the engine as programs of their own: the end-to-end tests start them.
    let programs = [
        "build",
        "--locked",
        "--quiet",
        "--package",
        "isotherm",
        "--package",
        "isotherm-engine",
        "--bins",
    ];
    process::run(cargo(&root).args(programs))?;
    process::run(
        cargo(&root)
            .args(["test", "--locked"])
            .env("ISOTHERM_ENVOY", &envoy)
            .env("ISOTHERM_FILTER", &filter),
    )
}

fn step<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    say(name);
    let start = Instant::now();
    let done = work().with_context(|| name.to_owned())?;
    say(&format!(
        "{name}: good, {:.1} s",
        start.elapsed().as_secs_f64()
    ));
    Ok(done)
}

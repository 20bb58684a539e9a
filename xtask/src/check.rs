//! `test`: the whole check, the same for a person and for CI.
//!
//! From cheap to dear, so that a missing semicolon is not found after ten minutes. The tests come last and print
//! straight to the terminal, so the last lines are the test runner's own. Clippy and rustdoc share what they compile;
//! the tests are built once, in the same target directory and profile as what they start.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use crate::cargo::{cargo, root, target_dir};
use crate::filter::{self, Wasm};
use crate::process::{self, output, say};
use crate::{counts, envoy, examples, licences};

/// Every bootstrap in the repository that is written by hand.
const ENVOY_FILES: [&str; 2] = ["envoy/standalone.yaml", "envoy/region.yaml"];

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
    let filter = step("filter", || filter::build(&root, Wasm::Filter))?;
    let envoy = step("Envoy", || envoy::obtain(&root))?;
    step("Envoy's configuration", || {
        examples::check(&root)?;
        ENVOY_FILES
            .into_iter()
            .map(str::to_owned)
            .chain(examples::envoy_files())
            .try_for_each(|file| validate(&root, &envoy, &file))
    })?;

    step("instruction counts", || counts::run(&[]))?;

    say("tests");
    // The service and the engine as programs of their own: the end-to-end tests start them.
    let programs = [
        "build",
        "--locked",
        "--quiet",
        "--package",
        "isotherm-ext-proc",
        "--package",
        "isotherm-engine",
        "--bins",
    ];
    process::run(cargo(&root).args(programs))?;
    examples::check_services(&root, &target_dir(&root).join("debug/isotherm"))?;
    process::run(
        cargo(&root)
            .args(["test", "--locked"])
            .env("ISOTHERM_ENVOY", &envoy)
            .env("ISOTHERM_FILTER", &filter),
    )
}

/// Whether Envoy takes a file; its paths are relative to the root of the repository.
fn validate(root: &Path, envoy: &Path, file: &str) -> anyhow::Result<()> {
    let mut command = Command::new(envoy);
    command.current_dir(root).args([
        "--mode",
        "validate",
        "--log-level",
        "warning",
        "--config-path",
        file,
    ]);
    output(&mut command)
        .map(|_| ())
        .with_context(|| format!("{file} is refused by Envoy"))
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

//! `bench counts`, and a step of `test`: builds what is counted, then counts it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::cargo::{build_release, cargo, root, target_dir};
use crate::compiler;
use crate::filter::{self, Wasm};
use crate::process::{self, announce};

/// The committed figures.
const BASELINE: &str = "tests/bench/counts/baseline.json";

/// Paths of the programs whose instructions are counted.
pub(crate) struct CountedPrograms {
    filter: PathBuf,
    bench_filter: PathBuf,
    unit: PathBuf,
}

/// Builds the programs whose instructions are counted, outside Cargo's directory of debug builds.
pub(crate) fn build(root: &Path) -> anyhow::Result<CountedPrograms> {
    Ok(CountedPrograms {
        filter: filter::build(root, Wasm::Filter)?,
        bench_filter: filter::build(root, Wasm::BenchFilter)?,
        unit: build_release(root, &["isotherm-bench-core"], &[])?.join("isotherm-bench-unit"),
    })
}

/// Counts, and compares with the baseline, or makes the figures the baseline.
pub(crate) fn run(accept: bool) -> anyhow::Result<()> {
    let root = root();
    let counted = build(&root)?;
    // The tests need the interpreter in this profile, too. With a test, Cargo selects the features that they have.
    announce("building isotherm-bench-counts");
    let mut build = cargo(&root);
    build.args(["build", "--locked", "--quiet", "--test", "prose"]);
    process::run(build.args(["--bin", "isotherm-bench-counts"]))?;
    let compiler = compiler::version_of(Command::new("rustc").current_dir(&root))?;
    let status = Command::new(target_dir(&root).join("debug/isotherm-bench-counts"))
        .arg("--baseline")
        .arg(root.join(BASELINE))
        .arg("--filter")
        .arg(counted.filter)
        .arg("--bench-filter")
        .arg(counted.bench_filter)
        .args(["--wasm-compiler", &filter::compiler(&root)?])
        .arg("--unit")
        .arg(counted.unit)
        .arg("--compiler")
        .arg(format!("{compiler}, {}", std::env::consts::ARCH))
        .args(accept.then_some("--accept"))
        .status()?;
    if !status.success() {
        bail!(
            "the hot paths execute more instructions than {BASELINE} allows, or could not be counted"
        );
    }
    Ok(())
}

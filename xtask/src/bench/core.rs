//! `bench core`: Criterion natively, the memory of the index, and the extractor inside Envoy's V8.

use std::process::Command;

use super::sandbox;
use crate::cargo::{build_release, cargo, root};
use crate::process::{announce, run as run_program};

/// The packages whose benches are the core's.
const PACKAGES: [&str; 2] = ["isotherm-bench-core", "isotherm-regions"];
/// Sizes of the index in nodes.
const INDEX_NODES: [&str; 3] = ["10000", "1000000", "10000000"];

/// Runs everything; `filters` are Criterion's: only benches whose names contain them.
pub(crate) fn run(filters: &[String]) -> anyhow::Result<()> {
    let root = root();
    for package in PACKAGES {
        let mut bench = cargo(&root);
        bench.args(["bench", "--locked", "--package", package, "--"]);
        run_program(bench.args(filters))?;
    }
    if filters.is_empty() {
        announce("memory of the index");
        let unit = build_release(&root, &["isotherm-bench-core"], &[])?.join("isotherm-bench-unit");
        for nodes in INDEX_NODES {
            run_program(Command::new(&unit).args(["memory", nodes]))?;
        }
    }
    if filters.is_empty() || filters.iter().any(|filter| filter.contains("extract")) {
        announce("the extractor inside Envoy's V8");
        sandbox::time(&root)?;
    }
    Ok(())
}

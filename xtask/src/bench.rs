//! `bench`: the Criterion benches of the workspace.

use crate::cargo::{cargo, root};
use crate::process;

/// Runs `cargo bench` with these arguments; for example `cargo xtask bench --package isotherm-router`.
///
/// # Errors
/// When a bench cannot be built or fails.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    process::run(cargo(&root()).args(["bench", "--locked"]).args(arguments))
}

//! `bench`: what requests cost on their way (`path`), and the Criterion benches of the workspace.

use crate::cargo::{cargo, root};
use crate::{demo, process};

/// `path` measures whole requests through Envoy; anything else goes to `cargo bench`, for example
/// `cargo xtask bench --package isotherm-router`.
///
/// # Errors
/// When a bench cannot be built or fails.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    match arguments.split_first() {
        Some((first, others)) if first == "path" => demo::bench_path(others),
        _ => process::run(cargo(&root()).args(["bench", "--locked"]).args(arguments)),
    }
}

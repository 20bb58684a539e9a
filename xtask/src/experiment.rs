//! `experiment`: the headline tables of the papers, in the simulator.

use std::process::Command;

use crate::cargo::{build_release, made, root};
use crate::demo::hand_over;

/// Replaces this program by `isotherm-sim experiment ARGUMENTS`, built in release mode.
///
/// # Errors
/// When it cannot be built or started.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let root = root();
    let binaries = build_release(&root, &["isotherm-experiments"])?;
    let mut command = Command::new(binaries.join("isotherm-sim"));
    command
        .arg("experiment")
        .args(arguments)
        .env("ISOTHERM_OUTPUT", made(&root));
    hand_over(&mut command)
}

//! `bench core`, and any Criterion bench of the workspace by `bench cargo`.

mod core;
mod sandbox;

use crate::cargo::{self, root};
use crate::process;

pub(crate) use self::core::run as core;

/// Runs `cargo bench` with these arguments.
pub(crate) fn cargo(arguments: &[String]) -> anyhow::Result<()> {
    process::run(
        cargo::cargo(&root())
            .args(["bench", "--locked"])
            .args(arguments),
    )
}

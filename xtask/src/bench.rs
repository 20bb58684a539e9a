//! `bench`: what requests cost on their way (`path`, and `picker` beside other endpoint pickers), what slow bodies cost others
//! (`slow-bodies`), what the core costs (`core`), how many instructions that is (`counts`), and any Criterion bench of the
//! workspace.

mod core;
mod sandbox;

use crate::cargo::{cargo, root};
use crate::{counts, demo, process};

/// `path` measures whole requests through Envoy, `picker` endpoint pickers among them, `slow-bodies` requests beside slow
/// bodies, `core` the core alone, `counts` its instructions; anything else goes to `cargo bench`, for example `cargo xtask bench --package isotherm-router`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (first, others) = match arguments.split_first() {
        Some((first, others)) => (first.as_str(), others),
        None => ("", arguments),
    };
    match first {
        "path" => demo::bench_path(others),
        "picker" => demo::bench_path(&[&["--pickers".to_owned()], others].concat()),
        "slow-bodies" => demo::bench_slow_bodies(others),
        "core" => self::core::run(others),
        "counts" => counts::run(others),
        _ => process::run(cargo(&root()).args(["bench", "--locked"]).args(arguments)),
    }
}

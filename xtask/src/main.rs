//! Every chore of the project as `cargo xtask NAME`.
//!
//! Depends on next to nothing, so that the first `cargo xtask` on a fresh clone starts within seconds; whatever needs
//! real libraries (the demo, the load generator) is a binary of its own that this one builds and starts.

mod bench;
mod cargo;
mod check;
mod counts;
mod demo;
mod envoy;
mod examples;
mod experiment;
mod exports;
mod filter;
mod licences;
mod process;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::filter::Wasm;

#[derive(Parser)]
#[command(name = "cargo xtask", about, version)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

/// The chores of Isotherm.
#[derive(Subcommand)]
enum Chore {
    /// Gets the pinned Envoy, checks its checksum, and prints its path
    Envoy,
    /// Builds the filter as a WebAssembly module, and prints its path
    Filter,
    /// Makes the Envoy files of examples/three-regions/ from envoy/region.yaml
    Examples,
    /// Compares policies on four simulated replicas behind a real Envoy, or with `--regions 3` what forwarding between
    /// regions gains, and writes a report (`--help` for its options)
    #[command(disable_help_flag = true)]
    Demo(Passed),
    /// Plays one trace through a real Envoy with simulated replicas and through the simulator, and says how far they are
    /// apart (`--help` for its options)
    #[command(disable_help_flag = true)]
    Validate(Passed),
    /// Starts simulated replicas, the service and Envoy, in one region or with `--regions 3` in three, and leaves them
    /// running (`--help` for its options)
    #[command(disable_help_flag = true)]
    Up(Passed),
    /// Runs an experiment after a paper in the simulator, or `all` of them, and writes CSV, JSON and HTML to
    /// target/experiments (`--help` for its options)
    #[command(disable_help_flag = true)]
    Experiment(Passed),
    /// The whole check: format, lints, docs, licences, Envoy's configuration, every test; what CI runs
    Test,
    /// `bench path` measures requests through Envoy (`--help` for its options), `bench core` times the core, `bench counts`
    /// counts its instructions (`--accept` makes them the baseline); anything else goes to `cargo bench`
    #[command(disable_help_flag = true)]
    Bench(Passed),
    /// Shows where the time of a request goes, by `perf`: tables and flame graphs (`--help` for its options)
    #[command(disable_help_flag = true)]
    Profile(Passed),
}

/// What another program parses.
#[derive(clap::Args)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Envoy => envoy::obtain(&cargo::root()).map(|path| println!("{}", path.display())),
        Chore::Filter => {
            filter::build(&cargo::root(), Wasm::Filter).map(|path| println!("{}", path.display()))
        }
        Chore::Examples => examples::write(&cargo::root()),
        Chore::Demo(passed) => demo::run("demo", &passed.arguments),
        Chore::Validate(passed) => demo::run("validate", &passed.arguments),
        Chore::Up(passed) => demo::run("up", &passed.arguments),
        Chore::Experiment(passed) => experiment::run(&passed.arguments),
        Chore::Test => check::run(),
        Chore::Bench(passed) => bench::run(&passed.arguments),
        Chore::Profile(passed) => demo::profile(&passed.arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

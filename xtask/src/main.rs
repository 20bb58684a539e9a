//! Every chore of the project as `cargo xtask NAME`.
//!
//! This program has few dependencies, so that the first `cargo xtask` on a fresh clone starts within seconds. What
//! needs more libraries (the demo, the load generator) is a program of its own, which this one builds and starts.

mod bench;
mod cargo;
mod changelog;
mod compiler;
mod counts;
mod demo;
mod docs;
mod envoy;
mod envoys;
mod examples;
mod exports;
mod filter;
mod gateways;
mod install;
mod interfaces;
mod mesh;
mod mesh_tools;
mod page_table;
mod process;
mod publish;
mod release;
mod suite;
mod targets;
mod test_output;
mod tools;
mod workflows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::filter::Wasm;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, version)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

/// The chores of Isotherm.
#[derive(Subcommand)]
enum Chore {
    /// Builds the filter and the programs of the demo and the quickstart, once for all commands, and prints their paths
    Build,
    /// Gets the pinned Envoy, checks its checksum, and prints its path
    Envoy {
        /// Gets another version that envoy/envoy-version.toml names
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
    /// Builds the filter as a WebAssembly module, and prints its path
    Filter,
    /// Makes the Envoy files of examples/three-regions/ from envoy/region.yaml
    Examples,
    /// Builds the real programs of a mesh (helm, kube-apiserver, istiod, Envoy Gateway, ...) with Go into a cache outside
    /// `target`, where they are missing, and prints their paths
    MeshTools {
        /// Builds one program only; may be given several times
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
    },
    /// Compares policies on four simulated replicas behind a real Envoy, or with `--regions 3` what forwarding between
    /// regions gains, or with `--mesh envoy-gateway` a gateway with the standalone Envoy, and writes a report (`--help` for
    /// its options)
    #[command(disable_help_flag = true)]
    Demo(ForwardedArguments),
    /// Plays one trace through a real Envoy with simulated replicas and through the simulator, and says how far they are
    /// apart (`--help` for its options)
    #[command(disable_help_flag = true)]
    Validate(ForwardedArguments),
    /// Plays one trace through Isotherm, other projects' routers and the reference endpoint picker, to the same simulated
    /// replicas, and says who is faster (`--help` for its options)
    #[command(disable_help_flag = true)]
    Compare(ForwardedArguments),
    /// Loads the system for `--minutes N` while its processes and networks fail, checks the invariants that must hold, and
    /// writes a report to target/soak (`--help` for its options)
    #[command(disable_help_flag = true)]
    Soak(ForwardedArguments),
    /// Starts simulated replicas, the service and Envoy, in one region or with `--regions 3` in three, and leaves them
    /// running (`--help` for its options)
    #[command(disable_help_flag = true)]
    Up(ForwardedArguments),
    /// Plays a trace or a workload against every policy in the simulator (`--help` for its options)
    #[command(disable_help_flag = true)]
    Sim(ForwardedArguments),
    /// Runs an experiment after a paper in the simulator, or `all` of them, and writes a page, CSV and JSON to
    /// target/experiments (`--help` for its options)
    #[command(disable_help_flag = true)]
    Experiment(ForwardedArguments),
    /// The whole check, which CI runs: format, lints, documentation, Envoy's configuration, instruction
    /// counts, every test
    Test {
        /// Runs these steps only
        #[arg(value_name = "STEP")]
        steps: Vec<suite::Step>,
        /// Runs one step only; may be given several times
        #[arg(long, value_name = "STEP")]
        only: Vec<suite::Step>,
        /// Lists the steps instead
        #[arg(long)]
        list: bool,
    },
    /// The quick check: format, lints, tests of the cores and of the conventions
    Check,
    /// Runs the end-to-end tests whose names contain NAME, with everything they need built first
    E2e(suite::EndToEnd),
    /// Builds the programs as they are released, and writes the files of a release: archives, packages, images, chart,
    /// checksums
    Release(release::Arguments),
    /// Installs a release from its folder on a root without Rust and without the repository, and uses it
    Install {
        /// Folder that `cargo xtask release` has written
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Pushes the images and the chart of a release to a registry, and signs them; needs `oras`, `helm` and `cosign`
    Publish(publish::Arguments),
    /// Builds the site of docs/ (target/site) and the documentation of every module (target/doc)
    Docs,
    /// Measures requests through Envoy, endpoint pickers, slow bodies, the core, and its instructions
    #[command(subcommand)]
    Bench(Bench),
    /// Shows where the time of a request goes, by `perf`: tables and flame graphs (`--help` for its options)
    #[command(disable_help_flag = true)]
    Profile(ForwardedArguments),
}

/// Arguments that another program parses.
#[derive(clap::Args)]
struct ForwardedArguments {
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<String>,
}

/// The benches.
#[derive(Subcommand)]
enum Bench {
    /// Measures requests through Envoy: plain, with the filter, with Isotherm, and other routers (`--help` for its options)
    #[command(disable_help_flag = true)]
    Path(ForwardedArguments),
    /// Measures endpoint pickers beside the reference one; options as of `path`
    #[command(disable_help_flag = true)]
    Picker(ForwardedArguments),
    /// Measures requests beside slow bodies (`--help` for its options)
    #[command(disable_help_flag = true)]
    SlowBodies(ForwardedArguments),
    /// Measures requests by the number of replicas, up to ten thousand (`--help` for its options)
    #[command(disable_help_flag = true)]
    Scale(ForwardedArguments),
    /// Times the core, natively and inside Envoy's V8
    Core {
        /// Only the benches whose names contain one of these
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Counts the instructions of the hot paths, and compares them with the baseline
    Counts {
        /// Makes the figures the baseline
        #[arg(long)]
        accept: bool,
    },
    /// Runs `cargo bench` with these arguments, for example `--package isotherm-router`
    #[command(disable_help_flag = true)]
    Cargo(ForwardedArguments),
}

/// `cargo xtask envoy`.
fn print_envoy(version: Option<&str>) -> anyhow::Result<()> {
    let root = cargo::root();
    let path = match version {
        Some(version) => envoy::obtain_version(&root, version)?,
        None => envoy::obtain(&root)?,
    };
    println!("{}", path.display());
    Ok(())
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Build => demo::build(),
        Chore::Envoy { version } => print_envoy(version.as_deref()),
        Chore::Filter => {
            filter::build(&cargo::root(), Wasm::Filter).map(|path| println!("{}", path.display()))
        }
        Chore::Examples => examples::write(&cargo::root()),
        Chore::MeshTools { only } => mesh_tools::build(&only),
        Chore::Demo(forwarded) => demo::run("demo", &forwarded.arguments),
        Chore::Validate(forwarded) => demo::run("validate", &forwarded.arguments),
        Chore::Compare(forwarded) => demo::run("compare", &forwarded.arguments),
        Chore::Soak(forwarded) => demo::run("soak", &forwarded.arguments),
        Chore::Up(forwarded) => demo::run("up", &forwarded.arguments),
        Chore::Sim(forwarded) => demo::simulator("sim", &forwarded.arguments),
        Chore::Experiment(forwarded) => demo::simulator("experiment", &forwarded.arguments),
        Chore::Test { list: true, .. } => {
            suite::list();
            Ok(())
        }
        Chore::Test { steps, only, .. } => suite::test(&[steps, only].concat()),
        Chore::Check => suite::check(),
        Chore::E2e(tests) => suite::end_to_end(&tests),
        Chore::Release(arguments) => release::write(&arguments),
        Chore::Install { dir } => install::test(&dir),
        Chore::Publish(arguments) => publish::publish(&arguments),
        Chore::Docs => docs::build(),
        Chore::Bench(Bench::Path(forwarded)) => demo::bench_path("path", &forwarded.arguments),
        Chore::Bench(Bench::Picker(forwarded)) => demo::bench_path("picker", &forwarded.arguments),
        Chore::Bench(Bench::SlowBodies(forwarded)) => demo::bench_slow_bodies(&forwarded.arguments),
        Chore::Bench(Bench::Scale(forwarded)) => demo::bench_scale(&forwarded.arguments),
        Chore::Bench(Bench::Core { names }) => bench::core(&names),
        Chore::Bench(Bench::Counts { accept }) => counts::run(accept),
        Chore::Bench(Bench::Cargo(forwarded)) => bench::cargo(&forwarded.arguments),
        Chore::Profile(forwarded) => demo::profile(&forwarded.arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! `demo`, `up`, `validate`, `compare`, `soak`, `experiment`, `bench path`, `profile`: gets and builds what they need, then starts
//! the program that does the work.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;

use crate::cargo::{build_release, output_directory, root};
use crate::envoy;
use crate::filter::{self, Wasm};
use crate::interfaces;
use crate::mesh::{MeshPrograms, in_own_network};

const DEMO: &str = "isotherm-demo";
const BENCH_PATH: &str = "isotherm-bench-path";
const SIMULATOR: &str = "isotherm-sim";

/// The packages of every documented build. Cargo selects the features of all packages that it builds together, so one set of
/// packages finds what another command has built.
const PROGRAMS: [&str; 3] = ["isotherm-ext-proc", "isotherm-engine", DEMO];

/// Builds the filter and the programs, and prints their paths.
pub(crate) fn build() -> anyhow::Result<()> {
    let filter = filter::build(&root(), Wasm::Filter)?;
    let programs = build_release(&root(), &PROGRAMS, &[])?;
    println!("{}\n{}", filter.display(), programs.display());
    Ok(())
}

/// Replaces this program by `isotherm-demo MODE ARGUMENTS`, with everything that it starts in place.
pub(crate) fn run(mode: &str, arguments: &[String]) -> anyhow::Result<()> {
    interfaces::check(mode, arguments)?;
    let all = [mode].into_iter().chain(texts(arguments));
    let gateways = gateways(arguments);
    if gateways.is_empty() {
        let mut command = prepare(&[], DEMO, |program| Ok(Command::new(program)))?;
        return replace_process(command.args(all));
    }
    // What is missing is said before anything is built.
    let programs = MeshPrograms::find()?;
    programs.require(&gateways)?;
    in_own_network(OsStr::new("true"))?;
    envoy::obtain_for_control_planes(&root())?;
    let mut command = prepare(&[], DEMO, in_own_network)?;
    replace_process(command.args(all).envs(programs.environment()))
}

/// The gateways in `--mesh GATEWAY,GATEWAY`, in every such option.
fn gateways(arguments: &[String]) -> Vec<&str> {
    let values = texts(arguments).zip(texts(arguments).skip(1).chain([""]));
    let values = values.filter_map(|(argument, next)| match argument.strip_prefix("--mesh")? {
        "" => Some(next),
        value => value.strip_prefix('='),
    });
    values.flat_map(|value| value.split(',')).collect()
}

/// Replaces this program by `isotherm-bench-path ARGUMENTS`.
pub(crate) fn bench_path(chore: &str, arguments: &[String]) -> anyhow::Result<()> {
    interfaces::check("bench path", arguments)?;
    let module = filter::build(&root(), Wasm::BenchFilter)?;
    let mut command = start(BENCH_PATH)?;
    command.env("ISOTHERM_BENCH_FILTER", module);
    if chore == "picker" {
        command.arg("--pickers");
    }
    replace_process(command.args(arguments))
}

/// Replaces this program by `isotherm-bench-scale ARGUMENTS`.
pub(crate) fn bench_scale(arguments: &[String]) -> anyhow::Result<()> {
    interfaces::check("bench scale", arguments)?;
    replace_process(start("isotherm-bench-scale")?.args(arguments))
}

/// Replaces this program by `isotherm-bench-slow-bodies ARGUMENTS`.
pub(crate) fn bench_slow_bodies(arguments: &[String]) -> anyhow::Result<()> {
    interfaces::check("bench slow-bodies", arguments)?;
    replace_process(start("isotherm-bench-slow-bodies")?.args(arguments))
}

/// Replaces this program by `isotherm-profile ARGUMENTS`.
pub(crate) fn profile(arguments: &[String]) -> anyhow::Result<()> {
    interfaces::check("profile", arguments)?;
    replace_process(start("isotherm-profile")?.args(arguments))
}

/// The command of a program of the bench, with everything that it starts in place.
fn start(program: &str) -> anyhow::Result<Command> {
    prepare(&[BENCH_PATH], program, |program| Ok(Command::new(program)))
}

fn texts(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().map(String::as_str)
}

/// The command of a program with everything that it starts in place, all of it built with `more` packages. `command` makes it
/// from the program's path.
fn prepare(
    more: &[&str],
    program: &str,
    command: impl FnOnce(&OsStr) -> anyhow::Result<Command>,
) -> anyhow::Result<Command> {
    let root = root();
    let envoy = envoy::obtain(&root)?;
    let filter = filter::build(&root, Wasm::Filter)?;
    let binaries = build_release(&root, &[&PROGRAMS[..], more].concat(), &[])?;
    let mut command = command(binaries.join(program).as_os_str())?;
    command
        .env("ISOTHERM_ENVOY", envoy)
        .env("ISOTHERM_FILTER", filter)
        .env("ISOTHERM_OUTPUT", output_directory(&root));
    Ok(command)
}

/// Replaces this program by `isotherm-sim ARGUMENTS`, or by `isotherm-sim experiment ARGUMENTS`.
pub(crate) fn simulator(chore: &str, arguments: &[String]) -> anyhow::Result<()> {
    interfaces::check(chore, arguments)?;
    let root = root();
    let packages = [&PROGRAMS[..], &["isotherm-experiments"]].concat();
    let mut command = Command::new(build_release(&root, &packages, &[SIMULATOR])?.join(SIMULATOR));
    if chore == "experiment" {
        command.arg(chore);
    }
    replace_process(
        command
            .args(arguments)
            .env("ISOTHERM_OUTPUT", output_directory(&root)),
    )
}

/// Replaces this process by a program, so that Ctrl-C reaches the program.
fn replace_process(command: &mut Command) -> anyhow::Result<()> {
    Err(command.exec())
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn gateways_are_found_in_every_form() {
        let gateways = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            super::gateways(&words).join(" ")
        };
        assert_eq!(gateways("--seed 2 --mesh istio"), "istio");
        assert_eq!(
            gateways("--mesh=envoy-gateway,istio --mesh x"),
            "envoy-gateway istio x"
        );
        assert_eq!(gateways("--regions 3"), "");
    }
}

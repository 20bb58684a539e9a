//! `demo`, `up`, `validate`, `compare`, `soak`, `experiment`, `bench path`, `profile`: gets and builds what they need, then starts
//! the program that does the work.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::cargo::{build_delivered, build_release, output_directory, root};
use crate::envoy;
use crate::filter::{self, Wasm};
use crate::mesh::{MeshPrograms, in_own_network};

const DEMO: &str = "isotherm-demo";
const BENCH_PATH: &str = "isotherm-bench-path";

/// Replaces this program by `isotherm-demo MODE ARGUMENTS`, with everything that it starts in place.
pub(crate) fn run(mode: &str, arguments: &[String]) -> anyhow::Result<()> {
    let all = [mode].into_iter().chain(texts(arguments));
    let gateways = gateways(arguments);
    if gateways.is_empty() || wants_help(arguments) {
        return start(DEMO, DEMO, all, &[]);
    }
    // What is missing is said before anything is built.
    let programs = MeshPrograms::find()?;
    programs.require(&gateways)?;
    in_own_network(OsStr::new("true"))?;
    let mut command = prepare(DEMO, DEMO, in_own_network)?;
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

/// Replaces this program by `isotherm-demo compare ARGUMENTS`, with the service as it is delivered.
pub(crate) fn compare(arguments: &[String]) -> anyhow::Result<()> {
    let all = ["compare"].into_iter().chain(texts(arguments));
    let more: &[_] = match wants_help(arguments) {
        true => &[],
        false => &[("ISOTHERM_BIN", build_delivered(&root())?)],
    };
    start(DEMO, DEMO, all, more)
}

/// Replaces this program by `isotherm-bench-path ARGUMENTS`, in the same way.
pub(crate) fn bench_path(arguments: &[String]) -> anyhow::Result<()> {
    if wants_help(arguments) {
        return start(BENCH_PATH, BENCH_PATH, texts(arguments), &[]);
    }
    let module = filter::build(&root(), Wasm::BenchFilter)?;
    let service = build_delivered(&root())?;
    let more = [("ISOTHERM_BENCH_FILTER", module), ("ISOTHERM_BIN", service)];
    start(BENCH_PATH, BENCH_PATH, texts(arguments), &more)
}

/// Replaces this program by `isotherm-bench-slow-bodies ARGUMENTS`, in the same way.
pub(crate) fn bench_slow_bodies(arguments: &[String]) -> anyhow::Result<()> {
    start(
        BENCH_PATH,
        "isotherm-bench-slow-bodies",
        texts(arguments),
        &[],
    )
}

/// Replaces this program by `isotherm-profile ARGUMENTS`, in the same way.
pub(crate) fn profile(arguments: &[String]) -> anyhow::Result<()> {
    start(BENCH_PATH, "isotherm-profile", texts(arguments), &[])
}

fn texts(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().map(String::as_str)
}

fn wants_help(arguments: &[impl AsRef<str>]) -> bool {
    arguments
        .iter()
        .any(|one| ["--help", "-h"].contains(&one.as_ref()))
}

fn start<'a>(
    package: &str,
    program: &str,
    arguments: impl Iterator<Item = &'a str>,
    more: &[(&str, PathBuf)],
) -> anyhow::Result<()> {
    let root = root();
    let arguments: Vec<&str> = arguments.collect();
    if wants_help(&arguments) {
        // Help needs neither Envoy nor the filter nor the service.
        let binaries = build_release(&root, &[package])?;
        return replace_process(Command::new(binaries.join(program)).args(arguments));
    }
    let mut command = prepare(package, program, |program| Ok(Command::new(program)))?;
    command.args(arguments);
    replace_process(command.envs(more.iter().map(|(name, path)| (name, path))))
}

/// The command of a program with everything that it starts in place. `command` makes it from the program's path.
fn prepare(
    package: &str,
    program: &str,
    command: impl FnOnce(&OsStr) -> anyhow::Result<Command>,
) -> anyhow::Result<Command> {
    let root = root();
    let envoy = envoy::obtain(&root)?;
    let filter = filter::build(&root, Wasm::Filter)?;
    let packages = ["isotherm-ext-proc", "isotherm-engine", package];
    let binaries = build_release(&root, &packages)?;
    let mut command = command(binaries.join(program).as_os_str())?;
    command
        .env("ISOTHERM_ENVOY", envoy)
        .env("ISOTHERM_FILTER", filter)
        .env("ISOTHERM_OUTPUT", output_directory(&root));
    Ok(command)
}

/// Replaces this program by `isotherm-sim experiment ARGUMENTS`, built in release mode.
pub(crate) fn experiment(arguments: &[String]) -> anyhow::Result<()> {
    let root = root();
    let binaries = build_release(&root, &["isotherm-experiments"])?;
    let mut command = Command::new(binaries.join("isotherm-sim"));
    command.arg("experiment").args(arguments);
    replace_process(command.env("ISOTHERM_OUTPUT", output_directory(&root)))
}

/// Replaces this process by a program, so that Ctrl-C reaches the program.
fn replace_process(command: &mut Command) -> anyhow::Result<()> {
    Err(command.exec())
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_is_asked_for_anywhere() {
        assert!(super::wants_help(&["demo", "--regions", "3", "-h"]));
        assert!(super::wants_help(&["--help".to_owned()]));
        assert!(!super::wants_help(&["demo", "--hel"]));
    }

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

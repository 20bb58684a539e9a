//! `test`, `check` and `e2e`: the steps of the check, the same for a person and for CI.
//!
//! The steps run from cheap to expensive, some side by side. A failed step does not hide the ones after it: every step runs,
//! and the summary at the end names each failure. The tests come last, so the last lines are the test runner's summary.
//! Clippy and rustdoc share what they compile, and so do the tests and the programs that they start: every selection of
//! targets has tests or examples. Cargo compiles the dependencies of other selections with other features, and so again.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::bail;
use clap::ValueEnum;

use crate::cargo::{build_all, cargo, output_directory, root, target_dir};
use crate::filter::{self, Wasm};
use crate::mesh::{MeshPrograms, in_own_network};
use crate::process::{announce, output, run};
use crate::{
    counts, docs, envoy, envoys, examples, gateways, install, targets, test_output, workflows,
};

/// Seed of the soak step, so that its faults are the same in each run.
const SOAK_SEED: &str = "19";

/// The tests of a real mesh.
const MESH: [&str; 2] = ["--test=kubernetes", "--test=mesh"];

/// The tests of `cargo xtask e2e`. They wait for other programs most of the time, so tests that compute run beside them.
const END_TO_END: [&str; 4] = ["--test=e2e", "--test=regions", MESH[0], MESH[1]];

/// The tests of a release, which `install` runs.
const INSTALLED: &str = "--test=installed";

/// End-to-end tests that run at once: as many as their `permit.rs` permits.
const END_TO_END_TESTS_MAX: &str = "3";

/// Packages whose tests `check` runs: the cores and the conventions.
const CORE_PACKAGES: [&str; 8] = [
    "isotherm-planner",
    "isotherm-policies",
    "isotherm-router",
    "isotherm-regions",
    "isotherm-fingerprint",
    "isotherm-decision-proto",
    "isotherm-wasm-filter-core",
    "isotherm-conventions",
];

/// A step of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// `cargo fmt --check`
    Format,
    /// The WebAssembly modules and the native program that the next steps need
    Modules,
    /// Clippy, warnings are errors
    Lints,
    /// rustdoc, warnings are errors
    Documentation,
    /// actionlint checks the workflows of CI, where Go is there to build it
    Workflows,
    /// Envoy validates every bootstrap of the repository, in the pinned version, the oldest, and others to hand
    EnvoyConfiguration,
    /// Instructions of the hot paths, against the baseline
    Counts,
    /// Tests of the cores, the filter's behaviour and the conventions
    Core,
    /// Every program and every test, built
    Build,
    /// Every test, end to end included
    Tests,
    /// A release of the debug programs for this machine, installed from its folder; not part of the whole check
    Install,
    /// Two minutes of `cargo xtask soak`: load while processes and networks fail
    Soak,
    /// Every version of Envoy loads every bootstrap and serves requests, and `docs/compatibility.md` says so; downloads them;
    /// not part of the whole check
    Envoys,
    /// Tests with the real programs of a mesh, as far as `cargo xtask mesh-tools` has built them; part of `tests`
    Mesh,
}

impl Step {
    /// Runs the step.
    fn run(self, root: &Path) -> anyhow::Result<()> {
        match self {
            Self::Format => run(cargo(root).args(["fmt", "--all", "--check"])),
            Self::Modules => counts::build(root).map(|_| ()),
            Self::Lints => {
                let mut clippy = cargo(root);
                clippy.args(["clippy", "--workspace", "--all-targets", "--locked"]);
                run(clippy.args(["--quiet", "--", "-D", "warnings"]))
            }
            Self::Documentation => docs::rustdoc(root),
            Self::Workflows => workflows::check(root),
            Self::EnvoyConfiguration => validate_bootstraps(root),
            Self::Counts => counts::run(false),
            Self::Core => {
                let packages = CORE_PACKAGES.iter().flat_map(|name| ["--package", name]);
                let packages: Vec<&str> = packages.collect();
                test_output::run(cargo(root).args(test_command(root)).args(packages))
            }
            Self::Build => build_all(root),
            Self::Tests => run_tests(root),
            Self::Install => install::test_debug_programs(root),
            Self::Soak => run_soak(root),
            Self::Envoys => run_envoys(root),
            Self::Mesh => run_mesh_tests(root),
        }
    }

    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Steps that one thread runs, one after the other.
type Lane<'a> = &'a [Step];

/// Steps of `cargo xtask test`: groups, each with lanes that run side by side. A lane uses a processor that the other leaves
/// idle: builds lock Cargo's target directory, so the first group's second lane builds elsewhere, and the counts and the
/// soak run while the other lane builds.
const WHOLE: [&[Lane]; 4] = [
    &[&[Step::Format]],
    &[
        &[Step::Lints, Step::Documentation],
        &[Step::Workflows, Step::Modules, Step::EnvoyConfiguration],
    ],
    &[&[Step::Counts, Step::Build], &[Step::Soak]],
    &[&[Step::Tests]],
];

/// Steps of `cargo xtask check`.
const QUICK: [Step; 3] = [Step::Format, Step::Lints, Step::Core];

/// `cargo xtask test`: every step, or the named ones.
pub(crate) fn test(only: &[Step]) -> anyhow::Result<()> {
    if only.is_empty() {
        run_groups(&WHOLE)
    } else {
        run_groups(&[&[only]])
    }
}

/// `cargo xtask check`: format, lints, tests of the cores.
pub(crate) fn check() -> anyhow::Result<()> {
    run_groups(&[&[&QUICK]])
}

/// `cargo xtask test --list`: the steps and what each does.
pub(crate) fn list() {
    for step in Step::value_variants() {
        let value = step.to_possible_value();
        let help = value.and_then(|value| value.get_help().map(ToString::to_string));
        println!("{:<20} {}", step.name(), help.unwrap_or_default());
    }
}

/// The end-to-end tests to run, and how: options of the test runner.
#[derive(clap::Args)]
pub(crate) struct EndToEnd {
    /// Runs the tests whose names contain one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Names are whole names
    #[arg(long)]
    exact: bool,
    /// Leaves out the tests whose names contain this; may be given several times
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// Shows what passing tests print
    #[arg(long)]
    nocapture: bool,
    /// Lists the tests instead
    #[arg(long)]
    list: bool,
    /// Tests that run at once
    #[arg(long, value_name = "COUNT")]
    test_threads: Option<u16>,
}

impl EndToEnd {
    /// The arguments of the test runner.
    fn arguments(&self) -> Vec<String> {
        let flags = [
            ("--exact", self.exact),
            ("--nocapture", self.nocapture),
            ("--list", self.list),
        ];
        let flags = flags.into_iter().filter(|(_, is_given)| *is_given);
        let flags = flags.map(|(flag, _)| flag.to_owned());
        let skipped = self.skip.iter().map(|name| format!("--skip={name}"));
        let threads = self
            .test_threads
            .map(|count| format!("--test-threads={count}"));
        let names = self.names.iter().cloned();
        flags.chain(skipped).chain(threads).chain(names).collect()
    }
}

/// `cargo xtask e2e NAME`: gets and builds what the end-to-end tests need, then runs the tests whose names match.
pub(crate) fn end_to_end(tests_to_run: &EndToEnd) -> anyhow::Result<()> {
    let root = root();
    let (envoy, filter) = (envoy::obtain(&root)?, filter::build(&root, Wasm::Filter)?);
    build_programs(&root, &END_TO_END)?;
    let mut tests = cargo(&root);
    tests.args(["test", "--locked", "--no-fail-fast"]);
    tests.args(END_TO_END).arg("--");
    tests.env("ISOTHERM_ENVOY", envoy);
    test_output::run(
        tests
            .env("ISOTHERM_FILTER", filter)
            .args(tests_to_run.arguments()),
    )
}

fn run_groups(groups: &[&[Lane]]) -> anyhow::Result<()> {
    let root = &root();
    let mut failures = Vec::new();
    for lanes in groups {
        thread::scope(|scope| {
            let lanes = lanes.iter();
            let running: Vec<_> = lanes
                .map(|lane| scope.spawn(move || run_lane(lane, root)))
                .collect();
            for lane in running {
                let panicked = |_| vec!["a thread that runs steps panicked".to_owned()];
                failures.extend(lane.join().unwrap_or_else(panicked));
            }
        });
    }
    if !failures.is_empty() {
        let steps = groups.iter().copied().flatten().copied().flatten().count();
        bail!(
            "{} of {steps} steps failed\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
    Ok(())
}

/// Runs steps one after the other, and returns the failures.
fn run_lane(steps: Lane, root: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    for step in steps {
        let name = step.name();
        announce(&name);
        let start = Instant::now();
        let result = step.run(root);
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(()) => announce(&format!("{name}: passed, {seconds:.1} s")),
            Err(error) => {
                announce(&format!("{name}: FAILED, {seconds:.1} s: {error:#}"));
                failures.push(format!("{name}: {error:#}"));
            }
        }
    }
    failures
}

/// Runs every test.
fn run_tests(root: &Path) -> anyhow::Result<()> {
    let filter = filter::build(root, Wasm::Filter)?;
    let envoy = envoy::obtain(root)?;
    build_all(root)?;
    examples::check_services(root, &target_dir(root).join("debug/isotherm"))?;
    let programs = MeshPrograms::find()?;
    programs.announce_missing();
    let test = |mut tests: Command, targets: &[String]| {
        tests.args(["test", "--locked", "--no-fail-fast"]);
        tests.args(targets);
        tests.env("ISOTHERM_ENVOY", &envoy);
        tests.env("ISOTHERM_FILTER", &filter);
        tests.envs(programs.environment());
        tests
    };
    // Cargo gets the same selection of packages each time, so it builds nothing twice.
    let names = targets::tests(root)?.into_iter();
    let flags = names.map(|name| format!("--test={name}"));
    let elsewhere = [&END_TO_END[..], &[INSTALLED]].concat();
    let others = flags.filter(|flag| !elsewhere.contains(&flag.as_str()));
    let targets = ["--lib", "--bins"].map(str::to_owned);
    let others: Vec<String> = targets.into_iter().chain(others).collect();
    let end_to_end = END_TO_END.map(str::to_owned);
    let mut first = Vec::new();
    // These need a network of their own, and are skipped in the other one.
    if let Some(tests) = own_network(root).filter(|_| !programs.is_empty()) {
        envoy::obtain_for_control_planes(root)?;
        first.push(test(tests, &["--test=mesh".to_owned()]));
    }
    first.push(test(cargo(root), &end_to_end));
    for tests in &mut first {
        tests.env("RUST_TEST_THREADS", END_TO_END_TESTS_MAX);
    }
    let mut second = [
        test(cargo(root), &others),
        test(cargo(root), &["--doc".to_owned()]),
    ];
    test_output::run_side_by_side(&mut first, &mut second)
}

/// Runs the tests that use the programs of a mesh, and compares `docs/compatibility.md` with the results. Names each program
/// that is missing: these tests then compare with files that the real program wrote.
fn run_mesh_tests(root: &Path) -> anyhow::Result<()> {
    let programs = MeshPrograms::find()?;
    programs.announce_missing();
    let mut chart = cargo(root);
    chart.args(["test", "--locked", "--no-fail-fast"]);
    chart.args([
        "--package",
        "isotherm-ext-proc",
        "--test",
        "program",
        "--",
        "deploy",
        "gateways",
    ]);
    test_output::run(chart.envs(programs.environment()))?;
    let (envoy, filter) = (envoy::obtain(root)?, filter::build(root, Wasm::Filter)?);
    // A network of its own has no way to a registry.
    envoy::obtain_for_control_planes(root)?;
    build_programs(root, &MESH)?;
    let own_network = own_network(root);
    let is_own = own_network.is_some();
    let mut tests = own_network.unwrap_or_else(|| cargo(root));
    tests.args(["test", "--locked", "--no-fail-fast"]);
    tests.args(MESH);
    tests.envs(programs.environment());
    tests.env("ISOTHERM_ENVOY", envoy);
    tests.env("ISOTHERM_FILTER", filter);
    let (failed, result) = test_output::run_and_name_failures(&mut tests)?;
    if is_own {
        gateways::compare(root, &programs, &failed)?;
    }
    result
}

/// Builds all programs, and some tests, with the features of both.
fn build_programs(root: &Path, tests: &[&str]) -> anyhow::Result<()> {
    let mut build = cargo(root);
    build.args(["build", "--locked", "--quiet", "--bins"]);
    run(build.args(tests))
}

/// Runs the system under fire for two minutes, with the programs that the tests start.
fn run_soak(root: &Path) -> anyhow::Result<()> {
    let (envoy, filter) = (envoy::obtain(root)?, filter::build(root, Wasm::Filter)?);
    build_programs(root, &END_TO_END)?;
    let mut soak = Command::new(target_dir(root).join("debug/isotherm-demo"));
    soak.current_dir(root).args(["soak", "--minutes", "2"]);
    soak.args(["--seed", SOAK_SEED]);
    soak.env("ISOTHERM_OUTPUT", output_directory(root));
    run(soak
        .env("ISOTHERM_ENVOY", envoy)
        .env("ISOTHERM_FILTER", filter))
}

/// `cargo` in a network of its own; `None` where the system allows none, and then tests of meshes are skipped.
fn own_network(root: &Path) -> Option<Command> {
    let command = in_own_network(cargo(root).get_program());
    let command =
        command.inspect_err(|error| announce(&format!("tests of meshes are skipped: {error:#}")));
    let mut command = command.ok()?;
    command.current_dir(root);
    // `cargo` removes variables only.
    for (name, _) in cargo(root).get_envs() {
        command.env_remove(name);
    }
    Some(command)
}

/// The arguments that start unit tests: by nextest where it is installed, which runs them in parallel across packages.
fn test_command(root: &Path) -> &'static [&'static str] {
    let has_nextest = output(cargo(root).args(["nextest", "--version"])).is_ok();
    if has_nextest {
        &["nextest", "run", "--locked", "--no-fail-fast"]
    } else {
        &["test", "--locked", "--no-fail-fast"]
    }
}

/// Envoy accepts every bootstrap of the repository, and the generated ones are up to date.
fn validate_bootstraps(root: &Path) -> anyhow::Result<()> {
    filter::build(root, Wasm::Filter)?;
    examples::check(root)?;
    envoys::load_shipped_files(root, &envoy::obtain(root)?)?;
    for other in envoy::others_to_hand(root)? {
        envoys::load_shipped_files(root, &other)?;
    }
    Ok(())
}

/// Runs a selection of the end-to-end tests on every version of Envoy.
fn run_envoys(root: &Path) -> anyhow::Result<()> {
    let filter = filter::build(root, Wasm::Filter)?;
    build_programs(root, &END_TO_END)?;
    envoys::test(root, &filter)
}

//! `isotherm-profile`: shows where the time of a request goes, as one flame graph for Envoy and one for the service.
//!
//! `perf` samples both processes while a workload of the path bench runs; `inferno` draws the flame graphs. `perf` samples
//! by the CPU clock, which works in virtual machines that hide the hardware counters. Envoy's published binary has no
//! symbols, so its own frames carry the name of their module only; the filter is code that V8 compiled, without symbols as
//! well. Every function of the service has a name.
//!
//! `inferno` is an external program and no dependency: the conventions do not accept its licence (CDDL).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use isotherm_bench_path::load::{Load, Target};
use isotherm_bench_path::running::RunningVariant;
use isotherm_bench_path::upstream::Upstream;
use isotherm_bench_path::variant::Variant;
use isotherm_bench_path::workload::Workload;
use isotherm_harness::Tools;
use isotherm_harness::shutdown::run_until_stopped;

/// Sampling frequency, per second and CPU: a prime, so that it does not beat with a timer.
const SAMPLES_PER_SECOND: &str = "1999";
/// How `perf` unwinds: with up to 8 KiB of stack from each sample, which cuts deeper callers off.
const CALL_GRAPH: &str = "dwarf,8192";
/// Fills connections, caches and the index before the sampling begins.
const WARM_UP: Duration = Duration::from_secs(1);
const COLLAPSE: &str = "inferno-collapse-perf";
const FLAME_GRAPH: &str = "inferno-flamegraph";

/// Shows where the time of a request goes, in Envoy and in the service: flame graphs (needs Linux, `perf` and `inferno`)
#[derive(Parser)]
#[command(name = "cargo xtask profile", bin_name = "cargo xtask profile")]
struct Arguments {
    /// The workload of `cargo xtask bench path`, by its name in the table of that bench
    #[arg(long, value_name = "NAME", default_value = "4 KB", value_parser = Workload::named)]
    workload: Workload,
    /// Length of the sampling
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Concurrent clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    clients: u16,
    /// Replicas
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    replicas: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_until_stopped(profile(Arguments::parse())).await
}

async fn profile(arguments: Arguments) -> anyhow::Result<ExitCode> {
    check_installed(
        "perf",
        "apt-get install linux-perf (Debian) or linux-tools-generic (Ubuntu)",
    )?;
    for program in [COLLAPSE, FLAME_GRAPH] {
        check_installed(program, "cargo install inferno")?;
    }
    let output = Tools::find()?.output.join("profile");
    fs::create_dir_all(&output)?;
    let upstream = Upstream::start(usize::from(arguments.replicas)).await?;
    let workload = arguments.workload;
    upstream.answer_in(workload.chunks);
    let subject =
        RunningVariant::start(Variant::Isotherm, upstream.addresses(), Path::new("")).await?;
    let subject = subject.context("Isotherm did not start")?;
    let processes = subject.processes()?;
    let ids = processes
        .iter()
        .map(|(_, process)| process.id().to_string());
    let ids: Vec<String> = ids.collect();
    let target = Target {
        address: subject.address,
        workload,
        prompts: Arc::default(),
    };
    let load = Load::Closed(arguments.clients);
    target.drive(load, WARM_UP).await?;

    let data = output.join("perf.data");
    let record = record_command(&ids, &data, arguments.seconds);
    let recording = tokio::task::spawn_blocking(move || run(record));
    let time = Duration::from_secs(u64::from(arguments.seconds) + 1);
    let tally = target.drive(load, time).await?;
    recording.await??;

    let (completed, failed) = (tally.completed, tally.failed);
    println!("{}: {completed} requests, {failed} failed", workload.name);
    for ((label, _), id) in processes.iter().zip(&ids) {
        let graph = flame_graph(&output, &data, label, id)?;
        println!("{label}: {}", graph.display());
    }
    let data = data.display();
    println!("every symbol: perf report --no-children -i {data}");
    Ok(ExitCode::SUCCESS)
}

fn check_installed(program: &str, hint: &str) -> anyhow::Result<()> {
    // The exit code of `--help` differs from program to program; a start is enough.
    let output = Command::new(program)
        .arg("--help")
        .stdin(Stdio::null())
        .output();
    output.with_context(|| format!("cannot start `{program}`; to install it: {hint}"))?;
    Ok(())
}

fn record_command(ids: &[String], data: &Path, seconds: u32) -> Command {
    let mut perf = Command::new("perf");
    perf.args(["record", "--event", "cpu-clock"])
        .args(["--freq", SAMPLES_PER_SECOND])
        .args(["--call-graph", CALL_GRAPH])
        .args(["--pid", &ids.join(","), "--output"])
        .arg(data)
        .args(["--", "sleep", &seconds.to_string()]);
    perf
}

/// Runs `perf script | inferno-collapse-perf | inferno-flamegraph` for one process, with a file between the steps.
fn flame_graph(output: &Path, data: &Path, label: &str, id: &str) -> anyhow::Result<PathBuf> {
    let file = |extension: &str| output.join(format!("{}.{extension}", label.to_lowercase()));
    let [script, folded, graph] = ["script", "folded", "svg"].map(file);
    let perf_arguments = ["script", "--no-inline", "--pid", id, "-i"];
    run_into("perf", &perf_arguments, data, &script)?;
    run_into(COLLAPSE, &[], &script, &folded)?;
    run_into(FLAME_GRAPH, &["--title", label], &folded, &graph)?;
    Ok(graph)
}

/// Runs a program on a file, and writes its output to another file.
fn run_into(program: &str, arguments: &[&str], input: &Path, file: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).arg(input);
    command.stdout(File::create(file).with_context(|| format!("cannot write {}", file.display()))?);
    run(command)
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let output = child
        .and_then(std::process::Child::wait_with_output)
        .with_context(|| format!("cannot start `{program}`"))?;
    ensure!(
        output.status.success(),
        "`{program}` failed ({}). When perf may not sample other processes: `sysctl kernel.perf_event_paranoid=1`, or run \
         this as root:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;
    use isotherm_command_interface::check_current;

    use super::*;

    #[test]
    fn xtask_knows_the_command_line() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../xtask/interfaces");
        let file = folder.join("profile.json");
        check_current(&file, "cargo xtask profile", &Arguments::command()).unwrap();
    }
}

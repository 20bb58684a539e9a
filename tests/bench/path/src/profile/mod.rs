//! Where the time of a request goes: `perf` over Envoy and the service while requests go through, and what it found as
//! tables and flame graphs.
//!
//! `perf` samples by the clock of the processor, which also works where a virtual machine hides the processor's own
//! counters. Envoy's published binary has no names of functions, so of Envoy only the parts can be told apart: its own
//! code, the filter (compiled by V8, and so without a file), the C library and the kernel. Of the service everything has a name.

pub mod flame;
pub mod stacks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::closed::drive;
use crate::prompts::Prompts;
use crate::row::Row;
use crate::subject::Subject;
use crate::upstream::Upstream;
use crate::workload::Workload;
use stacks::Stacks;

/// How often a second each processor is looked at; no divisor of anything that runs by a timer.
const SAMPLES_PER_SECOND: u32 = 1_999;
/// How much of the stack goes into each sample, in bytes: deeper callers are cut off.
const STACK_BYTES: u32 = 8_192;
/// Connections, caches and the index fill before it counts.
const WARM_UP: Duration = Duration::from_secs(1);
/// How many functions a table names.
const FUNCTIONS_MAX: usize = 30;

/// What is asked, and for how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What is asked: a workload of `cargo xtask bench path`, by its name in the table there
    #[arg(long, value_name = "NAME", default_value = "4 KB", value_parser = Workload::named)]
    pub workload: Workload,
    /// For how long to look
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// How many clients ask at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub clients: u16,
    /// How many replicas answer
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
}

/// Samples the delivered configuration under load; writes flame graphs to `output`, and returns the tables.
///
/// # Errors
/// When `perf` is missing or may not look, or something does not start.
pub async fn run(options: &Options, output: &Path) -> anyhow::Result<String> {
    is_there()?;
    fs::create_dir_all(output)?;
    let upstream = Upstream::start(usize::from(options.replicas)).await?;
    let workload = options.workload;
    upstream.answer_in(workload.chunks);
    let subject = Subject::start(Row::Isotherm, upstream.addresses(), Path::new("")).await?;
    let subject = subject.context("Isotherm does not start here")?;
    let processes: BTreeMap<u32, &str> = subject
        .processes()?
        .into_iter()
        .map(|(label, process)| (process.id(), label))
        .collect();
    let prompts: Arc<Prompts> = Arc::default();
    let ask = |time| drive(subject.address, &workload, options.clients, time, &prompts);
    ask(WARM_UP).await?;

    let data = output.join("perf.data");
    let seconds = options.seconds;
    let recording = record(&processes, &data, seconds);
    let recording = tokio::task::spawn_blocking(move || succeeded(recording, "perf record"));
    let asked = ask(Duration::from_secs(u64::from(seconds) + 1)).await?;
    recording.await??;

    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "pid,ip,sym,dso", "-i"]);
    script.arg(&data);
    let text = succeeded(script, "perf script")?.stdout;
    let mut told = format!(
        "{}: {} requests, {} failed\n",
        workload.name, asked.good, asked.failed
    );
    for (label, stacks) in Stacks::parse(&String::from_utf8_lossy(&text), &processes) {
        let file = write_graph(output, label, &stacks)?;
        told.push_str(&table(label, &stacks));
        // Writing to a String cannot fail.
        let _ = writeln!(told, "flame graph: {}\n", file.display());
    }
    Ok(told)
}

fn write_graph(output: &Path, label: &str, stacks: &Stacks) -> anyhow::Result<PathBuf> {
    let file = output.join(format!("{}.svg", label.to_lowercase()));
    fs::write(&file, flame::svg(label, stacks))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// What a process does, by module and by function, in percent of its time.
fn table(label: &str, stacks: &Stacks) -> String {
    let mut text = format!("\n{label}: {} samples\n", stacks.samples());
    let share = |samples: u64| 100.0 * samples as f64 / stacks.samples().max(1) as f64;
    // Writing to a String cannot fail.
    for (module, samples) in stacks.by_module() {
        let _ = writeln!(text, "{:6.1} %  {module}", share(samples));
    }
    let _ = writeln!(text, "of that, in functions that have a name:");
    for (function, samples) in stacks.by_function().into_iter().take(FUNCTIONS_MAX) {
        let _ = writeln!(text, "{:6.1} %  {function}", share(samples));
    }
    text
}

fn is_there() -> anyhow::Result<()> {
    let mut perf = Command::new("perf");
    perf.arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let found = perf.status().is_ok_and(|status| status.success());
    if !found {
        bail!(
            "there is no `perf` that works here. On Debian: `apt-get install linux-perf`; on Ubuntu: `apt-get install \
             linux-tools-generic`. It needs Linux"
        );
    }
    Ok(())
}

fn record(processes: &BTreeMap<u32, &str>, data: &Path, seconds: u32) -> Command {
    let ids: Vec<String> = processes.keys().map(u32::to_string).collect();
    let mut perf = Command::new("perf");
    perf.args(["record", "--event", "cpu-clock", "--freq"])
        .arg(SAMPLES_PER_SECOND.to_string())
        .args(["--call-graph", &format!("dwarf,{STACK_BYTES}")])
        .args(["--pid", &ids.join(","), "--output"])
        .arg(data)
        .args(["--", "sleep", &seconds.to_string()]);
    perf
}

fn succeeded(mut command: Command, what: &str) -> anyhow::Result<Output> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {what}"))?;
    if !output.status.success() {
        bail!(
            "{what} failed ({}). If it may not look at other processes: `sysctl kernel.perf_event_paranoid=1`, or run \
             this as root. It said:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output)
}

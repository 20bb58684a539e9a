//! `isotherm-bench-scale`: the cost of a request and of no request, by the number of replicas.
//!
//! One process answers for all replicas, each at an address of its own in 127.0.0.0/8. For each number of replicas the variants
//! start one after the other, since the probes of ten thousand replicas by several routers at once would fill the machine.
//! Each is measured without requests first, then at a fixed rate. All have their default configuration.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use isotherm_bench_path::load::Load;
use isotherm_bench_path::memory::Memory;
use isotherm_bench_path::prompts::Prompts;
use isotherm_bench_path::running::RunningVariant;
use isotherm_bench_path::turn::{IdleUsage, Turn, idle, turn};
use isotherm_bench_path::upstream::Upstream;
use isotherm_bench_path::variant::Variant;
use isotherm_bench_path::workload::Workload;
use isotherm_harness::Tools;
use isotherm_harness::shutdown::run_until_stopped;
use isotherm_report::Format;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

/// Time after the start in which a router learns of its replicas and its probes settle.
const SETTLES: Duration = Duration::from_secs(8);
/// Open files besides the other ends of connections to replicas: clients and logs.
const FILES_BESIDE: u64 = 1_000;

/// Measures what requests cost with ten, a thousand and ten thousand replicas
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "cargo xtask bench scale", bin_name = "cargo xtask bench scale")]
struct Arguments {
    /// Numbers of replicas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10, 100, 1_000, 10_000], value_parser = clap::value_parser!(u16).range(1..=20_000))]
    replicas: Vec<u16>,
    /// Numbers of services of Isotherm, which are siblings
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u16).range(1..=32))]
    services: Vec<u16>,
    /// Requests per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rate: u16,
    /// Turns of each variant with each number of replicas; figures are medians over these
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of a turn
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// The variants
    #[arg(long, value_name = "ROW", value_enum, num_args = 1.., default_values_t = [Variant::Envoy, Variant::Isotherm, Variant::Picker, Variant::Smg])]
    variants: Vec<Variant>,
    /// The Python that may have `smg` (`pip install smg`)
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    #[serde(skip)]
    python: PathBuf,
    /// Also writes the report as a page of Markdown with its tables as CSV files beside it, for docs/results
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    markdown: Option<PathBuf>,
}

/// A variant with its numbers of replicas and services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Subject {
    variant: Variant,
    replicas: u16,
    /// Services of Isotherm; others have one of their kind.
    services: u16,
}

/// A subject in one round.
#[derive(Clone, Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    subject: Subject,
    idle: IdleUsage,
    turn: Turn,
    memory: Memory,
}

/// A subject that did not serve.
#[derive(Clone, Debug, Serialize)]
struct Failure {
    #[serde(flatten)]
    subject: Subject,
    error: String,
}

/// All measurements: `scale.json`.
#[derive(Debug, Serialize)]
struct Measurements {
    #[serde(flatten)]
    options: Arguments,
    runs: Vec<Run>,
    failures: Vec<Failure>,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_until_stopped(run(Arguments::parse())).await
}

async fn run(options: Arguments) -> anyhow::Result<ExitCode> {
    allow_files(options.files())?;
    let output = Tools::find()?.output.join("bench");
    let markdown = options.markdown.clone();
    let report = measure(options).await?.report()?;
    println!("{}", report.text());
    let files = [("scale.json", Format::Json), ("scale.html", Format::Html)];
    let mut written = report.write(&output, files)?.to_vec();
    if let Some(path) = markdown {
        written.extend(report.write_page(&path)?);
    }
    for path in written {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Raises the limit of open files, which the started programs inherit.
fn allow_files(needed: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(needed));
    let raised = Rlimit {
        current: Some(needed),
        maximum,
    };
    setrlimit(Resource::Nofile, raised).with_context(|| {
        format!("{needed} open files are needed: `ulimit -n {needed}`, or fewer --replicas")
    })
}

impl Arguments {
    /// The largest number of replicas.
    fn replicas_max(&self) -> u16 {
        self.replicas.iter().copied().max().unwrap_or_default()
    }

    /// Files that this process has open at most: a probe's connection to each replica, and one of Envoy for each request.
    fn files(&self) -> u64 {
        let requests = u64::from(self.rate) * u64::from(self.seconds) * 2;
        u64::from(self.replicas_max()) + requests + FILES_BESIDE
    }

    /// Everything that is measured, in the order of the table.
    fn subjects(&self) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for replicas in self.replicas.iter().copied() {
            for variant in self.variants.iter().copied() {
                let services: &[u16] = match variant {
                    Variant::Isotherm => &self.services,
                    _ => &[1],
                };
                subjects.extend(services.iter().map(|services| Subject {
                    variant,
                    replicas,
                    services: *services,
                }));
            }
        }
        subjects
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {} replicas", self.variant.name(), self.replicas)?;
        match self.services {
            1 => Ok(()),
            services => write!(f, " and {services} services"),
        }
    }
}

async fn measure(options: Arguments) -> anyhow::Result<Measurements> {
    let upstream = Upstream::start_at_addresses(usize::from(options.replicas_max()))?;
    let (mut runs, mut failures) = (Vec::new(), Vec::<Failure>::new());
    for round in 0..options.rounds {
        for subject in options.subjects() {
            if failures.iter().any(|failure| failure.subject == subject) {
                continue;
            }
            eprintln!("round {} of {}: {subject}", round + 1, options.rounds);
            match run_once(&options, subject, round, &upstream).await {
                Ok(run) => runs.extend(run),
                Err(error) => {
                    eprintln!("{subject} does not serve: {error:#}");
                    let error = format!("{error:#}");
                    failures.push(Failure { subject, error });
                }
            }
        }
    }
    ensure!(!runs.is_empty(), "no variant served a request");
    Ok(Measurements {
        options,
        runs,
        failures,
    })
}

/// Starts a variant, measures it, and stops it. `None` when it is not installed.
async fn run_once(
    options: &Arguments,
    subject: Subject,
    round: u32,
    upstream: &Upstream,
) -> anyhow::Result<Option<Run>> {
    let replicas = upstream.addresses().get(..usize::from(subject.replicas));
    let replicas = replicas.unwrap_or_default();
    let running = match subject.services {
        1 => RunningVariant::start(subject.variant, replicas, &options.python).await?,
        services => Some(RunningVariant::with_services(replicas, services.into()).await?),
    };
    let Some(running) = running else {
        return Ok(None);
    };
    tokio::time::sleep(SETTLES).await;
    let time = Duration::from_secs(u64::from(options.seconds));
    let idle = idle(&running, time / 2).await?;
    let workload = Workload::named("4 KB, turns").map_err(anyhow::Error::msg)?;
    let load = Load::Open(f64::from(options.rate), u64::from(round) + 1);
    let prompts = Arc::new(Prompts::default());
    let turn = turn(&running, &workload, load, time, round, &prompts).await?;
    let memory = Memory::of(&running, turn.completed)?;
    Ok(Some(Run {
        subject,
        idle,
        turn,
        memory,
    }))
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
        let file = folder.join("bench-scale.json");
        check_current(&file, "cargo xtask bench scale", &Arguments::command()).unwrap();
    }

    #[test]
    fn more_open_files_than_the_system_allows_are_an_error_that_says_what_to_do() {
        let refused = allow_files(u64::MAX / 2).unwrap_err();
        assert!(refused.to_string().contains("ulimit -n"), "{refused:#}");
    }
}

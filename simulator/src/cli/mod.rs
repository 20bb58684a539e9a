//! The command line of `isotherm-sim`: compares policies on the user's traffic and fleet.

mod plan;

use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::compare::{Plan, Report};
use crate::telemetry::Telemetry;
use clap::{ArgGroup, Parser};
use isotherm_engine::model::Preset;
use isotherm_policies::PolicyName;
use isotherm_router::Push;

/// Compares routing policies on your own traffic, in virtual time, and says which to use and how many replicas it would save.
///
/// The policies are the service's own code, the replicas a model of an engine fitted to published measurements. A trace is one
/// JSON object a line, as `isotherm record` writes them, or Mooncake's.
#[derive(Debug, Parser)]
#[command(
    name = "isotherm-sim",
    version,
    group(ArgGroup::new("traffic").required(true).args(["trace", "workload"])),
    after_help = "`isotherm-sim experiment NAME` runs the set-up of a paper's figure instead; `isotherm-sim experiment --help` says more."
)]
struct Cli {
    /// Recorded traffic.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Name of generated traffic; an unknown name lists all.
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Number of replicas, over all regions. [default: 8, in several regions 4 for each; a generated workload's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    replicas: Option<u16>,
    /// Engine of the replicas; a wrong name lists all. [default: llama-3.1-8b-l4; a generated workload's own]
    #[arg(long, value_name = "NAME")]
    engine: Option<Preset>,
    /// Number of regions. [default: as many as the traffic comes from]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    regions: Option<u16>,
    /// Policies to compare, separated by commas. [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<PolicyName>,
    /// When a replica may be sent another request: `pending`, `outstanding:N` or `blind`.
    #[arg(long, value_name = "MODE", default_value = "pending")]
    push: Push,
    /// Telemetry profile of the engines.
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    telemetry: Telemetry,
    /// Objective for the time to the first token, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    slo: f64,
    /// Average rate of the traffic, in requests a second.
    #[arg(long, value_name = "PER_SECOND", value_parser = positive, conflicts_with = "speed_up")]
    rate: Option<f64>,
    /// Speed of a trace, as a multiple of the recorded speed.
    #[arg(long, value_name = "TIMES", value_parser = positive, conflicts_with = "workload")]
    speed_up: Option<f64>,
    /// Number of requests to play, from the start of a trace.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "workload")]
    first: Option<u32>,
    /// Cut longer prompts of a trace, tokens.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "workload")]
    input_cap: Option<u32>,
    /// Number of first requests that only warm the caches and are not counted. [default: a tenth of a trace; a workload's own]
    #[arg(long, value_name = "N")]
    warmup: Option<u32>,
    /// Length of a generated workload, as a multiple of its usual length.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = positive, conflicts_with = "trace")]
    scale: f64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command line.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match plan::plan(&cli).and_then(|plan| compare(&plan, cli.json)) {
        Ok(text) => match writeln!(io::stdout().lock(), "{text}") {
            // A reader that has seen enough (`| head`) is not a failure.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                eprintln!("isotherm-sim: cannot write the standard output: {error}");
                ExitCode::FAILURE
            }
            Ok(()) | Err(_) => ExitCode::SUCCESS,
        },
        Err(error) => {
            eprintln!("isotherm-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; the standard error shows the progress.
fn compare(plan: &Plan, json: bool) -> anyhow::Result<String> {
    eprintln!(
        "{}: {} requests, {} of them to warm up; {}",
        plan.workload.name,
        plan.workload.requests(),
        plan.workload.warmup_requests,
        plan.fleet.describe(),
    );
    note_long_requests(plan);
    let comparison = plan.compare(|system| eprintln!("  {}", system.as_str()));
    comparison.whole()?;
    let report = Report {
        plan,
        comparison: &comparison,
        saving: plan.saving(&comparison),
    };
    if json {
        Ok(report.json()?)
    } else {
        Ok(format!("\n{}", report.text()))
    }
}

/// Warns of requests that no engine can hold: they fail under every policy.
fn note_long_requests(plan: &Plan) {
    let most = plan.fleet.request_tokens_max();
    let sessions = plan.workload.sessions.iter();
    let long = sessions
        .flat_map(|session| &session.steps)
        .filter(|step| step.prompt.tokens().saturating_add(step.output_tokens) > most)
        .count();
    if long > 0 {
        eprintln!(
            "note: {long} requests are longer than the {most} tokens that this engine holds, and will fail; choose another \
             --engine, or cut a trace's prompts with --input-cap"
        );
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value| *value > 0.0 && *value <= 1e6);
    value.ok_or_else(|| "a number above 0, at most a million, is wanted".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;
    use isotherm_command_interface::check_current;

    use super::*;

    #[test]
    fn xtask_knows_the_command_line() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xtask/interfaces");
        let file = folder.join("sim.json");
        check_current(&file, "cargo xtask sim", &Cli::command()).unwrap();
    }
}

//! The command line of `isotherm-sim experiment`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use isotherm_simulator::scaling::trace::Traces;
use isotherm_simulator::workload::trace::Trace;

use crate::context::{Context, Effort};
use crate::{registry, workloads};

/// Default directory of reports; `cargo xtask` sets it.
const OUTPUT: &str = "ISOTHERM_OUTPUT";

/// Runs an experiment after a paper and writes its report: a page, CSV, JSON.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "isotherm-sim experiment",
    bin_name = "isotherm-sim experiment",
    version
)]
pub struct Arguments {
    /// Name of the experiment, or `all`; an unknown name lists them
    pub name: String,
    /// Amount of work
    #[command(flatten)]
    pub effort: Effort,
    /// Mooncake's conversation trace (JSONL), for dualmap-3; without it, and in all others, what is played is synthetic
    #[arg(long)]
    pub trace: Option<PathBuf>,
    /// Directory of recorded weeks (o365-nov2024-input-tokens-per-minute.csv, servegen-m-*-10min.csv), for sageserve-8, -11, -13,
    /// scaling-weeks, fidelity and regions; without it, their synthetic twins
    #[arg(long, value_name = "DIRECTORY")]
    pub traces: Option<PathBuf>,
    /// Also writes the page, with the command, the commit, the date and the machine, and its tables into this directory, such as docs/results
    #[arg(long, value_name = "DIRECTORY")]
    pub markdown: Option<PathBuf>,
    /// Directory of the reports [default: target/experiments]
    #[arg(long)]
    pub output: Option<PathBuf>,
}

/// Runs the command line after `experiment`.
pub fn main() -> ExitCode {
    match run(&Arguments::parse_from(env::args_os().skip(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the experiments; prints their conclusions and the path of the report.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let experiments = registry::named(&arguments.name)?;
    let output = arguments.output.clone().unwrap_or_else(|| {
        let made = env::var_os(OUTPUT).map_or_else(|| PathBuf::from("target"), PathBuf::from);
        made.join("experiments")
    });
    let mut effort = arguments.effort.clone();
    if let Some(path) = &arguments.trace {
        effort.trace = Some(read(path, workloads::trace_requests(effort.quick))?);
    }
    if let Some(directory) = &arguments.traces {
        effort.traces = Some(Arc::new(Traces::open(directory)?));
    }
    let context = Context::new(effort);
    let page = registry::run(
        &experiments,
        &context,
        &output,
        arguments.markdown.as_deref(),
    )?;
    println!("{}", page.display());
    Ok(())
}

fn read(path: &Path, needed: usize) -> anyhow::Result<Arc<Trace>> {
    let trace = Trace::open(path, None)?;
    let has = trace.lines().len();
    anyhow::ensure!(
        has >= needed,
        "the trace {} has {has} requests; {needed} are needed",
        path.display()
    );
    Ok(Arc::new(trace))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use isotherm_command_interface::check_current;

    use super::*;

    #[test]
    fn xtask_knows_the_command_line() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/interfaces");
        let file = folder.join("experiment.json");
        check_current(&file, "cargo xtask experiment", &Arguments::command()).unwrap();
    }
}

//! `isotherm-sim experiment`: its options.

use core::num::NonZeroU64;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::Parser;

use super::lab::{Effort, Lab};
use super::{list, workloads};
use crate::workload::trace::Trace;

/// Where reports go when nothing else is said; `cargo xtask` sets it.
const OUTPUT: &str = "ISOTHERM_OUTPUT";

/// Runs an experiment after a paper and writes its report: CSV, JSON, HTML.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "isotherm-sim experiment",
    bin_name = "isotherm-sim experiment",
    version
)]
pub struct Arguments {
    /// Which one, or `all`; with a name that does not exist, the list of those that do
    pub name: String,
    /// How many seeds each case is run with, instead of as many as the experiment finds enough
    #[arg(long)]
    pub seeds: Option<NonZeroU64>,
    /// The first seed [default: 1; of the experiment `default` 201, as isotherm's constants were chosen on seeds 1 to 10]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Runs at once; the reports do not depend on it [default: one for each core]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Fewer requests or a shorter time, one seed, and of each axis little but its ends: to see that it works, not to measure
    #[arg(long)]
    pub quick: bool,
    /// Mooncake's conversation trace (JSONL), for dualmap-1, -3, -4, -5 and assumptions; without it, and in all others, what is
    /// played is synthetic
    #[arg(long)]
    pub trace: Option<PathBuf>,
    /// Where the reports go [default: target/experiments]
    #[arg(long)]
    pub output: Option<PathBuf>,
}

/// Reads the command line behind `experiment`, and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    match run(&Arguments::parse_from(env::args_os().skip(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs it; says on standard output what was found, and where the report is.
///
/// # Errors
/// When there is no such experiment, a trace cannot be read or a file cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let experiments = list::named(&arguments.name)?;
    let threads = arguments
        .threads
        .or_else(|| thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let output = arguments.output.clone().unwrap_or_else(|| {
        let made = env::var_os(OUTPUT).map_or_else(|| PathBuf::from("target"), PathBuf::from);
        made.join("experiments")
    });
    let read = |path| read(path, workloads::trace_requests(arguments.quick));
    let trace = arguments.trace.as_deref().map(read).transpose()?;
    let lab = Lab::new(Effort {
        seed: arguments.seed,
        seeds: arguments.seeds.map(NonZeroU64::get),
        threads,
        quick: arguments.quick,
        trace,
    });
    let page = list::run(&experiments, &lab, Path::new(&output))?;
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

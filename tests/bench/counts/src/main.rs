//! `isotherm-bench-counts`: counts the instructions of the hot paths and compares them with a committed baseline.
//!
//! Time depends on the machine and its other work; the number of instructions does not. [`sandbox`] runs the filter and the core
//! as WebAssembly in an interpreter that counts exactly. [`callgrind`] counts native instructions of the core, where valgrind
//! is installed.
//!
//! A count belongs to a compiler: another release generates other code. A compiler without a baseline is compared with another
//! one, with more tolerance.

mod baseline;
mod callgrind;
mod sandbox;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::baseline::{Baseline, Comparison, Counter};

/// Counts instructions of the hot paths and compares them with a baseline
#[derive(Parser)]
#[command(
    name = "cargo xtask bench counts",
    bin_name = "cargo xtask bench counts"
)]
struct Arguments {
    /// Accepts the counts as the baseline
    #[arg(long)]
    accept: bool,
    /// The baseline
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    /// The filter
    #[arg(long, value_name = "FILE")]
    filter: PathBuf,
    /// The benches' module
    #[arg(long, value_name = "FILE")]
    bench_filter: PathBuf,
    /// The compiler of the two modules
    #[arg(long, value_name = "NAME")]
    wasm_compiler: String,
    /// The native program that runs one unit
    #[arg(long, value_name = "FILE")]
    unit: PathBuf,
    /// The compiler of the native program
    #[arg(long, value_name = "NAME")]
    compiler: String,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(holds) => ExitCode::from(u8::from(!holds)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Counts, and returns whether every count holds.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut baseline = Baseline::read(&arguments.baseline)?;
    let sandbox = sandbox::count(&arguments.filter, &arguments.bench_filter)?;
    let mut counted = vec![(Counter::Sandbox, arguments.wasm_compiler.as_str(), sandbox)];
    match callgrind::count(&arguments.unit)? {
        Some(counts) => counted.push((Counter::Callgrind, &arguments.compiler, counts)),
        None => println!(
            "callgrind: skipped, since there is no `valgrind` here (Debian: apt-get install valgrind); the counts inside the \
             sandbox are complete without it"
        ),
    }
    let mut holds = true;
    for (counter, compiler, counts) in &counted {
        if arguments.accept {
            baseline.accept(*counter, compiler, counts);
        } else {
            let comparison = baseline.compare(*counter, compiler, counts)?;
            print!("{comparison}");
            holds &= comparison.holds();
        }
    }
    if arguments.accept {
        baseline.write(&arguments.baseline)?;
        println!("{} is written", arguments.baseline.display());
    } else if !holds {
        println!("{}", Comparison::ADVICE);
    }
    Ok(holds)
}

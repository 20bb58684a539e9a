//! `isotherm-bench-counts`: counts the instructions of the hot paths and compares them with a committed baseline.
//!
//! Time depends on the machine and on who else uses it; the number of instructions does not. They are counted twice.
//! [`sandbox`] runs the filter itself and the core, both compiled to WebAssembly, in an interpreter that keeps an account:
//! exact, and possible wherever the filter can be built. [`callgrind`] counts what a processor would execute of the
//! core, where valgrind is installed, and says so where it is not.
//!
//! The figures belong to a compiler: another release makes other code of the same source. A compiler that has no baseline is
//! compared with one that has, with more tolerance.

mod baseline;
mod callgrind;
mod sandbox;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::baseline::{Baseline, Counter, Verdict};

/// Counts instructions of the hot paths and compares them with a baseline
#[derive(Parser)]
#[command(
    name = "cargo xtask bench counts",
    bin_name = "cargo xtask bench counts"
)]
struct Arguments {
    /// Makes what is counted now the baseline
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
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing got slower.
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
    let mut good = true;
    for (counter, compiler, counts) in &counted {
        if arguments.accept {
            baseline.accept(*counter, compiler, counts);
        } else {
            let verdict = baseline.judge(*counter, compiler, counts)?;
            print!("{verdict}");
            good &= verdict.is_good();
        }
    }
    if arguments.accept {
        baseline.write(&arguments.baseline)?;
        println!("{} is written", arguments.baseline.display());
    } else if !good {
        println!("{}", Verdict::ADVICE);
    }
    Ok(good)
}

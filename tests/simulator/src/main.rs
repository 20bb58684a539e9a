//! `isotherm-sim`: policies on a workload, in virtual time.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::run()
}

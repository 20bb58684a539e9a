//! `isotherm-sim`: policies on a workload, in virtual time; `isotherm-sim experiment NAME` runs an experiment after a paper.

use std::env;
use std::process::ExitCode;

use isotherm_simulator::experiment;

mod cli;

fn main() -> ExitCode {
    // A command of its own: it shares no option with what users ask of their traffic.
    if env::args_os()
        .nth(1)
        .is_some_and(|first| first == "experiment")
    {
        experiment::cli::main()
    } else {
        cli::run()
    }
}

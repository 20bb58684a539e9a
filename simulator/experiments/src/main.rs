//! `isotherm-sim`: compares policies on the user's traffic, in virtual time; `isotherm-sim experiment NAME` runs an
//! experiment after a paper.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Experiments share no option with the comparison.
    if env::args_os()
        .nth(1)
        .is_some_and(|first| first == "experiment")
    {
        isotherm_experiments::cli::main()
    } else {
        isotherm_simulator::cli::run()
    }
}

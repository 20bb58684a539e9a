//! The `isotherm` binary.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use isotherm_ext_proc::cli::{self, Cli};
use isotherm_ext_proc::log;
use mimalloc::MiMalloc;

/// A request allocates and frees some hundred small pieces of memory within microseconds, on several threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let result = cli::run(Cli::parse()).await;
    log::finish();
    result.unwrap_or_else(|error| {
        // Without a standard error, the exit code tells the failure.
        let _ = writeln!(std::io::stderr(), "isotherm: {error:#}");
        cli::exit_code(&error)
    })
}

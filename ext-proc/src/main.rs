//! The `isotherm` binary.

use std::process::ExitCode;

use clap::Parser as _;
use isotherm_ext_proc::cli::{self, Cli};
use mimalloc::MiMalloc;

/// A request allocates and frees some hundred small pieces of memory within microseconds, on several threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    cli::run(Cli::parse()).await.unwrap_or_else(|error| {
        eprintln!("isotherm: {error:#}");
        ExitCode::FAILURE
    })
}

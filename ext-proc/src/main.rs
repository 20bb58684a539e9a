//! The `isotherm` binary.

use std::process::ExitCode;

use clap::Parser as _;
use isotherm::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    cli::run(Cli::parse()).await.unwrap_or_else(|error| {
        eprintln!("isotherm: {error:#}");
        ExitCode::FAILURE
    })
}

//! `isotherm-bench-path`: what `cargo xtask bench path` runs once everything is built.

use std::process::ExitCode;

use clap::Parser;
use isotherm_harness::Tools;
use isotherm_load::path::{Options, measure};
use tokio::signal::unix::{SignalKind, signal};

/// What a request costs on its way: Envoy, Envoy with the filter, the least that could stand in Isotherm's place, Isotherm,
/// SGLang's router
#[derive(Parser)]
#[command(name = "cargo xtask bench path", bin_name = "cargo xtask bench path")]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Arguments::parse().options;
    // Whatever ends this, the rows are dropped and take their processes with them.
    let done = tokio::select! {
        done = run(&options) => done.map(|()| ExitCode::SUCCESS),
        stopped = interrupted() => stopped.map(|()| ExitCode::from(130)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let output = Tools::find()?.output.join("bench");
    std::fs::create_dir_all(&output)?;
    let report = measure(options).await?;
    println!("{}", report.table());
    println!("{}", report.write(&output)?.display());
    Ok(())
}

/// Ctrl-C, or a polite `kill`.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
        _ = terminate.recv() => Ok(()),
    }
}

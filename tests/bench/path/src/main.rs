//! `isotherm-bench-path`: what `cargo xtask bench path` runs once everything is built.

use std::process::ExitCode;

use clap::Parser;
use isotherm_bench_path::{Options, measure};
use isotherm_harness::Tools;
use isotherm_harness::shutdown::run_until_stopped;

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
    run_until_stopped(run(Arguments::parse().options)).await
}

async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let output = Tools::find()?.output.join("bench");
    let report = measure(&options).await?;
    println!("{}", report.table());
    println!("{}", report.write(&output)?.display());
    Ok(ExitCode::SUCCESS)
}

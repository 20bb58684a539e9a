//! `isotherm-profile`: what `cargo xtask profile` runs once everything is built.

use std::process::ExitCode;

use clap::Parser;
use isotherm_bench_path::profile::{Options, run};
use isotherm_harness::Tools;
use isotherm_harness::shutdown::run_until_stopped;

/// Where the time of a request goes, in Envoy and in the service: tables and flame graphs (needs Linux and `perf`)
#[derive(Parser)]
#[command(name = "cargo xtask profile", bin_name = "cargo xtask profile")]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_until_stopped(profile(Arguments::parse().options)).await
}

async fn profile(options: Options) -> anyhow::Result<ExitCode> {
    let output = Tools::find()?.output.join("profile");
    println!("{}", run(&options, &output).await?);
    Ok(ExitCode::SUCCESS)
}

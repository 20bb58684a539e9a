//! `isotherm-profile`: what `cargo xtask profile` runs once everything is built.

use std::process::ExitCode;

use clap::Parser;
use isotherm_harness::Tools;
use isotherm_load::profile::{Options, run};

/// Where the time of a request goes, in Envoy and in the service: tables and flame graphs (needs Linux and `perf`)
#[derive(Parser)]
#[command(name = "cargo xtask profile", bin_name = "cargo xtask profile")]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Arguments::parse().options;
    match profile(&options).await {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn profile(options: &Options) -> anyhow::Result<String> {
    run(options, &Tools::find()?.output.join("profile")).await
}

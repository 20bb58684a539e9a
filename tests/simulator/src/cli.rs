//! The command line: a standard workload on its fleet, under one policy or the oracle.

use std::process::ExitCode;

use clap::Parser;
use isotherm_router::{PolicyName, RouterConfig};
use isotherm_simulator::workload::standard::standard;
use isotherm_simulator::{Balancing, run as simulate};

/// Runs a workload on a simulated fleet and prints its figures as JSON.
#[derive(Debug, Parser)]
#[command(name = "isotherm-sim", version)]
struct Cli {
    /// A standard workload.
    #[arg(long)]
    workload: String,
    /// A policy, or `oracle`.
    #[arg(long, default_value = "isotherm")]
    policy: String,
    /// What everything random follows from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Reads the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    match figures(&Cli::parse()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("isotherm-sim: {text}");
            ExitCode::FAILURE
        }
    }
}

fn figures(cli: &Cli) -> Result<String, String> {
    let all = standard();
    let named = all.iter().find(|standard| standard.name == cli.workload);
    let standard = named.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|standard| standard.name).collect();
        format!(
            "no workload is called {:?}; use one of: {}",
            cli.workload,
            names.join(", ")
        )
    })?;
    let balancing = if cli.policy == "oracle" {
        Balancing::Oracle
    } else {
        let policy: PolicyName = cli
            .policy
            .parse()
            .map_err(|error| format!("{error}, oracle"))?;
        Balancing::Router(RouterConfig {
            policy,
            ..RouterConfig::default()
        })
    };
    let setup = standard.setup(cli.seed, balancing);
    let outcome = simulate(&setup, &standard.workload(cli.seed));
    serde_json::to_string_pretty(&outcome.summary(setup.slo)).map_err(|error| error.to_string())
}

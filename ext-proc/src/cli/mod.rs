//! The `isotherm` command line.
//!
//! `serve` is the service; everything else is for the person who runs it. Options that describe the service stand
//! in its file: the command line only says which file, and how much to log.

mod check;
mod client;
mod explain;
mod output;
mod record;
mod regions;
mod replicas;
mod table;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Config, reference};
use crate::{log, server};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "isotherm",
    version,
    about = "Routes LLM requests to where their prefix is cached, beside Envoy"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service.
    Serve(Serve),
    /// Check a configuration file: print every mistake, or what it means.
    Check(check::Check),
    /// Ask the running service where a request would go, and why.
    Explain(explain::Explain),
    /// Watch replicas, queues and hit ratios.
    Top(top::Top),
    /// See and change the replicas of the running service.
    Replicas(replicas::Replicas),
    /// See the other regions, or say that one is lost.
    Regions(regions::Regions),
    /// Record live traffic of the running service as a trace that `isotherm-sim` replays.
    ///
    /// A trace has no text: it says when requests came, how long they and their answers were, and which of them began
    /// with the same prompt, by ids that mean nothing outside of it. The service must allow it (`recording.enabled`).
    Record(record::Record),
    /// Print the reference of the configuration file, as Markdown.
    #[command(hide = true)]
    ConfigReference,
}

#[derive(Debug, Args)]
struct Serve {
    /// The configuration file; without one, a single pool takes every model, and replicas come through the admin
    /// interface.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Log filter: a level, or levels by module, such as `info,isotherm_ext_proc::frontends=debug`.
    #[arg(long, value_name = "FILTER", default_value = log::DEFAULT_FILTER)]
    log: String,
}

/// Does what the command line says.
///
/// # Errors
///
/// What went wrong, and what to do about it.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => {
            log::init(&args.log)?;
            let config = match &args.config {
                Some(file) => config::load(file)?,
                None => Config::default(),
            };
            server::run(config, args.config).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::Replicas(args) => replicas::run(args).await,
        Command::Regions(args) => regions::run(args).await,
        Command::Record(args) => record::run(args).await,
        Command::ConfigReference => {
            output::print(&reference::markdown())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

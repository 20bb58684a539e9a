//! The `isotherm` command line.
//!
//! `serve` runs the service; the other commands are for its operator. The configuration file has the options of the
//! service: the command line gives only the file and the log level.

mod address;
mod batch;
mod certificates;
mod check;
mod client;
mod doctor;
mod drain_envoy;
mod envoy;
mod explain;
mod init;
mod installation;
mod learned;
mod mesh;
mod models;
mod output;
mod pages;
mod record;
/// Without the batch queue the page would lack its commands.
#[cfg(test)]
mod reference;
mod regions;
mod replicas;
mod run;
mod scaling;
mod supervised;
mod tiers;
mod top;
mod trial;
mod warnings;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::reference as config_reference;
use crate::config::{self, Config};
use crate::{descriptors, log, server};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "isotherm",
    version,
    about = "Routes LLM requests to the replicas that have their prefix in cache, beside Envoy"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service and Envoy as one supervised pair, in front of replicas that run.
    ///
    /// The command asks the replicas for their model, writes both configurations into a folder of its own, starts both programs and
    /// prints a request. It starts a program again that ends by itself; new connections wait for Envoy meanwhile. The first SIGTERM or
    /// SIGINT lets the running requests end, a second one ends everything at once.
    Run(Box<run::Run>),
    /// Compare Isotherm with round robin on this machine: simulated engines, a real Envoy, and a report.
    Try(trial::Trial),
    /// Write the first configuration of the service and of Envoy; on a terminal, ask for model and replicas.
    Init(Box<init::Init>),
    /// Run the service.
    Serve(Serve),
    /// Check a configuration file, or the manifests of a mesh: print every mistake, or a summary.
    Check(check::Check),
    /// Write, extend or check the configuration of an Envoy with Isotherm.
    Envoy(envoy::Envoy),
    /// Find the missing link between Envoy, the filter, the service and the replicas that run now.
    ///
    /// The command asks Envoy's admin interface, the service's and each replica, and changes nothing. Each line names a fault and its
    /// remedy. An error makes the exit code 1; a warning, such as a counter that has grown since a start, does not.
    Doctor(Box<doctor::Doctor>),
    /// Show which replica a running service would select for a request, and why.
    Explain(explain::Explain),
    /// Watch the replicas, queues and hit ratios of a running service.
    Top(top::Top),
    /// Show, add, remove and drain the replicas of a running service.
    Replicas(replicas::Replicas),
    /// Show how many replicas each pool needs, and why; hold a number.
    Scaling(scaling::ScalingArgs),
    /// Show the other regions.
    Regions(regions::Regions),
    /// Record live traffic of a running service as a trace that `isotherm-sim` replays.
    ///
    /// A trace has no text: it has arrival times, the lengths of prompts and responses, and ids of shared prefixes that
    /// mean nothing outside the trace. The service must allow recordings (`recording`).
    Record(record::Record),
    /// Queue non-interactive requests durably: OpenAI's batch format and batch API.
    Batch(Box<batch::Batch>),
    /// Make certificates for regions and siblings, by a private authority.
    ///
    /// The first call makes the authority; its key belongs on no machine that serves. A further call replaces the certificates of the
    /// named regions. The three files of a region change at once, and Envoy and the service read them again.
    Certificates(certificates::Certificates),
    /// Let an Envoy finish its requests before it is stopped: the `preStop` hook of its container.
    DrainEnvoy(drain_envoy::DrainEnvoy),
    /// Become a program that ends with its supervisor; `run` starts its programs by it.
    #[command(hide = true)]
    Supervised(supervised::SupervisedCommand),
    /// Print the reference of the configuration file as Markdown.
    ConfigReference,
    /// Print the JSON Schema of the configuration file, for editors.
    ConfigSchema,
    /// Print a script that completes commands in a shell.
    Completions(pages::Completions),
    /// Print the manual page, or write a page for each command.
    Man(pages::Man),
}

#[derive(Debug, Args)]
struct Serve {
    /// Configuration file. Without it one pool serves every model, and the admin interface adds its replicas.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Log filter: a level, or levels by module, such as `info,isotherm_ext_proc::frontends=debug`.
    #[arg(long, value_name = "FILTER", default_value = log::DEFAULT_FILTER)]
    log: String,
}

/// The exit code of a command that a server does not answer, as scripts see it. A mistake has 1, a wrong command line 2.
const UNREACHABLE: u8 = 3;

/// Runs the program with its command line, and returns its exit code.
///
/// The runtime is here, not in the binary: the library compiles every command once, and its binary only calls it.
#[tokio::main]
pub async fn main() -> ExitCode {
    let result = run(Cli::parse()).await;
    log::finish();
    result.unwrap_or_else(|error| {
        // Without a standard error, the exit code tells the failure.
        let _ = writeln!(io::stderr(), "isotherm: {error:#}");
        exit_code(&error)
    })
}

/// Returns the exit code of a failed command.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    match error.is::<client::Unreachable>() {
        true => ExitCode::from(UNREACHABLE),
        false => ExitCode::FAILURE,
    }
}

/// Runs the command of the command line.
/// The error says what to do about it.
async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => {
            log::init(&args.log)?;
            if let Err(error) = descriptors::raise_limit() {
                tracing::warn!(%error, "the limit of file descriptors cannot be raised");
            }
            let config = match &args.config {
                Some(file) => config::load(file)?,
                None => Config::default(),
            };
            server::run(config, args.config).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(args) => run::run(*args).await,
        Command::Try(args) => trial::run(&args).await,
        Command::Init(args) => init::run(*args).await,
        Command::Check(args) => check::run(&args),
        Command::Envoy(args) => envoy::run(args).await,
        Command::Doctor(args) => doctor::run(*args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::Replicas(args) => replicas::run(args).await,
        Command::Regions(args) => regions::run(args).await,
        Command::Scaling(args) => scaling::run(args).await,
        Command::Record(args) => record::run(args).await,
        Command::Batch(args) => batch::run(*args).await,
        Command::Certificates(args) => certificates::run(&args),
        Command::DrainEnvoy(args) => drain_envoy::run(args).await,
        Command::Supervised(args) => match supervised::run(&args)? {},
        Command::ConfigReference => {
            output::print(&config_reference::markdown())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::ConfigSchema => {
            output::print(&format!("{:#}\n", config_reference::json_schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions(args) => pages::complete(&args, Cli::command()),
        Command::Man(args) => pages::man(&args, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

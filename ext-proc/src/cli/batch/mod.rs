//! `isotherm batch`: the durable queue of non-interactive requests.

mod deliver;
mod options;
mod progress;
mod run;
mod serve;
mod state;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(super) struct Batch {
    #[command(subcommand)]
    command: BatchCommand,
}

#[derive(Debug, Subcommand)]
enum BatchCommand {
    /// Send the requests of a file in OpenAI's batch format, and write the responses.
    ///
    /// The state is in the database: after Ctrl-C or a crash, the same command goes on where it was.
    Run(run::Run),
    /// Serve OpenAI's batch API, and send the requests of its batches.
    Serve(serve::Serve),
    /// Send the requests of all batches in the database, without an API: a further worker.
    Work(serve::Work),
    /// List the batches in the database, newest first.
    List(state::List),
    /// Show one batch.
    Show(state::Show),
    /// Copy a database of SQLite into a new file, while workers use it.
    Backup(state::Backup),
    /// Cancel a batch. Requests at the gateway end; the others are not sent.
    Cancel(state::Cancel),
}

pub(super) async fn run(batch: Batch) -> anyhow::Result<ExitCode> {
    match batch.command {
        BatchCommand::Run(args) => run::run(args).await,
        BatchCommand::Serve(args) => serve::serve(args).await,
        BatchCommand::Work(args) => serve::work(args).await,
        BatchCommand::List(args) => state::list(args).await,
        BatchCommand::Show(args) => state::show(args).await,
        BatchCommand::Backup(args) => state::backup(args).await,
        BatchCommand::Cancel(args) => state::cancel(args).await,
    }
}

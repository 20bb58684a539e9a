//! `isotherm batch run`: one file of requests, from the command line.

use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use isotherm_batch::api::BatchObject;
use isotherm_batch::completion_window::CompletionWindow;
use isotherm_batch::gateway::Gateway;
use isotherm_batch::limits::Limits;
use isotherm_batch::store::{BatchRow, Store};
use isotherm_batch::submission::{InputFile, Submission, SubmissionError};
use isotherm_batch::worker;
use tokio_util::sync::CancellationToken;

use super::deliver::deliver;
use super::options::{Database, GatewayOptions};
use super::progress::ProgressReport;
use super::serve::stop_on_signal;
use crate::cli::output::print;
use crate::log;

/// The log of a command with a progress bar.
const LOG: &str = "warn";
/// Exit code after an interruption: 128 and the number of SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// File of requests in OpenAI's batch format: a JSON object in each line.
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// File for the responses, in the order of the requests.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// File for the errors. It is not made when every request succeeds.
    #[arg(long, value_name = "FILE")]
    errors: PathBuf,
    /// Time for the whole file: `24h`, or less, such as `90m`. The nearer the end, the more requests are sent as
    /// interactive ones.
    #[arg(long, value_name = "TIME", default_value_t = CompletionWindow::DAY)]
    window: CompletionWindow,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    sending: GatewayOptions,
    /// Print the batch as JSON when it has ended, for scripts.
    #[arg(long)]
    json: bool,
    /// Log filter: a level, or levels by module.
    #[arg(long, value_name = "FILTER", default_value = LOG)]
    log: String,
}

pub(super) async fn run(args: Run) -> anyhow::Result<ExitCode> {
    log::init(&args.log)?;
    let limits = Limits::default();
    // Mistakes in the options come before any work.
    let mut worker = args.sending.worker(limits.clone(), None)?;
    let gateway = worker.gateway.clone();
    let store = args.database.open().await?;
    let submitted = submit(&store, &args, &limits);
    let (batch, ()) = tokio::join!(submitted, gateway.probe());
    let batch = batch?;
    worker.only = Some(batch.id.clone());
    let stop = stop_on_signal()?;
    let work = stop.child_token();
    let working = tokio::spawn(worker::run(store.clone(), worker, work.clone()));
    let ended = tokio::select! {
        ended = follow(&store, &batch.id, &gateway, &stop) => ended,
        error = store.retired() => Err(error.into()),
    };
    work.cancel();
    // The cause of its end is known.
    let _ = working.await.context("the worker failed")?;
    let code = match ended? {
        Some(batch) => {
            let code = deliver(&store, &batch, &args.output, &args.errors).await?;
            if args.json {
                print(&format!(
                    "{}\n",
                    serde_json::to_string_pretty(&BatchObject::from(batch))?
                ))?;
            }
            code
        }
        None => {
            eprintln!(
                "interrupted; the same command goes on with the batch {}, and `isotherm batch cancel` ends it",
                batch.id
            );
            ExitCode::from(INTERRUPTED)
        }
    };
    store.close().await;
    Ok(code)
}

/// Finds the batch of an earlier run with the same files, or makes one.
async fn submit(store: &Store, args: &Run, limits: &Limits) -> anyhow::Result<BatchRow> {
    let output = absolute(&args.output)?.to_string_lossy().into_owned();
    check_writable(&args.output)?;
    check_writable(&args.errors)?;
    let input = InputFile::read(&args.input).await;
    let input = input.with_context(|| format!("cannot use {}", args.input.display()))?;
    let submission = Submission {
        input: &input,
        output_path: &output,
        window: args.window,
        limits,
    };
    match submission.submit(store).await {
        Ok((batch, is_new)) => {
            let verb = if is_new { "begins" } else { "goes on" };
            eprintln!("the batch {} {verb}", batch.id);
            Ok(batch)
        }
        Err(SubmissionError::OtherInput(id)) => bail!(
            "{} is the output of the batch {id}, which has another input and is not finished: \
             choose another --output, or end it with `isotherm batch cancel {id}`",
            args.output.display()
        ),
        Err(error) => Err(error).with_context(|| format!("cannot use {}", args.input.display())),
    }
}

/// Fails where the folder of a file is missing, before hours of work.
fn check_writable(file: &Path) -> anyhow::Result<()> {
    let file = absolute(file)?;
    let folder = file.parent().context("the path names no file")?;
    if !folder.is_dir() {
        bail!("{} is no folder: make it first", folder.display());
    }
    Ok(())
}

/// Shows the progress until the batch ends; `None` after a signal.
async fn follow(
    store: &Store,
    id: &str,
    gateway: &Gateway,
    stop: &CancellationToken,
) -> anyhow::Result<Option<BatchRow>> {
    let mut progress = ProgressReport::new();
    loop {
        match store.batch(None, id).await {
            Ok(Some(batch)) => {
                progress.show(&batch, store.now(), gateway.unreachable_cause());
                if batch.status.is_final() {
                    progress.end();
                    return Ok(Some(batch));
                }
            }
            Ok(None) => bail!("the batch {id} is gone from the database"),
            Err(error) => tracing::warn!(%error, "the progress is unknown"),
        }
        tokio::select! {
            () = stop.cancelled() => {
                progress.end();
                return Ok(None);
            }
            () = tokio::time::sleep(ProgressReport::INTERVAL) => {}
        }
    }
}

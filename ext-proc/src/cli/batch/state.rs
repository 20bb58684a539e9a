//! `isotherm batch list`, `show`, `cancel` and `backup`.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use isotherm_batch::api::BatchObject;
use isotherm_batch::pace::UnixMs;
use isotherm_batch::store::{BatchRow, BatchStatus, Store};

use super::deliver::describe;
use super::options::Database;
use crate::cli::output::{JsonFlag, or_dash, print, table};

#[derive(Debug, Args)]
pub(super) struct List {
    /// Most batches to list.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    json: JsonFlag,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Name of the batch.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    json: JsonFlag,
}

#[derive(Debug, Args)]
pub(super) struct Cancel {
    /// Name of the batch.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    database: Database,
}

#[derive(Debug, Args)]
pub(super) struct Backup {
    /// File of the copy, which must not exist.
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    database: Database,
}

pub(super) async fn list(args: List) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing().await?;
    let batches = store.batches(None, None, args.limit).await?;
    let now = store.now();
    store.close().await;
    let objects: Vec<BatchObject> = batches.iter().cloned().map(BatchObject::from).collect();
    args.json.print(&objects, |_| list_table(&batches, now))?;
    Ok(ExitCode::SUCCESS)
}

/// Renders a row for each batch.
fn list_table(batches: &[BatchRow], now: UnixMs) -> String {
    let rows = batches.iter().map(|batch| {
        vec![
            batch.id.clone(),
            batch.status.to_string(),
            or_dash(Some(&batch.model).filter(|model| !model.is_empty())),
            batch.total.to_string(),
            batch.completed.to_string(),
            batch.failed.to_string(),
            duration(now.saturating_sub(batch.created_at)),
            time_left(batch, now),
            batch.owner.clone(),
        ]
    });
    let header = [
        "BATCH",
        "STATUS",
        "MODEL",
        "REQUESTS",
        "COMPLETED",
        "FAILED",
        "AGE",
        "LEFT",
        "OWNER",
    ];
    table(&header, rows.collect())
}

pub(super) async fn show(args: Show) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing().await?;
    let batch = find(&store, &args.id).await;
    let now = store.now();
    store.close().await;
    let batch = batch?;
    let object = BatchObject::from(batch.clone());
    args.json.print(&object, |_| show_table(&batch, now))?;
    Ok(ExitCode::SUCCESS)
}

/// Renders a line for each member of a batch, and the mistakes of its input.
fn show_table(batch: &BatchRow, now: UnixMs) -> String {
    let age = |time: Option<UnixMs>| {
        let age = time.map(|time| duration(now.saturating_sub(time)));
        or_dash(age.map(|age| format!("{age} ago")))
    };
    let rows = [
        ("batch", batch.id.clone()),
        ("status", batch.status.to_string()),
        ("owner", batch.owner.clone()),
        ("endpoint", batch.endpoint.to_string()),
        (
            "model",
            or_dash(Some(&batch.model).filter(|model| !model.is_empty())),
        ),
        ("requests", batch.total.to_string()),
        ("completed", batch.completed.to_string()),
        ("failed", batch.failed.to_string()),
        ("window", batch.window.to_string()),
        ("left", time_left(batch, now)),
        ("created", age(Some(batch.created_at))),
        ("begun", age(batch.in_progress_at)),
        ("input file", batch.input_file_id.clone()),
        ("output file", or_dash(batch.output_file_id.clone())),
        ("error file", or_dash(batch.error_file_id.clone())),
        ("written to", or_dash(batch.output_path.clone())),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
    let mut text = table(&["", ""], rows.to_vec());
    if let Some(mistakes) = &batch.errors {
        text += &format!("{}\n", describe(mistakes));
    }
    text
}

pub(super) async fn cancel(args: Cancel) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing().await?;
    find(&store, &args.id).await?;
    store.cancel_batch(&args.id).await?;
    let batch = find(&store, &args.id).await?;
    match batch.status {
        BatchStatus::Cancelling | BatchStatus::Cancelled => {
            print(&format!("{}: {}\n", batch.id, batch.status))?;
            Ok(ExitCode::SUCCESS)
        }
        status => bail!("the batch {} is {status}: it cannot be cancelled", batch.id),
    }
}

pub(super) async fn backup(args: Backup) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing().await?;
    let copied = store.back_up(&args.file).await;
    store.close().await;
    copied.with_context(|| format!("cannot write {}", args.file))?;
    Ok(ExitCode::SUCCESS)
}

async fn find(store: &Store, id: &str) -> anyhow::Result<BatchRow> {
    let batch = store.batch(None, id).await?;
    batch.with_context(|| {
        format!("no batch {id} in this database: `isotherm batch list` shows them")
    })
}

/// The time until the deadline of a batch that is not finished.
fn time_left(batch: &BatchRow, now: UnixMs) -> String {
    match batch.status.is_final() {
        true => or_dash(None::<String>),
        false => duration(batch.expires_at.saturating_sub(now).max(0)),
    }
}

/// Formats a duration in its largest unit and the next.
fn duration(milliseconds: i64) -> String {
    let seconds = milliseconds / 1_000;
    match seconds {
        86_400.. => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
        3_600.. => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        60.. => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        for (milliseconds, text) in [
            (999, "0s"),
            (61_000, "1m1s"),
            (3_600_000, "1h0m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(duration(milliseconds), text);
        }
    }
}

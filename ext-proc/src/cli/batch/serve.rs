//! `isotherm batch serve` and `isotherm batch work`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use isotherm_batch::api::{self, ApiConfig};
use isotherm_batch::limits::Limits;
use isotherm_batch::worker;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::options::{Database, GatewayOptions};
use crate::{log, shutdown};

/// Seconds of a day.
const DAY_S: u64 = 24 * 3_600;

/// Log and retention.
#[derive(Debug, Args)]
struct WorkerOptions {
    /// Days that finished batches and their results stay.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_650))]
    retention_days: u64,
    /// Log filter: a level, or levels by module.
    #[arg(long, value_name = "FILTER", default_value = log::DEFAULT_FILTER)]
    log: String,
}

impl WorkerOptions {
    fn limits(&self) -> Limits {
        Limits {
            retention_s: self.retention_days * DAY_S,
            ..Limits::default()
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    sending: GatewayOptions,
    #[command(flatten)]
    running: WorkerOptions,
    /// Address of the API.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9006")]
    listen: SocketAddr,
    /// File with the keys of clients: in each line a key, or an owner's name and a key. An owner sees only its own files
    /// and batches. Needed beyond loopback.
    #[arg(long, value_name = "FILE")]
    keys_file: Option<PathBuf>,
    /// Most bytes of all files and results together. Where --keys-file names several owners, each has a share of them.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().storage_bytes_max)]
    storage_bytes_max: u64,
}

#[derive(Debug, Args)]
pub(super) struct Work {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    sending: GatewayOptions,
    #[command(flatten)]
    running: WorkerOptions,
}

pub(super) async fn serve(args: Serve) -> anyhow::Result<ExitCode> {
    log::init(&args.running.log)?;
    ensure!(
        args.listen.ip().is_loopback() || args.keys_file.is_some(),
        "beyond loopback the batch API needs keys: --keys-file names a file with them"
    );
    let limits = Limits {
        storage_bytes_max: args.storage_bytes_max,
        ..args.running.limits()
    };
    let worker = args.sending.worker(limits.clone(), None)?;
    let store = args.database.open().await?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    tracing::info!(listen = %listener.local_addr()?, "the batch API is ready");
    let config = ApiConfig {
        listen: args.listen,
        keys_file: args.keys_file,
        limits,
    };
    let stop = stop_on_signal()?;
    let api = api::serve(listener, store.clone(), config, stop.clone());
    tokio::join!(api, worker::run(store.clone(), worker, stop));
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn work(args: Work) -> anyhow::Result<ExitCode> {
    log::init(&args.running.log)?;
    let worker = args.sending.worker(args.running.limits(), None)?;
    let store = args.database.open().await?;
    worker::run(store.clone(), worker, stop_on_signal()?).await;
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

/// A token that the first signal cancels.
pub(super) fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let signal = shutdown::signal()?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        signal.await;
        stopping.cancel();
    });
    Ok(stop)
}

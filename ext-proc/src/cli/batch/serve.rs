//! `isotherm batch serve` and `isotherm batch work`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::routing::get;
use clap::Args;
use isotherm_batch::api::{self, ApiConfig, TlsHandshake};
use isotherm_batch::limits::Limits;
use isotherm_batch::store::{Store, StoreResult};
use isotherm_batch::worker::{self, WorkerConfig};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::options::{Database, GatewayOptions};
use crate::admin::{metrics_response, serve_pages};
use crate::config::ListenTls;
use crate::metrics::BatchMetrics;
use crate::server::GatewayTls;
use crate::{log, shutdown};

/// The ALPN protocol of the API.
const HTTP: &[u8] = b"http/1.1";
/// Seconds of a day.
const DAY_S: u64 = 24 * 3_600;

/// Log, metrics and retention.
#[derive(Debug, Args)]
struct WorkerOptions {
    /// Days that finished batches and their results stay.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_650))]
    retention_days: u64,
    /// Address for `/metrics` and `/healthz` alone, which ask for no key. `serve` has them on a loopback address of its API,
    /// too.
    #[arg(long, value_name = "IP:PORT")]
    metrics_listen: Option<SocketAddr>,
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

    /// Serves metrics and health until `stop` is cancelled.
    async fn serve_metrics(
        &self,
        pages: &MetricsPages,
        stop: &CancellationToken,
    ) -> anyhow::Result<impl Future<Output = ()> + use<>> {
        let listener = match self.metrics_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let (pages, stop) = (pages.clone(), stop.clone());
        Ok(async move {
            if let Some(listener) = listener {
                let router = pages.metrics().merge(pages.health());
                serve_pages(listener, router, stop.cancelled()).await;
            }
        })
    }
}

/// The pages for operators.
#[derive(Clone, Debug)]
struct MetricsPages {
    metrics: Arc<BatchMetrics>,
    store: Store,
}

impl MetricsPages {
    fn new(store: &Store, worker: &WorkerConfig) -> Self {
        let metrics = BatchMetrics::new(store.clone(), Arc::clone(&worker.counters));
        Self {
            metrics: Arc::new(metrics),
            store: store.clone(),
        }
    }

    fn metrics(&self) -> Router {
        let metrics = Arc::clone(&self.metrics);
        let page = async move || metrics_response(metrics.page().await);
        Router::new().route("/metrics", get(page))
    }

    fn health(&self) -> Router {
        let store = self.store.clone();
        Router::new().route("/healthz", get(async move || api::health(&store)))
    }
}

/// The certificate of the API.
#[derive(Debug, Args)]
struct ApiTls {
    /// File with the chain of the API's certificate, as PEM: the API then speaks TLS alone. Changed files need no restart.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the private key of --tls-cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl ApiTls {
    /// The handshake of the API's listener, if it has a certificate.
    fn handshake(&self) -> anyhow::Result<Option<TlsHandshake>> {
        if self.tls_cert.is_none() {
            return Ok(None);
        }
        let files = ListenTls {
            certificate: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            ..ListenTls::default()
        };
        let tls = Arc::new(GatewayTls::load(&files, HTTP)?);
        tokio::spawn(Arc::clone(&tls).follow());
        Ok(Some(Arc::new(move |stream| {
            let tls = Arc::clone(&tls);
            Box::pin(async move { tls.accept(stream).await.map_err(std::io::Error::other) })
        })))
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
    #[command(flatten)]
    tls: ApiTls,
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
    let tls = args.tls.handshake()?;
    let store = args.database.open().await?;
    let stop = stop_on_signal()?;
    let pages = MetricsPages::new(&store, &worker);
    let metrics = args.running.serve_metrics(&pages, &stop).await?;
    let listener = bind(args.listen).await?;
    tracing::info!(listen = %listener.local_addr()?, "the batch API is ready");
    let config = ApiConfig {
        listen: args.listen,
        keys_file: args.keys_file,
        limits,
        open_pages: match args.listen.ip().is_loopback() {
            true => pages.metrics(),
            false => Router::new(),
        },
    };
    let api = api::serve((listener, tls), store.clone(), config, stop.clone());
    let working = work_until(&store, worker, &stop);
    let ((), (), ended) = tokio::join!(api, metrics, working);
    store.close().await;
    ended?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn work(args: Work) -> anyhow::Result<ExitCode> {
    log::init(&args.running.log)?;
    let worker = args.sending.worker(args.running.limits(), None)?;
    let store = args.database.open().await?;
    let stop = stop_on_signal()?;
    let pages = MetricsPages::new(&store, &worker);
    let metrics = args.running.serve_metrics(&pages, &stop).await?;
    let working = work_until(&store, worker, &stop);
    let ((), ended) = tokio::join!(metrics, working);
    store.close().await;
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Works until `stop` is cancelled, or cancels it when a newer program has migrated the database.
async fn work_until(
    store: &Store,
    worker: WorkerConfig,
    stop: &CancellationToken,
) -> StoreResult<()> {
    let ended = worker::run(store.clone(), worker, stop.clone()).await;
    stop.cancel();
    ended
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}"))
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

//! Options that several commands share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use isotherm_batch::gateway::{Gateway, GatewayConfig, StatusPage};
use isotherm_batch::limits::Limits;
use isotherm_batch::store::Store;
use isotherm_batch::worker::WorkerConfig;

/// Time for the requests at the gateway when a worker stops.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// The database of the queue.
#[derive(Debug, Args)]
pub(super) struct Database {
    /// Database of the queue: a file (SQLite), or `postgres://user@host/database` for workers on several machines. A
    /// password belongs into PGPASSWORD, `~/.pgpass` or --database-file, where other users of the machine do not see it.
    #[arg(long, value_name = "FILE|URL", default_value = "isotherm-batch.db")]
    database: String,
    /// File with the value of --database.
    #[arg(long, value_name = "FILE", conflicts_with = "database")]
    database_file: Option<PathBuf>,
}

impl Database {
    /// Opens the database, and makes it where it is missing.
    pub(super) async fn open(&self) -> anyhow::Result<Store> {
        Ok(Store::open(self.address()?.trim()).await?)
    }

    /// Opens the database, which must be there.
    pub(super) async fn open_existing(&self) -> anyhow::Result<Store> {
        Ok(Store::open_existing(self.address()?.trim()).await?)
    }

    fn address(&self) -> anyhow::Result<String> {
        Ok(match &self.database_file {
            Some(file) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?,
            None => self.database.clone(),
        })
    }
}

/// The gateway, and how to send to it.
#[derive(Debug, Args)]
pub(super) struct GatewayOptions {
    /// Address of Envoy, such as `http://127.0.0.1:10000`.
    #[arg(long, value_name = "URL")]
    url: String,
    /// File with the bearer token for Envoy. A changed file needs no restart.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the certificates that sign Envoy's [default: the system's].
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Admin interface of the service. The worker reads there how many requests the gate holds, and sends no more than it
    /// can soon release. Without it, the gateway's 429 alone paces the worker.
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<String>,
    /// File with the token of --admin, which beyond loopback asks for one.
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<PathBuf>,
    /// Header that names the owner of a batch as tenant, such as `x-llm-d-inference-fairness-id`.
    #[arg(long, value_name = "NAME")]
    tenant_header: Option<String>,
    /// Most requests at the gateway at once. The worker finds the number that the gateway takes below it.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Longest time for one response, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    response_s: u64,
    /// Time after which other workers take over the requests of a worker that is gone, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    lease_s: u64,
}

impl GatewayOptions {
    fn status(&self) -> anyhow::Result<Option<StatusPage>> {
        let page = |url| StatusPage::new(url, self.admin_token_file.clone());
        Ok(self.admin.as_deref().map(page).transpose()?)
    }

    /// The configuration of a worker, for one batch or for all.
    pub(super) fn worker(
        &self,
        limits: Limits,
        only: Option<String>,
    ) -> anyhow::Result<WorkerConfig> {
        let concurrency_max = usize::from(self.concurrency);
        let gateway = GatewayConfig {
            url: self.url.clone(),
            token_file: self.token_file.clone(),
            ca_file: self.ca_file.clone(),
            response_time_max: Duration::from_secs(self.response_s),
            response_bytes_max: limits.response_bytes_max,
            tenant_header: self.tenant_header.clone(),
        };
        Ok(WorkerConfig {
            gateway: Gateway::new(gateway, concurrency_max)?,
            status: self.status()?,
            limits,
            concurrency_max,
            lease: Duration::from_secs(self.lease_s),
            drain_time_max: DRAIN_TIME_MAX,
            only,
            counters: Arc::default(),
        })
    }
}

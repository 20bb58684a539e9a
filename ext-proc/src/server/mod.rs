//! Builds the service and runs it.
//!
//! A stop goes through in this order: links to other regions end, so that they send nothing more; new connections are
//! refused and Envoy is told to open no more streams; what waits in the queues is let go, so that Envoy places it by its
//! own fallback (a stop fails no request); responses in flight end as they end, for at most `drain_ms_max`. The admin
//! interface goes last.

mod envoys;
mod grpc;
mod listen;
mod readiness;
mod workers;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin::Admin;
use crate::clock::Clock;
use crate::config::{Config, Listen};
use crate::eds::Endpoints;
use crate::frontends::decision_stream::DecisionServer;
use crate::frontends::ext_proc::ExtProcServer;
use crate::frontends::request::RequestContext;
use crate::metrics::{Metrics, PREFIX, PoolCollector, ProbeMetrics, RegionCollector};
use crate::pool::PoolRegistry;
use crate::probe;
use crate::regions::RegionsServer;
use crate::shutdown;
use crate::source::Source;
use envoys::Envoys;
use listen::Socket;
use workers::Workers;

/// How long the admin interface may take to answer what it has begun, once everything else has ended.
const ADMIN_STOP_MAX: Duration = Duration::from_secs(1);

/// Runs the service of a configuration until the process is told to stop. With a `file`, it follows that file.
///
/// # Errors
///
/// When an address cannot be listened on, or a listener fails.
pub async fn run(config: Config, file: Option<PathBuf>) -> anyhow::Result<()> {
    let stop = shutdown::signal()?;
    Server::bind(config, file).await?.run(stop).await
}

/// A service whose sockets are open.
#[derive(Debug)]
pub struct Server {
    config: Config,
    file: Option<PathBuf>,
    pool_registry: Arc<PoolRegistry>,
    metrics: Arc<Metrics>,
    probe_metrics: ProbeMetrics,
    registry: Arc<Registry>,
    sockets: Vec<Socket>,
    admin: TcpListener,
    region: Option<RegionsServer>,
}

impl Server {
    /// Opens the sockets. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// When an address cannot be listened on.
    pub async fn bind(config: Config, file: Option<PathBuf>) -> anyhow::Result<Self> {
        let mut registry = Registry::with_prefix(PREFIX);
        let metrics = Arc::new(Metrics::register(&mut registry));
        let probe_metrics = ProbeMetrics::register(&mut registry);
        let pool_registry = Arc::new(PoolRegistry::new(
            &config,
            Arc::clone(&metrics),
            Clock::start(),
        ));
        registry.register_collector(Box::new(PoolCollector::new(Arc::clone(&pool_registry))));
        let mut sockets = Vec::new();
        for address in &config.listen {
            let socket = Socket::open(address).await;
            sockets.push(socket.with_context(|| format!("cannot listen on {address}"))?);
        }
        let admin = TcpListener::bind(config.admin.listen).await;
        let admin =
            admin.with_context(|| format!("cannot listen on {} (admin)", config.admin.listen))?;
        let region = match &config.region {
            Some(region) => {
                Some(RegionsServer::bind(region, config.drain_max, &pool_registry).await?)
            }
            None => None,
        };
        let regions = region.as_ref().map(RegionsServer::handle);
        registry.register_collector(Box::new(RegionCollector::new(regions)));
        Ok(Self {
            config,
            file,
            pool_registry,
            metrics,
            probe_metrics,
            registry: Arc::new(registry),
            sockets,
            admin,
            region,
        })
    }

    /// Where Envoy reaches the service, with the ports that the system chose.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn addresses(&self) -> anyhow::Result<Vec<Listen>> {
        self.sockets.iter().map(Socket::address).collect()
    }

    /// Where operators reach it.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn admin_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    /// This service among the regions, where there are others.
    #[must_use]
    pub fn region(&self) -> Option<&RegionsServer> {
        self.region.as_ref()
    }

    /// The pools.
    #[must_use]
    pub fn pool_registry(&self) -> &Arc<PoolRegistry> {
        &self.pool_registry
    }

    /// Serves until `stop` resolves, and what is open then has ended.
    ///
    /// # Errors
    ///
    /// When a listener fails.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let addresses = self.addresses()?;
        let admin_address = self.admin_address()?;
        let drain_max = self.config.drain_max;
        let (stopping, stopped) = watch::channel(false);
        let (serving, is_serving) = watch::channel(false);

        let probes = probe::spawn(&self.pool_registry, self.probe_metrics)
            .context("cannot start a thread for probes")?;
        let admin_config = self.config.admin.clone();
        let source = Source::start(&self.pool_registry, self.config, self.file);
        let health =
            readiness::announce(Arc::clone(&self.pool_registry), serving, stopped.clone()).await;

        let envoys = Envoys::default();
        let regions = self.region.as_ref().map(RegionsServer::handle);
        let region = self.region.map(|region| {
            let config = source.reloader().config();
            region.start(config, envoys.count())
        });
        let region = region.transpose()?;
        let context = Arc::new(RequestContext {
            pool_registry: Arc::clone(&self.pool_registry),
            metrics: Arc::clone(&self.metrics),
            started_unix_s: unix_time_s(),
        });
        let services = grpc::Services {
            ext_proc: ExtProcServer::ext_proc(Arc::clone(&context)),
            decisions: DecisionServer::decisions(context, stopped.clone()),
            endpoints: Endpoints::server(
                Arc::clone(&self.pool_registry),
                self.metrics,
                stopped.clone(),
            ),
            health,
            envoys,
        };
        let (workers, lives) = Workers::start(&services, || is_true(stopped.clone()))?;
        let mut listeners = JoinSet::new();
        listeners.spawn(lives.ended());
        for socket in self.sockets {
            let accepting = socket.accept(workers.clone(), is_true(stopped.clone()));
            listeners.spawn(async {
                accepting.await;
                Ok(())
            });
        }
        drop(workers);
        let (admin_stop, admin_stopped) = watch::channel(false);
        let admin = Admin {
            pool_registry: Arc::clone(&self.pool_registry),
            registry: self.registry,
            regions,
            reloader: Arc::clone(source.reloader()),
            token_file: admin_config.token_file,
            serving: is_serving,
        };
        let mut admin = tokio::spawn(admin.serve(self.admin, is_true(admin_stopped)));
        tracing::info!(
            listen = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            admin = %admin_address,
            pools = self.pool_registry.pools().len(),
            "serving"
        );

        tokio::select! {
            () = stop => tracing::info!("stopping"),
            ended = listeners.join_next() => failed(ended)?,
            ended = &mut admin => {
                ended.context("the admin interface failed")?;
                anyhow::bail!("the admin interface ended without a reason");
            }
        }
        stopping.send_replace(true);
        if let Some(region) = &region {
            // First of all: peers must send nothing more.
            region.leave();
        }
        self.pool_registry.shut_down();
        drop(source);
        let left = async {
            if let Some(region) = region {
                region.stop().await;
            }
        };
        let drained = tokio::time::timeout(drain_max, all(&mut listeners));
        let (drained, ()) = tokio::join!(drained, left);
        if drained.is_err() {
            tracing::warn!(
                after_ms = drain_max.as_millis(),
                "requests are still in flight; Envoy finishes them without this service"
            );
            listeners.shutdown().await;
        }
        probes.abort();
        admin_stop.send_replace(true);
        if tokio::time::timeout(ADMIN_STOP_MAX, &mut admin)
            .await
            .is_err()
        {
            admin.abort();
        }
        tracing::info!("stopped");
        Ok(())
    }
}

type Ended = Result<anyhow::Result<()>, tokio::task::JoinError>;

/// A listener ends by itself only when it failed.
fn failed(ended: Option<Ended>) -> anyhow::Result<()> {
    match ended {
        Some(Ok(Err(error))) => Err(error),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(Ok(()))) | None => anyhow::bail!("a listener ended without a reason"),
    }
}

async fn all(listeners: &mut JoinSet<anyhow::Result<()>>) {
    while let Some(ended) = listeners.join_next().await {
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "a listener failed while it stopped");
        }
    }
}

async fn is_true(mut flag: watch::Receiver<bool>) {
    // A sender that is gone will not say more: that ends what waits for it, too.
    drop(flag.wait_for(|flag| *flag).await);
}

fn unix_time_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

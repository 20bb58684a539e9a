//! Builds the service and runs it.
//!
//! A stop has this order. Links to other regions end, so that peers forward no more requests. The service accepts no
//! connections, and tells Envoy to open no streams. Queued requests leave the queues, and Envoy places them by its own
//! fallback, so that a stop fails no request. Responses in flight get up to `drain_ms_max` to end. The admin interface
//! ends last.

mod authority;
mod bounded_connection;
mod envoys;
mod grpc;
mod listen;
mod readiness;
mod socket_file;
mod tls;
mod workers;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::OptionFuture;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) use tls::GatewayTls;

use crate::admin::Admin;
use crate::clock::Clock;
use crate::config::{Config, Listen, Reloader};
use crate::metrics::{
    Metrics, PREFIX, PoolCollector, ProbeMetrics, ProcessCollector, RegionCollector, ReloadMetrics,
    ScalingCollector,
};
use crate::pool::{PoolRegistry, follow_sources, keep_histories};
use crate::probe;
use crate::regions::{RegionsRuntime, RegionsServer};
use crate::scaling::{ScalingHandle, keda};
use crate::shutdown;
use crate::spans::Spans;
use crate::tasks::vital;
use envoys::EnvoyConnections;
use listen::{Listeners, Socket};
use workers::Workers;

/// Longest time that the admin interface may take for its last responses.
const ADMIN_STOP_MAX: Duration = Duration::from_secs(1);

/// Longest time for the last write of the state of scaling.
const SAVE_MAX: Duration = Duration::from_secs(2);

/// Runs the service of a configuration until a signal stops the process. With a `file`, it follows that file.
/// Fails when an address cannot be listened on, or a listener fails.
pub async fn run(config: Config, file: Option<PathBuf>) -> anyhow::Result<()> {
    let stop = shutdown::signal()?;
    Server::bind(config, file).await?.run(stop).await
}

/// A service with open sockets.
#[derive(Debug)]
pub struct Server {
    config: Config,
    file: Option<PathBuf>,
    pool_registry: Arc<PoolRegistry>,
    metrics: Arc<Metrics>,
    probe_metrics: ProbeMetrics,
    reloads: ReloadMetrics,
    registry: Arc<Registry>,
    listeners: Listeners,
    admin: TcpListener,
    /// For metrics and health alone.
    metrics_listener: Option<TcpListener>,
    /// For KEDA.
    keda: Option<TcpListener>,
    scaling: ScalingHandle,
    region: Option<RegionsServer>,
}

impl Server {
    /// Opens the sockets. Must be called inside a tokio runtime.
    /// Fails when an address cannot be listened on.
    pub async fn bind(config: Config, file: Option<PathBuf>) -> anyhow::Result<Self> {
        let mut root = Registry::default();
        root.register_collector(Box::new(ProcessCollector));
        let registry = root.sub_registry_with_prefix(PREFIX);
        let metrics = Arc::new(Metrics::register(registry));
        let probe_metrics = ProbeMetrics::register(registry);
        let reloads = ReloadMetrics::register(registry);
        let pool_registry = Arc::new(PoolRegistry::new(
            &config,
            Arc::clone(&metrics),
            Clock::start(),
        ));
        registry.register_collector(Box::new(PoolCollector(Arc::clone(&pool_registry))));
        let listeners = Listeners::open(&config).await?;
        let admin = listen::bind(config.admin.listen, "admin.listen").await?;
        let metrics_listener = match config.admin.metrics_listen {
            Some(address) => Some(listen::bind(address, "admin.metrics_listen").await?),
            None => None,
        };
        let keda = match config.scaling.keda_listen {
            Some(address) => Some(listen::bind(address, "scaling.keda_listen").await?),
            None => None,
        };
        let scaling = ScalingHandle::default();
        registry.register_collector(Box::new(ScalingCollector(scaling.clone())));
        let region = match &config.region {
            Some(region) => {
                Some(RegionsServer::bind(region, config.drain_max, &pool_registry).await?)
            }
            None => None,
        };
        let regions = region.as_ref().map(RegionsServer::handle);
        registry.register_collector(Box::new(RegionCollector(regions)));
        Ok(Self {
            config,
            file,
            pool_registry,
            metrics,
            probe_metrics,
            reloads,
            registry: Arc::new(root),
            listeners,
            admin,
            metrics_listener,
            keda,
            scaling,
            region,
        })
    }

    /// The addresses for Envoy, with the ports that the system chose.
    pub fn addresses(&self) -> anyhow::Result<Vec<Listen>> {
        let sockets = self.listeners.sockets.iter();
        sockets.map(Socket::address).collect()
    }

    /// The address of the admin interface.
    pub fn admin_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    /// The address for KEDA, if the configuration has one.
    pub fn keda_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        Ok(self
            .keda
            .as_ref()
            .map(TcpListener::local_addr)
            .transpose()?)
    }

    /// This service among the regions, if there are others.
    pub fn region(&self) -> Option<&RegionsServer> {
        self.region.as_ref()
    }

    /// The pools.
    pub fn pool_registry(&self) -> &Arc<PoolRegistry> {
        &self.pool_registry
    }

    /// Serves until `stop` resolves and all requests have ended.
    /// Fails when a listener fails.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let mut tasks = self.start().await?;
        tokio::select! {
            () = stop => tracing::info!("stopping"),
            failure = tasks.failure() => return Err(failure),
        }
        tasks.stop().await;
        tracing::info!("stopped");
        Ok(())
    }

    async fn start(self) -> anyhow::Result<ServerTasks> {
        let (addresses, admin_address) = (self.addresses()?, self.admin_address()?);
        let (stopping, stopped) = watch::channel(false);
        let (serving, is_serving) = watch::channel(false);
        let pool_registry = self.pool_registry;
        let probes = probe::spawn(&pool_registry, self.probe_metrics)
            .context("cannot start a thread for probes")?;
        let (drain_max, token_file) = (self.config.drain_max, self.config.admin.token_file.clone());
        let followers = follow_pools(&pool_registry);
        let (reloader, mut reloads) = follow(self.config, self.file, self.reloads, &pool_registry);
        let health =
            readiness::announce(Arc::clone(&pool_registry), serving, stopped.clone()).await;
        let envoys = EnvoyConnections::default();
        let regions = self.region.as_ref().map(RegionsServer::handle);
        let region = self
            .region
            .map(|region| region.start(reloader.config(), envoys.count()));
        let config = reloader.config();
        let services = grpc::Services::start(
            &config.borrow().clone(),
            &pool_registry,
            self.metrics,
            &stopped,
            health,
            envoys,
        )?;
        if let Some(tls) = self.listeners.tls.clone() {
            reloads.spawn(vital("TLS files", tls.follow()));
        }
        let keda = self.keda.map(|keda| (self.scaling.clone(), keda));
        let listeners = listen_all(self.listeners, keda, &services, &stopped)?;
        let plans = ScalingHandle::start(&self.scaling, &pool_registry, &regions, config, stopped);
        let (admin_stopping, admin_stopped) = watch::channel(false);
        let admin = Admin {
            pool_registry: Arc::clone(&pool_registry),
            registry: self.registry,
            regions,
            scaling: self.scaling,
            reloader,
            token_file,
            is_beyond_loopback: !admin_address.ip().is_loopback(),
            serving: is_serving,
        };
        let admin = serve_admin(admin, self.admin, self.metrics_listener, admin_stopped);
        announce(&addresses, admin_address, &pool_registry);
        Ok(ServerTasks {
            drain_max,
            pool_registry,
            region,
            listeners,
            stopping,
            admin,
            admin_stopping,
            reloads,
            followers,
            probes,
            plans,
            spans: services.spans,
        })
    }
}

/// Follows the sources of replicas, and keeps the histories of the pools.
fn follow_pools(pool_registry: &PoolRegistry) -> [JoinHandle<()>; 2] {
    [follow_sources(pool_registry), keep_histories(pool_registry)]
}

/// Logs that the service serves, and where.
fn announce(addresses: &[Listen], admin: SocketAddr, pool_registry: &PoolRegistry) {
    let (listen, pools) = (listen::joined(addresses), pool_registry.pools().len());
    tracing::info!(listen, %admin, pools, "serving");
}

/// Applies the configuration file to the pools whenever it changes.
fn follow(
    config: Config,
    file: Option<PathBuf>,
    metrics: ReloadMetrics,
    pool_registry: &Arc<PoolRegistry>,
) -> (Arc<Reloader>, JoinSet<()>) {
    let registry = Arc::clone(pool_registry);
    let apply = move |config: &Config| registry.apply(config);
    let record = move |is_applied| metrics.record(is_applied);
    let reloader = Reloader::new(config, file, apply, record);
    let reloads = reloader.follow();
    (reloader, reloads)
}

/// Starts the admin interface, and the listener for metrics alone if there is one.
fn serve_admin(
    admin: Admin,
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let metrics = metrics_listener.map(|listener| {
        let admin = admin.clone();
        admin.serve_metrics(listener, is_true(stopped.clone()))
    });
    let admin = admin.serve(listener, is_true(stopped));
    tokio::spawn(vital("admin interface", async move {
        tokio::join!(admin, OptionFuture::from(metrics));
    }))
}

/// Starts the threads that serve connections, and the tasks that accept them.
fn listen_all(
    listeners: Listeners,
    keda: Option<(ScalingHandle, TcpListener)>,
    services: &grpc::Services,
    stopped: &watch::Receiver<bool>,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let (workers, results) = Workers::start(services, || is_true(stopped.clone()))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(results.wait());
    for socket in listeners.sockets {
        let accepting = workers.clone().accept(socket, is_true(stopped.clone()));
        tasks.spawn(async {
            accepting.await;
            Ok(())
        });
    }
    if let Some((scaling, listener)) = keda {
        tasks.spawn(keda::serve(scaling, listener, stopped.clone()));
    }
    if let Some(socket) = listeners.health {
        let stop = is_true(stopped.clone());
        tasks.spawn(grpc::serve_health(services.health.clone(), socket, stop));
    }
    Ok(tasks)
}

#[derive(Debug)]
struct ServerTasks {
    drain_max: Duration,
    pool_registry: Arc<PoolRegistry>,
    region: Option<RegionsRuntime>,
    listeners: JoinSet<anyhow::Result<()>>,
    stopping: watch::Sender<bool>,
    admin: JoinHandle<()>,
    admin_stopping: watch::Sender<bool>,
    reloads: JoinSet<()>,
    followers: [JoinHandle<()>; 2],
    probes: JoinHandle<()>,
    plans: JoinHandle<()>,
    spans: Option<Spans>,
}

impl ServerTasks {
    /// Waits for a task to fail. Listeners and the admin interface end without a stop only when they fail.
    async fn failure(&mut self) -> anyhow::Error {
        let (ended, what) = tokio::select! {
            ended = self.listeners.join_next() => {
                (ended.unwrap_or(Ok(Ok(()))), "a listener")
            }
            ended = &mut self.admin => (ended.map(Ok), "the admin interface"),
        };
        match ended {
            Ok(Ok(())) => anyhow::anyhow!("{what} ended without a reason"),
            Ok(Err(error)) => error,
            Err(error) => anyhow::Error::new(error).context(format!("{what} failed")),
        }
    }

    /// Stops the service in the order that the module's documentation gives.
    async fn stop(mut self) {
        self.stopping.send_replace(true);
        if let Some(region) = &self.region {
            region.leave();
        }
        self.pool_registry.shut_down();
        self.reloads.abort_all();
        for follower in &self.followers {
            follower.abort();
        }
        let leave = async {
            if let Some(region) = self.region {
                region.stop().await;
            }
        };
        let drain = tokio::time::timeout(self.drain_max, drain(&mut self.listeners));
        let (drained, ()) = tokio::join!(drain, leave);
        if drained.is_err() {
            tracing::warn!(
                after_ms = self.drain_max.as_millis(),
                "requests are still in flight; Envoy finishes them without this service"
            );
            self.listeners.shutdown().await;
        }
        // The task saves its state when the service stops.
        if tokio::time::timeout(SAVE_MAX, &mut self.plans)
            .await
            .is_err()
        {
            self.plans.abort();
        }
        self.probes.abort();
        if let Some(spans) = self.spans.take() {
            spans.stop().await;
        }
        self.admin_stopping.send_replace(true);
        let admin = tokio::time::timeout(ADMIN_STOP_MAX, &mut self.admin).await;
        if admin.is_err() {
            self.admin.abort();
        }
    }
}

async fn drain(listeners: &mut JoinSet<anyhow::Result<()>>) {
    while let Some(ended) = listeners.join_next().await {
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "a listener failed while it stopped");
        }
    }
}

async fn is_true(mut flag: watch::Receiver<bool>) {
    // A sender that is gone never changes the flag, which ends the wait, too.
    drop(flag.wait_for(|flag| *flag).await);
}

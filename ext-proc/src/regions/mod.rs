//! This service among the others: the links of [`crate::peering`], and the leases of replicas in a store.
//!
//! The core, [`Leases`], decides whose replicas this region uses. This module gives it time, the store and the regions that are
//! heard. It passes the reports of peers to the pools, and moves leased replicas into and out of them. Other regions learn from this
//! service:
//!
//! - the reports of its pools, with the queues of all services of the region;
//! - its gateway: whether an Envoy is connected to this service or to a sibling that is heard;
//! - by the store: its own replicas, without leased ones, and the address of its service.
//!
//! The admin interface and the metrics hold a [`RegionsHandle`].

mod discovery;
mod driver;
mod handle;
mod heard;
mod inbound;
mod leased;
mod links;
mod placements;
mod pools;
mod scaling;
mod state;
mod status;
mod store;
mod tasks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::OptionFuture;
use isotherm_regions::{LeaseConfig, Leases};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{Address, Config, RegionConfig};
use crate::peering::{Credentials, LinkServer, LocalIdentity, TransportSecurity};
use crate::pool::PoolRegistry;
use crate::sans_io::run_timer;
use crate::tasks::vital;
use driver::RegionsDriver;
use leased::LeasedReplicas;
use state::DriverState;
use store::StoreCalls;

pub use handle::RegionsHandle;
pub(crate) use scaling::ReceivedShare;
pub use status::{
    LeaseState, LinkState, PeerSource, PeerState, RegionState, RegionsCounters, RegionsStatus,
    SiblingState,
};

/// Longest wait for the last requests and the last writes to the store.
const STOP_MAX: Duration = Duration::from_secs(2);

/// A service that is ready to start: the socket is open, and the certificates are valid.
#[derive(Debug)]
pub struct RegionsServer {
    driver: Arc<RegionsDriver>,
    config: RegionConfig,
    listener: TcpListener,
}

/// A running service among regions. Dropping it aborts its tasks, and calls of the store end by their own timeouts;
/// [`RegionsRuntime::stop`] ends all in order.
#[derive(Debug)]
pub struct RegionsRuntime {
    driver: Arc<RegionsDriver>,
    stopping: CancellationToken,
    /// The server, which ends by itself.
    server: JoinSet<()>,
    tasks: JoinSet<()>,
}

impl RegionsServer {
    /// Opens the socket and reads the certificates. Must be called inside a tokio runtime.
    /// Fails when the address cannot be bound, or other regions would not accept the certificates.
    pub async fn bind(
        config: &RegionConfig,
        drain_max: Duration,
        pool_registry: &Arc<PoolRegistry>,
    ) -> anyhow::Result<Self> {
        let protection = match &config.tls {
            None => TransportSecurity::Plaintext,
            Some(files) => {
                let credentials = Credentials::load(&config.name, files.clone());
                TransportSecurity::Tls(Arc::new(credentials.context("region.tls")?))
            }
        };
        let listener = TcpListener::bind(config.listen).await;
        let listener =
            listener.with_context(|| format!("cannot listen on {} (region)", config.listen))?;
        let incarnation = rand::random();
        let identity = Arc::new(LocalIdentity::new(&config.name, incarnation, protection));
        let now = pool_registry.clock().now();
        let leased = LeasedReplicas::new(Arc::clone(pool_registry), drain_max);
        let (mut leases, mut store) = (None, None);
        if let Some(options) = &config.store {
            let lease_config = LeaseConfig {
                name: config.name.as_str().into(),
                lease: options.lease,
                give_back_after: options.lease,
            };
            store = Some(StoreCalls::open(options, lease_config.list_interval())?);
            let leases = leases.insert(Leases::new(lease_config, now));
            let address = options.advertise.as_ref().map(Address::to_string);
            leases.inputs_mut().address = address.unwrap_or_default().into();
        }
        let state = DriverState::new(now, config.clone(), leased, leases);
        Ok(Self {
            driver: RegionsDriver::new(identity, Arc::clone(pool_registry), state, store),
            config: config.clone(),
            listener,
        })
    }

    /// Returns the bound address.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Returns a handle for the admin interface and the metrics.
    pub fn handle(&self) -> RegionsHandle {
        RegionsHandle(Arc::clone(&self.driver))
    }

    /// Calls peers and siblings, and answers their requests. `config` follows the whole configuration through reloads; `envoys`
    /// counts the Envoys that are connected to this service.
    pub fn start(
        self,
        mut config: watch::Receiver<Arc<Config>>,
        envoys: watch::Receiver<usize>,
    ) -> RegionsRuntime {
        let driver = self.driver;
        let identity = &driver.identity;
        let (stopping, handler) = (CancellationToken::new(), Arc::clone(&driver));
        let server = LinkServer::new(Arc::clone(identity), handler, stopping.clone());
        let server = JoinSet::from_iter([vital("links of peers", server.run(self.listener))]);
        let current = config.borrow_and_update().region.clone();
        let current = current.unwrap_or(self.config);
        tasks::apply(&driver, &current);
        let mut tasks = JoinSet::new();
        tasks.spawn(vital(
            "timer of regions",
            run_timer(Arc::downgrade(&driver)),
        ));
        let follow = tasks::follow(Arc::clone(&driver), current, config, envoys);
        tasks.spawn(vital("changes of regions", follow));
        let follow = placements::follow(Arc::downgrade(&driver));
        tasks.spawn(vital("placements", follow));
        if let TransportSecurity::Tls(credentials) = identity.security() {
            let credentials = Arc::clone(credentials);
            tasks.spawn(vital(
                "credentials",
                async move { credentials.follow().await },
            ));
        }
        RegionsRuntime {
            driver,
            stopping,
            server,
            tasks,
        }
    }
}

impl RegionsRuntime {
    /// Gives every lease up and ends all links, so that peers notice with their next ping. Does not wait.
    pub fn leave(&self) {
        self.driver.shut_down();
        self.stopping.cancel();
    }

    /// Leaves, and waits for a bounded time until the links have ended.
    pub async fn stop(mut self) {
        self.leave();
        self.tasks.abort_all();
        let store = self.driver.store.as_ref();
        let closed = async {
            while self.server.join_next().await.is_some() {}
            OptionFuture::from(store.map(|store| store.ended())).await
        };
        if tokio::time::timeout(STOP_MAX, closed).await.is_err() {
            tracing::warn!("links to other regions did not end in time");
        }
    }
}

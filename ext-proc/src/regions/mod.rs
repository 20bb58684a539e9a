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
use isotherm_regions::{LeaseConfig, LeaseEffect, Leases};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::config::{Config, RegionConfig, StoreConfig};
use crate::peering::{Credentials, LinkServer, LocalIdentity, TransportSecurity};
use crate::pool::PoolRegistry;
use crate::sans_io::run_timer;
use driver::RegionsDriver;
use inbound::InboundLinks;
use leased::LeasedReplicas;
use links::Links;
use state::DriverState;
use store::Store;

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
    identity: Arc<LocalIdentity>,
    config: RegionConfig,
    listener: TcpListener,
    store: Option<(Store, UnboundedReceiver<LeaseEffect>)>,
}

/// A running service among regions. Dropping it aborts its tasks; [`RegionsRuntime::stop`] ends them in order.
#[derive(Debug)]
pub struct RegionsRuntime {
    driver: Arc<RegionsDriver>,
    stopping: watch::Sender<bool>,
    /// The server and the calls of the store, which end by themselves.
    closing: JoinSet<()>,
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
        let links = Links::new(Arc::clone(&identity), pool_registry.clock());
        let leased = LeasedReplicas::new(Arc::clone(pool_registry), drain_max);
        let (leases, store) = match &config.store {
            None => (None, None),
            Some(store) => {
                let (queue, effects) = mpsc::unbounded_channel();
                let leases = Leases::new(lease_config(config, store), now);
                (Some((leases, queue)), Some((Store::open(store)?, effects)))
            }
        };
        let state = DriverState::new(now, config.clone(), links, leased, leases);
        let driver = RegionsDriver::new(Arc::clone(pool_registry), state);
        Ok(Self {
            driver,
            identity,
            config: config.clone(),
            listener,
            store,
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
        let (stopping, stopped) = watch::channel(false);
        let handler = Arc::new(InboundLinks::new(&self.driver, &self.config.name));
        let server = LinkServer::new(Arc::clone(&self.identity), self.listener, handler);
        let mut closing = JoinSet::new();
        closing.spawn(server.run(stopped));
        let current = config.borrow_and_update().region.clone();
        let current = current.unwrap_or_else(|| self.config.clone());
        tasks::apply(&self.driver, &current);
        let driver = || Arc::clone(&self.driver);
        let revision = self.driver.pool_registry().revision();
        let mut tasks = JoinSet::new();
        tasks.spawn(run_timer(Arc::downgrade(&self.driver)));
        tasks.spawn(tasks::follow_members(driver(), revision));
        tasks.spawn(tasks::follow_config(driver(), current, config));
        tasks.spawn(tasks::follow_envoys(driver(), envoys));
        tasks.spawn(placements::follow(Arc::downgrade(&self.driver)));
        if let TransportSecurity::Tls(credentials) = self.identity.security() {
            let credentials = Arc::clone(credentials);
            tasks.spawn(async move { credentials.follow().await });
        }
        if let Some(((store, effects), config)) = self.store.zip(self.config.store.as_ref()) {
            let wait_max = lease_config(&self.config, config).list_interval();
            closing.spawn(store::run(
                store,
                driver(),
                effects,
                wait_max,
                stopping.subscribe(),
            ));
        }
        RegionsRuntime {
            driver: self.driver,
            stopping,
            closing,
            tasks,
        }
    }
}

impl RegionsRuntime {
    /// Gives every lease up and ends all links, so that peers notice with their next ping. Does not wait.
    pub fn leave(&self) {
        self.driver.shut_down();
        self.stopping.send_replace(true);
    }

    /// Leaves, and waits for a bounded time until the links have ended.
    pub async fn stop(mut self) {
        self.leave();
        self.tasks.abort_all();
        let closed = async { while self.closing.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_MAX, closed).await.is_err() {
            tracing::warn!("links to other regions did not end in time");
        }
    }
}

fn lease_config(config: &RegionConfig, store: &StoreConfig) -> LeaseConfig {
    LeaseConfig {
        name: config.name.as_str().into(),
        lease: store.lease,
        give_back_after: config.give_back_after,
    }
}

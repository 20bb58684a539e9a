//! This service among the regions: drives the core's [`Regions`] over the links of [`crate::peering`].
//!
//! The core decides who is heard, who is dead and whose replicas are adopted here; this module gives it time, links,
//! witnesses and a memory on disk, tells the pools what peers report, and moves adopted replicas into and out of them.
//! What the regions are told of this one:
//!
//! - its pools: replicas as this service sees them, queues summed over the services of the region;
//! - its replicas, without those that it has adopted;
//! - whether it has a gateway: whether an Envoy is connected to this service or to a sibling that is heard.
//!
//! [`RegionsHandle`] is what the admin interface and the metrics hold.

mod adoption;
mod driver;

mod effects;
mod handle;
mod inbound;
mod links;
mod placements;
mod pools;
mod replica_probe;

mod sibling;
mod state;
mod status;
mod store;
mod tasks;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use isotherm_regions::{Incarnation, Regions};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};

use crate::config::{Config, RegionConfig, Security};
use crate::peering::{
    Acceptor, Credentials, LinkEvent, LinkTimeouts, LocalIdentity, TransportSecurity,
};
use crate::pool::PoolRegistry;
use crate::sans_io::run_timer;
use adoption::Adoptions;
use driver::{RegionsDriver, regions_config};
use inbound::InboundLinks;
use links::{LinkKey, Links};
use store::{RecordStore, RecordWriter};

pub use handle::{RegionsHandle, UnknownRegion};
pub use status::{
    CertificateState, LinkState, PeerState, PlacementCounts, RegionsStatus, SiblingState,
};

/// How many events of links may wait. A link whose events are not taken waits itself.
const EVENTS_MAX: usize = 1_024;
/// How long a stop waits until the streams have ended and the memory is on disk.
const STOP_MAX: Duration = Duration::from_secs(2);

/// A service that is ready to take part: its socket is open, its certificates are good, its memory is read.
#[derive(Debug)]
pub struct RegionsServer {
    shared: Arc<RegionsDriver>,
    own: Arc<LocalIdentity>,
    config: RegionConfig,
    listener: TcpListener,
    events: mpsc::Receiver<(LinkKey, LinkEvent)>,
    writer: RecordWriter,
}

/// A service that takes part. It leaves when this is dropped, or better with [`RegionsRuntime::stop`].
#[derive(Debug)]
pub struct RegionsRuntime {
    shared: Arc<RegionsDriver>,
    stopping: watch::Sender<bool>,
    acceptor: JoinHandle<()>,
    writer: JoinHandle<()>,
    tasks: Vec<AbortHandle>,
}

impl RegionsServer {
    /// Prepares to take part with the pools of `pool_registry`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened on, or the certificates are none that other regions would accept.
    pub async fn bind(
        config: &RegionConfig,
        drain_max: Duration,
        pool_registry: &Arc<PoolRegistry>,
    ) -> anyhow::Result<Self> {
        let protection = match &config.security {
            Security::Plaintext => TransportSecurity::Plaintext,
            Security::Tls(files) => {
                let credentials = Credentials::load(&config.name, files.clone());
                TransportSecurity::Tls(Arc::new(credentials.context("region.tls")?))
            }
        };
        let listener = TcpListener::bind(config.listen).await;
        let listener =
            listener.with_context(|| format!("cannot listen on {} (region)", config.listen))?;
        // The standard library seeds its hashers from the system.
        let incarnation = RandomState::new().hash_one(());
        let own = Arc::new(LocalIdentity::new(&config.name, incarnation, protection));
        let incarnation = Incarnation(incarnation);
        let (store, writer, records) = RecordStore::open(config.state_file.clone(), &config.name);
        let table = pool_registry.table();
        let peers = table
            .peer_table()
            .into_iter()
            .flat_map(|known| known.peers());
        let core_config = regions_config(config, peers.map(|peer| (peer.id, &*peer.name)));
        let regions = Regions::new(
            core_config,
            incarnation,
            records,
            pool_registry.clock().now(),
        );
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let links = Links::new(Arc::clone(&own), sender);
        let adoptions = Adoptions::new(Arc::clone(pool_registry), drain_max);
        let shared = RegionsDriver::new(
            Arc::clone(pool_registry),
            config.clone(),
            incarnation,
            regions,
            links,
            adoptions,
            store,
        );
        Ok(Self {
            shared,
            own,
            config: config.clone(),
            listener,
            events,
            writer,
        })
    }

    /// Where other services reach it, with the port that the system chose.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// What the admin interface and the metrics hold.
    #[must_use]
    pub fn handle(&self) -> RegionsHandle {
        RegionsHandle(Arc::clone(&self.shared))
    }

    /// Takes part: dials peers and siblings, and answers them. `config` is the whole configuration, now and whenever a
    /// reload has applied another one; `envoys` counts the Envoys that are connected to this service.
    ///
    /// # Errors
    ///
    /// Without TLS, when others than this machine reach the socket.
    pub fn start(
        self,
        mut config: watch::Receiver<Arc<Config>>,
        envoys: watch::Receiver<usize>,
    ) -> anyhow::Result<RegionsRuntime> {
        let (stopping, stopped) = watch::channel(false);
        let answering = Arc::new(InboundLinks::new(&self.shared, &self.config.name));
        let pace = LinkTimeouts::of(self.config.heartbeat);
        let acceptor = Acceptor::new(Arc::clone(&self.own), self.listener, pace, answering)?;
        let acceptor = tokio::spawn(async move {
            if let Err(error) = acceptor.run(stopped).await {
                tracing::error!(%error, "no region is answered any more");
            }
        });
        let current = config.borrow_and_update().region.clone();
        let current = current.unwrap_or_else(|| self.config.clone());
        tasks::apply(&self.shared, &current);
        let shared = Arc::downgrade(&self.shared);
        let certificate = shared.clone();
        let mut tasks = vec![
            spawn(tasks::hear(shared.clone(), self.events)),
            spawn(run_timer(shared.clone())),
            spawn(tasks::beat(shared.clone())),
            spawn(tasks::follow_members(shared.clone())),
            spawn(tasks::follow_pools(shared.clone())),
            spawn(tasks::follow_config(shared.clone(), current, config)),
            spawn(tasks::follow_envoys(shared.clone(), envoys)),
            spawn(placements::follow(shared)),
        ];
        if let TransportSecurity::Tls(credentials) = self.own.security() {
            let credentials = Arc::clone(credentials);
            tasks.push(spawn(tasks::follow_certificate(certificate, credentials)));
        }
        Ok(RegionsRuntime {
            shared: self.shared,
            stopping,
            acceptor,
            writer: tokio::spawn(self.writer.run()),
            tasks,
        })
    }
}

impl RegionsRuntime {
    /// Gives everything back and ends all links, so that peers notice at once. Does not wait for it.
    pub fn leave(&self) {
        self.shared.shut_down();
        self.stopping.send_replace(true);
    }

    /// Waits until the links have ended, for a bounded time.
    pub async fn stop(mut self) {
        self.leave();
        for task in self.tasks.drain(..) {
            task.abort();
        }
        let stopped = async {
            // They end by themselves, or have failed and said so.
            drop((&mut self.acceptor).await);
            drop((&mut self.writer).await);
        };
        if tokio::time::timeout(STOP_MAX, stopped).await.is_err() {
            tracing::warn!("links to other regions did not end in time");
        }
    }
}

impl Drop for RegionsRuntime {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.acceptor.abort();
        self.writer.abort();
    }
}

fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(work).abort_handle()
}

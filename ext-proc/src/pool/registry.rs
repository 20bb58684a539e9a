//! All pools of this service, by the names that requests and Envoy know them by.
//!
//! The table of pools is replaced as a whole when the configuration changes, so that a request sees either the old
//! table or the new one. A pool is known by its model: when only its options change, it keeps its replicas, its
//! queue and its index.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::Pool;
use super::clock::Clock;
use super::peers::PeerTable;
use super::timer;
use crate::config::{Config, RegionConfig};
use crate::metrics::Metrics;

/// The model name of the pool that serves every model which no other pool names.
pub const ANY_MODEL: &str = "*";

/// All pools of this service.
#[derive(Debug)]
pub struct PoolRegistry {
    table: watch::Sender<Arc<PoolTable>>,
    /// Counts changes of the table and of any pool's members.
    revision: watch::Sender<u64>,
    /// The service stops: a pool that a late reload opens must not keep anybody waiting.
    stopping: AtomicBool,
    metrics: Arc<Metrics>,
    clock: Clock,
}

/// The pools as one configuration names them.
#[derive(Clone, Debug, Default)]
pub struct PoolTable {
    pools: Vec<Arc<Pool>>,
    by_model: HashMap<String, Arc<Pool>>,
    by_cluster: HashMap<String, Arc<Pool>>,
    decision_header: bool,
    peer_table: Option<Arc<PeerTable>>,
}

impl PoolTable {
    /// The pools, in the order of the configuration.
    #[must_use]
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// The pool that serves a model.
    #[must_use]
    pub fn for_model(&self, model: &str) -> Option<&Arc<Pool>> {
        self.by_model
            .get(model)
            .or_else(|| self.by_model.get(ANY_MODEL))
    }

    /// The pool behind an Envoy cluster.
    #[must_use]
    pub fn for_cluster(&self, cluster: &str) -> Option<&Arc<Pool>> {
        self.by_cluster.get(cluster)
    }

    /// The pool of requests that name no model: the only one, or the one that serves any model.
    #[must_use]
    pub fn default_pool(&self) -> Option<&Arc<Pool>> {
        match self.pools.as_slice() {
            [only] => Some(only),
            _ => self.by_model.get(ANY_MODEL),
        }
    }
}

impl PoolTable {
    /// Whether clients are told why their request went where it went.
    #[must_use]
    pub fn decision_header(&self) -> bool {
        self.decision_header
    }

    /// The regions, where there are others.
    #[must_use]
    pub fn peer_table(&self) -> Option<&Arc<PeerTable>> {
        self.peer_table.as_ref()
    }
}

impl PoolRegistry {
    /// The pools of a configuration, without replicas. Must be called inside a tokio runtime: each pool has a task
    /// that makes its time pass.
    #[must_use]
    pub fn new(config: &Config, metrics: Arc<Metrics>, clock: Clock) -> Self {
        let pool_registry = Self {
            table: watch::Sender::default(),
            revision: watch::Sender::default(),
            stopping: AtomicBool::new(false),
            metrics,
            clock,
        };
        if let Some(region) = &config.region {
            pool_registry.set_regions(&region.name, peers(region));
        }
        pool_registry.apply(config);
        pool_registry
    }

    /// Makes the pools what a changed configuration says. What waits in a pool that is gone is let go. Peers come and go;
    /// whether there are regions, and which one this is, stays as it was at the start.
    pub fn apply(&self, config: &Config) {
        let before = self.table();
        let mut table = PoolTable {
            decision_header: config.decision_header,
            peer_table: before.peer_table.clone(),
            ..PoolTable::default()
        };
        if let (Some(peer_table), Some(region)) = (&before.peer_table, &config.region) {
            let peer_table = PeerTable::new(peer_table.own(), peers(region), Some(peer_table));
            table.peer_table = Some(Arc::new(peer_table));
        }
        for pool_config in &config.pools {
            let pool_config = Arc::new(pool_config.clone());
            let known = before
                .pools
                .iter()
                .find(|pool| **pool.name() == *pool_config.model);
            let pool = match known {
                Some(pool) => {
                    pool.reconfigure(Arc::clone(&pool_config));
                    Arc::clone(pool)
                }
                None => self.open(Arc::clone(&pool_config)),
            };
            pool.set_peer_table(table.peer_table.clone());
            let aliases = pool_config.aliases.iter();
            for name in std::iter::once(&pool_config.model).chain(aliases) {
                table.by_model.insert(name.clone(), Arc::clone(&pool));
            }
            table
                .by_cluster
                .insert(pool_config.cluster.clone(), Arc::clone(&pool));
            table.pools.push(pool);
        }
        let table = Arc::new(table);
        self.table.send_replace(Arc::clone(&table));
        self.revision.send_modify(|revision| *revision += 1);
        for pool in &before.pools {
            if !table.pools.iter().any(|kept| Arc::ptr_eq(kept, pool)) {
                tracing::info!(pool = %pool.name(), "pool is gone from the configuration");
                pool.shut_down();
                self.metrics.forget_pool(pool.name());
            }
        }
        // Looked at after the table has changed: whoever stops the service either sees the new pools or was seen here.
        if self.stopping.load(Ordering::SeqCst) {
            self.shut_down();
        }
    }

    /// Makes the regions these: this one, and each peer with its Envoy cluster. Every pool hears of peers that come and
    /// go, also a pool that a reload opens later.
    pub fn set_regions<'a>(&self, own: &str, peers: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let before = self.table();
        let peer_table = PeerTable::new(own, peers, before.peer_table.as_deref());
        let table = PoolTable {
            peer_table: Some(Arc::new(peer_table)),
            ..(*before).clone()
        };
        for pool in &table.pools {
            pool.set_peer_table(table.peer_table.clone());
        }
        self.table.send_replace(Arc::new(table));
    }

    /// The pools as they are now.
    #[must_use]
    pub fn table(&self) -> Arc<PoolTable> {
        Arc::clone(&self.table.borrow())
    }

    /// The pools, now and whenever a reload changes them.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<PoolTable>> {
        self.table.subscribe()
    }

    /// Moves whenever the pools or the members of any of them change.
    #[must_use]
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The pools, in the order of the configuration.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.table.borrow().pools.clone()
    }

    /// The pool that serves a model.
    #[must_use]
    pub fn pool_for(&self, model: &str) -> Option<Arc<Pool>> {
        self.table.borrow().for_model(model).cloned()
    }

    /// The clock that stamps all events.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Answers everything that waits, in every pool, and in those to come.
    pub fn shut_down(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for pool in self.table().pools() {
            pool.shut_down();
        }
    }

    fn open(&self, config: Arc<crate::config::PoolConfig>) -> Arc<Pool> {
        let metrics = self.metrics.pool(&config.model);
        let revision = self.revision.clone();
        let pool = Arc::new(Pool::new(config, self.clock, seed(), metrics, revision));
        timer::spawn(&pool);
        pool
    }
}

fn peers(region: &RegionConfig) -> impl Iterator<Item = (&str, &str)> {
    let peers = region.peers.iter();
    peers.map(|peer| (peer.name.as_str(), peer.cluster.as_str()))
}

/// A number that differs from run to run: the standard library keys its hash maps in the same way.
fn seed() -> u64 {
    RandomState::new().hash_one(())
}

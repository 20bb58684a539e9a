//! All pools of the service, by the names that requests and Envoy use.
//!
//! A reload replaces the table of pools as a whole, so a request sees either the old table or the new one. The registry
//! identifies a pool by its model: when only its options change, the pool keeps its replicas, its queue and its index.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use isotherm_fingerprint::Api;
use isotherm_fingerprint::paths::{AllowedPaths, PathUse};
use tokio::sync::watch;

use super::Pool;
use super::peer_table::PeerTable;
use crate::clock::Clock;
use crate::config::{Config, PoolConfig, RegionConfig, UnknownModels};
use crate::decision_log::DecisionLog;
use crate::metrics::Metrics;
use crate::sans_io::run_timer;
use crate::tasks::vital;

/// Model name of the pool that serves every model without a pool of its own.
pub const ANY_MODEL: &str = "*";

/// All pools of the service.
#[derive(Debug)]
pub struct PoolRegistry {
    table: watch::Sender<Arc<PoolTable>>,
    /// Counter of changes of the table and of any pool's members.
    revision: watch::Sender<u64>,
    /// Counter of replicas that were found to hang.
    hangs: watch::Sender<u64>,
    /// Whether the service stops. A pool that a late reload opens must not keep a request queued.
    is_stopping: AtomicBool,
    metrics: Arc<Metrics>,
    clock: Clock,
    decision_log: DecisionLog,
}

/// The pools of one configuration.
#[derive(Clone, Debug, Default)]
pub struct PoolTable {
    pools: Vec<Arc<Pool>>,
    by_model: HashMap<String, Arc<Pool>>,
    by_cluster: HashMap<String, Arc<Pool>>,
    has_decision_header: bool,
    allowed_paths: AllowedPaths,
    unknown_models: UnknownModels,
    peer_table: Option<Arc<PeerTable>>,
}

impl PoolTable {
    /// Pools in the order of the configuration.
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// Returns the pool that serves a model: the pool that names it, the first pool with a replica that lists an adapter
    /// of this name, or the pool of any model.
    pub fn for_model(&self, model: &str) -> Option<&Arc<Pool>> {
        let has_adapter = |pool: &&Arc<Pool>| pool.lists_adapter(model);
        self.by_model
            .get(model)
            .or_else(|| self.pools.iter().find(has_adapter))
            .or_else(|| self.by_model.get(ANY_MODEL))
    }

    /// Returns the pool behind an Envoy cluster.
    pub fn for_cluster(&self, cluster: &str) -> Option<&Arc<Pool>> {
        self.by_cluster.get(cluster)
    }

    /// Returns the pool of requests without a model: the only pool, or the pool of any model.
    pub fn default_pool(&self) -> Option<&Arc<Pool>> {
        match self.pools.as_slice() {
            [only] => Some(only),
            _ => self.by_model.get(ANY_MODEL),
        }
    }

    /// Whether responses carry a header that explains the decision.
    pub fn has_decision_header(&self) -> bool {
        self.has_decision_header
    }

    /// Returns how the service uses a path with a method; each is empty where the gateway hides it.
    pub fn path_use(&self, path: &str, method: &str) -> PathUse {
        let path = (!path.is_empty()).then_some(path.as_bytes());
        let method = (!method.is_empty()).then_some(method.as_bytes());
        self.allowed_paths.use_of(path, method)
    }

    /// The API of a path, if it is one with a prompt.
    pub fn api_of(&self, path: &str) -> Option<Api> {
        self.allowed_paths.api_of(path)
    }

    /// Whether Envoy's routes serve a request whose model no pool has.
    pub fn passes_unknown_models(&self) -> bool {
        self.unknown_models == UnknownModels::Pass
    }

    /// The regions, if there are others.
    pub fn peer_table(&self) -> Option<&Arc<PeerTable>> {
        self.peer_table.as_ref()
    }
}

impl PoolRegistry {
    /// Creates the pools of a configuration, without replicas. Must be called inside a tokio runtime: each pool has a
    /// timer task.
    pub fn new(config: &Config, metrics: Arc<Metrics>, clock: Clock) -> Self {
        let pool_registry = Self {
            table: watch::Sender::default(),
            revision: watch::Sender::default(),
            hangs: watch::Sender::default(),
            is_stopping: AtomicBool::new(false),
            metrics,
            clock,
            decision_log: DecisionLog::default(),
        };
        if let Some(region) = &config.region {
            pool_registry.set_regions(&region.name, peers(region));
        }
        pool_registry.apply(config);
        pool_registry
    }

    /// The last decisions of all pools.
    pub(crate) fn decision_log(&self) -> &DecisionLog {
        &self.decision_log
    }

    /// Applies a changed configuration to pools and peers. A pool that leaves rejects its queued requests. Only a restart
    /// changes whether there are regions, and which one this is. With a store of leases, [`Self::set_peers`] sets the peers.
    pub fn apply(&self, config: &Config) {
        let before = self.table();
        let mut table = PoolTable {
            has_decision_header: config.decision_header,
            allowed_paths: config.allowed_paths.clone(),
            unknown_models: config.unknown_models,
            peer_table: before.peer_table.clone(),
            ..PoolTable::default()
        };
        if let (Some(peer_table), Some(region)) = (&before.peer_table, &config.region)
            && region.store.is_none()
        {
            let peer_table = PeerTable::new(peer_table.own(), peers(region), Some(peer_table));
            table.peer_table = Some(Arc::new(peer_table));
        }
        for pool_config in &config.pools {
            let pool_config = Arc::new(pool_config.clone());
            let mut known = before.pools.iter();
            let pool = match known.find(|pool| **pool.name() == *pool_config.model) {
                Some(pool) => {
                    pool.reconfigure(Arc::clone(&pool_config));
                    Arc::clone(pool)
                }
                None => self.open(Arc::clone(&pool_config)),
            };
            pool.set_peer_table(table.peer_table.clone());
            for name in std::iter::once(&pool_config.model).chain(&pool_config.aliases) {
                table.by_model.insert(name.clone(), Arc::clone(&pool));
            }
            let cluster = pool_config.cluster.clone();
            table.by_cluster.insert(cluster, Arc::clone(&pool));
            table.pools.push(pool);
        }
        let table = Arc::new(table);
        self.table.send_replace(Arc::clone(&table));
        self.revision.send_modify(|revision| *revision += 1);
        for pool in &before.pools {
            if !table.pools.iter().any(|kept| Arc::ptr_eq(kept, pool)) {
                tracing::info!(pool = %pool.name(), "pool removed from the configuration");
                pool.shut_down();
                self.metrics.forget_pool(pool.name());
            }
        }
        // Read after the table has changed: a concurrent stop either sees the new pools or is seen here.
        if self.is_stopping.load(Ordering::SeqCst) {
            self.shut_down();
        }
    }

    /// Sets the peers of the configuration together with the regions that a store names. Does nothing when they are the same.
    pub(crate) fn set_peers(&self, region: &RegionConfig) {
        let table = self.table();
        let Some(known) = table.peer_table() else {
            return;
        };
        let known = known.peers().iter().map(|peer| &*peer.name);
        if !known.eq(peers(region)) {
            self.set_regions(&region.name, peers(region));
        }
    }

    /// Sets this region and its peers. Pools that a reload opens later get them too.
    pub fn set_regions<'a>(&self, own: &str, peers: impl IntoIterator<Item = &'a str>) {
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

    /// The current table of pools.
    pub fn table(&self) -> Arc<PoolTable> {
        Arc::clone(&self.table.borrow())
    }

    /// Follows the table of pools through reloads.
    pub fn watch(&self) -> watch::Receiver<Arc<PoolTable>> {
        self.table.subscribe()
    }

    /// Follows the counter of changes of the table and of any pool's members.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Follows the counter of replicas that were found to hang.
    pub(crate) fn hangs(&self) -> watch::Receiver<u64> {
        self.hangs.subscribe()
    }

    /// Pools in the order of the configuration.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.table.borrow().pools.clone()
    }

    /// Returns the pool that serves a model.
    pub fn pool_for(&self, model: &str) -> Option<Arc<Pool>> {
        self.table.borrow().for_model(model).cloned()
    }

    /// The clock that stamps all events.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Shuts down every pool, and every pool that a reload opens later.
    pub fn shut_down(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for pool in self.table().pools() {
            pool.shut_down();
        }
    }

    fn open(&self, config: Arc<PoolConfig>) -> Arc<Pool> {
        let metrics = self.metrics.pool(&config.model);
        let changes = [self.revision.clone(), self.hangs.clone()];
        let pool = Pool::new(config, self.clock, rand::random(), metrics, changes);
        let pool = Arc::new(pool);
        tokio::spawn(vital("timer", run_timer(Arc::downgrade(&pool))));
        pool
    }
}

fn peers(region: &RegionConfig) -> impl Iterator<Item = &str> {
    region.peers.iter().map(|peer| peer.name.as_str())
}

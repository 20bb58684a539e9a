//! Engines that restart, and caches that are found empty.
//!
//! A restarted engine has an empty cache, nothing queued, and maybe another speed. Counters of its metrics page show the
//! restart, unless they are those of several processes in turn (`replica/counter_history.rs`). Without them, predictions fail (`corrections.rs`).
//!
//! A replica may hold a million blocks, so each event forgets a bounded number of them.

use std::collections::BTreeMap;

use super::Router;
use crate::ReplicaId;
use crate::replica_index::ReplicaIndex;

/// Blocks that one event forgets at most: about a millisecond.
const FORGOTTEN_PER_EVENT_MAX: usize = 2_048;

/// Parts of the replicas' caches that are being forgotten.
#[derive(Debug, Default)]
pub(super) struct ForgetQueue {
    /// Replicas, each with the tick up to which its blocks are forgotten.
    pending: BTreeMap<ReplicaIndex, u64>,
    /// Tick at which each replica's cache was last found to be empty.
    emptied: BTreeMap<ReplicaIndex, u64>,
}

impl ForgetQueue {
    /// Adds what a replica has not used after a tick.
    pub(super) fn add(&mut self, replica: ReplicaIndex, tick: u64) {
        let until = self.pending.entry(replica).or_default();
        *until = tick.max(*until);
    }

    /// Adds what a replica was sent up to a tick, since its cache was empty then. That is known since the tick `now`.
    pub(super) fn add_empty(&mut self, replica: ReplicaIndex, tick: u64, now: u64) {
        self.emptied.insert(replica, now);
        self.add(replica, tick);
    }

    pub(super) fn remove(&mut self, replica: ReplicaIndex) {
        self.pending.remove(&replica);
        self.emptied.remove(&replica);
    }

    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether a prediction of this tick is older than the last correction of the replica's whole cache.
    pub(super) fn has_forgotten(&self, replica: ReplicaIndex, tick: u64) -> bool {
        let emptied = self.emptied.get(&replica);
        emptied.is_some_and(|emptied| tick <= *emptied)
    }
}

impl Router {
    /// Forgets what the ended process of a replica held, queued and measured.
    pub(super) fn on_restart(&mut self, id: ReplicaId, replica: ReplicaIndex) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        pool.replicas.on_restart(id, now);
        pool.stored.on_restart(id);
        pool.adapters.forget_loaded(replica);
        self.counters.engine_restarts += 1;
        self.forget_cache(id, replica);
    }

    /// Forgets what the cache of a replica held.
    pub(super) fn on_cache_emptied(&mut self, id: ReplicaId) {
        if let Some(replica) = self.pool.replicas.slot_of(id) {
            self.forget_cache(id, replica);
        }
    }

    fn forget_cache(&mut self, id: ReplicaId, replica: ReplicaIndex) {
        self.pool.answers.on_restart(id);
        self.pool.sessions.on_restart(id);
        let tick = self.pool.index.last_tick();
        self.forgetting.add_empty(replica, tick, tick);
        self.forget_more();
    }

    /// Forgets the next part of what is to be forgotten.
    pub(super) fn forget_more(&mut self) {
        let Some((replica, tick)) = self.forgetting.pending.first_key_value() else {
            return;
        };
        let (replica, tick) = (*replica, *tick);
        let index = &mut self.pool.index;
        if index.forget_until(replica, tick, FORGOTTEN_PER_EVENT_MAX) {
            self.forgetting.pending.remove(&replica);
        }
    }
}

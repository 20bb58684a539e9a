//! Engines that restart, and caches that are found empty.
//!
//! A restarted engine has an empty cache, nothing queued, and maybe another speed. Counters of its metrics page show the
//! restart, unless they are those of several processes in turn (`replica/counter_history.rs`). Without them, predictions fail
//! (`router/corrections.rs`).
//!
//! A replica may hold a million blocks, so each event forgets a bounded number of them.

use std::collections::BTreeMap;

use super::PrefixIndex;
use crate::replica_index::ReplicaIndex;

/// Blocks that one event forgets at most: about a millisecond.
const FORGOTTEN_PER_EVENT_MAX: usize = 2_048;

/// Parts of the replicas' caches that are being forgotten.
#[derive(Debug, Default)]
pub(crate) struct ForgetQueue {
    /// Replicas, each with the tick up to which its blocks are forgotten.
    pending: BTreeMap<ReplicaIndex, u64>,
    /// Tick at which each replica's cache was last found to be empty.
    emptied: BTreeMap<ReplicaIndex, u64>,
}

impl ForgetQueue {
    /// Adds what a replica has not used after a tick.
    pub(crate) fn add(&mut self, replica: ReplicaIndex, tick: u64) {
        let until = self.pending.entry(replica).or_default();
        *until = tick.max(*until);
    }

    /// Adds what a replica was sent up to a tick, since its cache was empty then. That is known since the tick `now`.
    pub(crate) fn add_empty(&mut self, replica: ReplicaIndex, tick: u64, now: u64) {
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
    pub(crate) fn has_forgotten(&self, replica: ReplicaIndex, tick: u64) -> bool {
        let emptied = self.emptied.get(&replica);
        emptied.is_some_and(|emptied| tick <= *emptied)
    }

    /// Forgets the next part of what is to be forgotten.
    pub(super) fn forget_more(&mut self, index: &mut PrefixIndex) {
        let next = self.pending.first_key_value();
        if let Some((replica, tick)) = next.map(|(replica, tick)| (*replica, *tick))
            && index.forget_until(replica, tick, FORGOTTEN_PER_EVENT_MAX)
        {
            self.pending.remove(&replica);
        }
    }
}

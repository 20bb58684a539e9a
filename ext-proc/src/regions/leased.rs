//! Replicas of other regions whose lease this region holds: added to the pools, and drained when the lease ends.
//!
//! A pool treats a leased replica as its own: it probes it, sends it requests and names it to Envoy. A dropped replica is
//! drained first. It leaves when its requests have ended, or after `drain_ms_max`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use isotherm_regions::PoolReplicas;
use isotherm_router::PeerId;
use tokio::time::Instant;

use super::pools::pool_of;
use crate::pool::{Member, Pool, PoolRegistry};

/// Time between two looks at a draining replica.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Name of a pool and address of a replica in it.
type ReplicaKey = (Arc<str>, SocketAddr);

#[derive(Debug)]
pub(super) struct LeasedReplicas {
    pool_registry: Arc<PoolRegistry>,
    /// Longest drain of a dropped replica.
    drain_max: Duration,
    /// Revision of the lease and replicas, by owner.
    owners: BTreeMap<PeerId, (u64, Vec<PoolReplicas>)>,
    /// Whether the pools send no request to this region's own replicas.
    is_suspended: bool,
}

impl LeasedReplicas {
    pub(super) fn new(pool_registry: Arc<PoolRegistry>, drain_max: Duration) -> Self {
        Self {
            pool_registry,
            drain_max,
            owners: BTreeMap::new(),
            is_suspended: false,
        }
    }

    /// Uses exactly these replicas of `owner`, by a lease of this revision.
    pub(super) fn own(&mut self, owner: PeerId, revision: u64, pools: Vec<PoolReplicas>) {
        self.owners.insert(owner, (revision, pools));
        self.update(owner);
    }

    pub(super) fn drop_all(&mut self, owner: PeerId) {
        self.owners.remove(&owner);
        self.update(owner);
    }

    /// Leaves this region's own replicas to another region, or takes them back.
    pub(super) fn suspend_own(&mut self, is_suspended: bool) {
        self.is_suspended = is_suspended;
        self.update_all();
    }

    /// Applies every lease to all pools, as after a reload that opened some.
    pub(super) fn update_all(&mut self) {
        for pool in self.pool_registry.table().pools() {
            pool.set_suspended(self.is_suspended);
        }
        for owner in self.owners.keys().copied().collect::<Vec<_>>() {
            self.update(owner);
        }
    }

    /// Number of replicas of `owner` in the pools.
    pub(super) fn count(&self, owner: PeerId) -> usize {
        self.members_of(owner)
            .filter(|(_, member)| !member.draining)
            .count()
    }

    fn members_of(&self, owner: PeerId) -> impl Iterator<Item = (Arc<Pool>, Member)> {
        let pools = self.pool_registry.table().pools().to_vec();
        pools.into_iter().flat_map(move |pool| {
            let members = Arc::clone(&pool.members().borrow());
            let of_owner = members.iter().copied();
            let of_owner = of_owner.filter(|member| member.owner == Some(owner));
            of_owner
                .map(|member| (Arc::clone(&pool), member))
                .collect::<Vec<_>>()
        })
    }

    fn update(&self, owner: PeerId) {
        let table = self.pool_registry.table();
        let mut wanted: BTreeSet<ReplicaKey> = BTreeSet::new();
        let lease = self.owners.get(&owner);
        for pool in table.pools() {
            pool.set_lease(owner, lease.map(|(revision, _)| *revision));
        }
        for members in lease.into_iter().flat_map(|(_, pools)| pools) {
            // Replicas of a model without a pool here stay without requests.
            let Some(pool) = pool_of(&table, &members.model) else {
                continue;
            };
            let addresses = members
                .replicas
                .iter()
                .filter_map(|address| address.parse().ok());
            for address in addresses {
                wanted.insert((Arc::clone(pool.name()), address));
                if let Err(error) = pool.lease_replica(address, owner) {
                    tracing::warn!(pool = %pool.name(), replica = %address, %error, "cannot use a leased replica");
                }
            }
        }
        for (pool, member) in self.members_of(owner) {
            let is_wanted = wanted.contains(&(Arc::clone(pool.name()), member.addr));
            if !is_wanted && !member.draining && pool.drain_replica(member.addr).is_ok() {
                let removal =
                    remove_drained(Arc::downgrade(&pool), member.addr, owner, self.drain_max);
                tokio::spawn(removal);
            }
        }
    }
}

/// Removes a draining replica when its requests have ended. Ends early when the replica is leased again.
async fn remove_drained(pool: Weak<Pool>, address: SocketAddr, owner: PeerId, drain_max: Duration) {
    let deadline = Instant::now() + drain_max;
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let members = Arc::clone(&pool.members().borrow());
        let mut drained = members.iter().filter(|member| member.addr == address);
        if !drained.any(|member| member.draining && member.owner == Some(owner)) {
            return;
        }
        let name = address.to_string();
        let replicas = pool.replicas();
        let busy = replicas.iter().any(|r| r.name == name && r.outstanding > 0);
        if !busy || Instant::now() >= deadline {
            // The replica may have been removed already.
            let _ = pool.release_replica(address, owner);
            return;
        }
        drop(pool);
        tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
    }
}

//! Replicas of other regions whose lease this region holds: added to the pools, and drained when the lease ends.
//!
//! A pool treats a leased replica as its own: it probes it, sends it requests and names it to Envoy. A dropped replica is
//! drained first. It leaves when its requests have ended, or after `drain_ms_max`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use isotherm_regions::{PoolReplicas, RegionName};
use isotherm_router::PeerId;
use tokio::time::Instant;

use super::pools::pool_of;
use crate::pool::{Member, Pool, PoolRegistry, PoolTable, ReplicaLease};
use crate::tasks::vital;

/// Name of a pool and address of a replica in it.
type ReplicaKey = (Arc<str>, SocketAddr);

#[derive(Debug)]
pub(super) struct LeasedReplicas {
    pool_registry: Arc<PoolRegistry>,
    /// Longest drain of a dropped replica.
    drain_max: Duration,
    /// Leases that the pools follow, by owner.
    applied: BTreeMap<PeerId, HeldLease>,
    /// Whether the pools send no request to this region's own replicas.
    is_suspended: bool,
    /// Pools that follow the leases.
    table: Arc<PoolTable>,
    /// Addresses of leased replicas outside their networks, since the start.
    pub(super) addresses_rejected: u64,
}

/// Lease of this region on the replicas of another region.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldLease {
    pub(super) region: RegionName,
    pub(super) revision: u64,
    /// Replicas in the record of the region.
    pub(super) pools: Vec<PoolReplicas>,
    /// Networks of the region's replicas. The store may be in foreign hands, and its list would make this service send prompts
    /// to any address.
    pub(super) networks: Vec<IpNet>,
}

/// Parses the address of a replica; `None` outside these networks.
pub(super) fn allowed(networks: &[IpNet], address: &str) -> Option<SocketAddr> {
    let address: SocketAddr = address.parse().ok()?;
    let is_within = networks.iter().any(|net| net.contains(&address.ip()));
    is_within.then_some(address)
}

impl LeasedReplicas {
    pub(super) fn new(pool_registry: Arc<PoolRegistry>, drain_max: Duration) -> Self {
        Self {
            table: pool_registry.table(),
            pool_registry,
            drain_max,
            applied: BTreeMap::new(),
            is_suspended: false,
            addresses_rejected: 0,
        }
    }

    /// Makes the pools use the replicas of these leases, by owner, and no others of other regions. While `is_suspended`, another
    /// region decides about this region's own replicas.
    pub(super) fn sync(&mut self, held: BTreeMap<PeerId, HeldLease>, is_suspended: bool) {
        let table = self.pool_registry.table();
        let has_new_pools = !Arc::ptr_eq(&table, &self.table);
        if self.is_suspended != is_suspended {
            match is_suspended {
                true => tracing::warn!("another region has the lease of this region's replicas"),
                false => tracing::info!("this region decides about its own replicas again"),
            }
        }
        if has_new_pools || self.is_suspended != is_suspended {
            for pool in table.pools() {
                pool.set_suspended(is_suspended);
            }
        }
        self.is_suspended = is_suspended;
        self.table = table;
        let before = std::mem::take(&mut self.applied);
        for (owner, lease) in &held {
            if has_new_pools || before.get(owner) != Some(lease) {
                self.update(*owner, Some(lease));
            }
        }
        for (owner, lease) in &before {
            if !held.contains_key(owner) {
                tracing::warn!(region = %lease.region, "dropped leased replicas");
                self.update(*owner, None);
            }
        }
        self.applied = held;
    }

    /// Adds the replicas of a lease to the pools. Returns the replicas that the pools may use.
    fn add_replicas(&mut self, owner: PeerId, held: &HeldLease) -> BTreeSet<ReplicaKey> {
        let lease = ReplicaLease {
            owner,
            revision: held.revision,
        };
        let mut wanted = BTreeSet::new();
        let mut rejected = 0;
        for members in &held.pools {
            let addresses = members.replicas.iter();
            let addresses = addresses.filter_map(|address| allowed(&held.networks, address));
            let addresses: Vec<_> = addresses.collect();
            rejected += members.replicas.len() - addresses.len();
            // Replicas of a model without a pool here stay without requests.
            let Some(pool) = pool_of(&self.table, &members.model) else {
                continue;
            };
            for address in addresses {
                wanted.insert((Arc::clone(pool.name()), address));
                if let Err(error) = pool.lease_replica(address, lease) {
                    tracing::warn!(pool = %pool.name(), replica = %address, %error, "cannot use a leased replica");
                }
            }
        }
        let (region, revision) = (&held.region, held.revision);
        if rejected > 0 {
            tracing::warn!(
                %region,
                rejected,
                "the record of a region names replicas outside its networks"
            );
            self.addresses_rejected += rejected as u64;
        }
        let leased = wanted.len();
        tracing::warn!(%region, revision, leased, "uses the replicas of a region that is gone");
        wanted
    }

    /// Number of replicas of `owner` in the pools.
    pub(super) fn count(&self, owner: PeerId) -> usize {
        let members = self.members_of(owner);
        members.iter().filter(|(_, it)| !it.draining).count()
    }

    fn members_of(&self, owner: PeerId) -> Vec<(Arc<Pool>, Member)> {
        let mut found = Vec::new();
        for pool in self.pool_registry.table().pools() {
            let members = Arc::clone(&pool.members().borrow());
            let of_owner = members.iter().filter(|it| it.owner() == Some(owner));
            found.extend(of_owner.map(|member| (Arc::clone(pool), *member)));
        }
        found
    }

    /// Makes the pools use exactly the replicas of a lease; `None` when it has ended.
    fn update(&mut self, owner: PeerId, lease: Option<&HeldLease>) {
        let wanted = lease.map_or_else(BTreeSet::new, |lease| self.add_replicas(owner, lease));
        for (pool, member) in self.members_of(owner) {
            let is_wanted = wanted.contains(&(Arc::clone(pool.name()), member.addr));
            if !is_wanted && !member.draining && pool.drain_replica(member.addr).is_ok() {
                let remove = remove_drained(pool, member, owner, self.drain_max);
                tokio::spawn(vital("end of a lease", remove));
            }
        }
    }
}

/// Removes a draining replica when its requests have ended, unless it is leased again meanwhile.
async fn remove_drained(pool: Arc<Pool>, drained: Member, owner: PeerId, drain_max: Duration) {
    let deadline = Instant::now() + drain_max;
    let mut members = pool.members();
    let is_draining = |member: &Member| member.id == drained.id && member.draining;
    tokio::select! {
        _ = members.wait_for(|members| !members.iter().any(is_draining)) => {}
        _ = pool.wait_until_empty(drained.id, deadline) => {
            // The replica may have been removed already.
            let _ = pool.release_replica(drained.addr, owner);
        }
    }
}

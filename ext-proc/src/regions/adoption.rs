//! Adopted replicas: added to the pools, and drained when their owner returns.
//!
//! A pool treats an adopted replica as its own: it probes it, sends it requests and names it to Envoy. A released replica is
//! drained first. It leaves when its requests have ended, or after `drain_ms_max`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use isotherm_regions::PoolReplicas;
use isotherm_router::PeerId;
use tokio::time::Instant;

use super::pools::pool_of;
use crate::pool::{Member, MembershipError, Pool, PoolRegistry};

/// Time between two looks at a draining replica.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Name of a pool and address of a replica in it.
type ReplicaKey = (Arc<str>, SocketAddr);

#[derive(Debug)]
pub(super) struct Adoptions {
    pool_registry: Arc<PoolRegistry>,
    /// Longest drain of a released replica.
    drain_max: Duration,
    owners: BTreeMap<PeerId, AdoptedReplicas>,
}

#[derive(Debug, Default)]
struct AdoptedReplicas {
    /// Pools of the owner's record.
    wanted: Vec<PoolReplicas>,
    replicas: BTreeSet<ReplicaKey>,
}

impl Adoptions {
    pub(super) fn new(pool_registry: Arc<PoolRegistry>, drain_max: Duration) -> Self {
        Self {
            pool_registry,
            drain_max,
            owners: BTreeMap::new(),
        }
    }

    /// Adopts exactly these replicas of `peer`.
    pub(super) fn adopt(&mut self, peer: PeerId, pools: Vec<PoolReplicas>) {
        self.owners.entry(peer).or_default().wanted = pools;
        self.update(peer);
    }

    pub(super) fn release(&mut self, peer: PeerId) {
        let replicas = self.owners.remove(&peer).map(|adopted| adopted.replicas);
        for key in replicas.into_iter().flatten() {
            self.drain(peer, &key);
        }
    }

    /// Adds adopted replicas to the pools that a reload opened.
    pub(super) fn pools_changed(&mut self) {
        for peer in self.owners.keys().copied().collect::<Vec<_>>() {
            self.update(peer);
        }
    }

    /// Number of replicas of `peer` in the pools.
    pub(super) fn count(&self, peer: PeerId) -> usize {
        self.owners
            .get(&peer)
            .map_or(0, |owners| owners.replicas.len())
    }

    fn update(&mut self, peer: PeerId) {
        let Some(adopted) = self.owners.get_mut(&peer) else {
            return;
        };
        let table = self.pool_registry.table();
        let mut wanted = BTreeMap::new();
        for members in &adopted.wanted {
            // Replicas of a model without a pool here stay with their owner.
            let Some(pool) = pool_of(&table, &members.model) else {
                continue;
            };
            for address in &members.replicas {
                if let Ok(address) = address.parse::<SocketAddr>() {
                    wanted.insert((Arc::clone(pool.name()), address), Arc::clone(pool));
                }
            }
        }
        let gone: Vec<_> = adopted
            .replicas
            .iter()
            .filter(|key| !wanted.contains_key(*key))
            .cloned()
            .collect();
        adopted.replicas.retain(|key| wanted.contains_key(key));
        for (key, pool) in wanted {
            // A pool that reloads closed and opened again has lost its replicas.
            if take(&pool, key.1, peer) {
                adopted.replicas.insert(key);
            } else {
                adopted.replicas.remove(&key);
            }
        }
        for key in gone {
            self.drain(peer, &key);
        }
    }

    fn drain(&self, peer: PeerId, (name, address): &ReplicaKey) {
        let table = self.pool_registry.table();
        let Some(pool) = table.pools().iter().find(|pool| pool.name() == name) else {
            return;
        };
        // The operator may have removed the replica, or added it as this region's own.
        let owner = member_at(pool, *address).and_then(|member| member.adopted_from);
        if owner == Some(peer) && pool.drain_replica(*address).is_ok() {
            let removal = remove_drained(Arc::downgrade(pool), *address, peer, self.drain_max);
            tokio::spawn(removal);
        }
    }
}

/// Adds a replica of `peer` to a pool. Returns whether the pool has it as one of `peer`.
fn take(pool: &Pool, address: SocketAddr, peer: PeerId) -> bool {
    let mut taken = pool.adopt_replica(address, peer);
    if let Err(MembershipError::Exists(_)) = taken {
        match member_at(pool, address) {
            Some(member) if member.adopted_from == Some(peer) && !member.draining => return true,
            // The replica was draining, or has another owner now.
            Some(member) if member.adopted_from.is_some() => {
                let from = member.adopted_from.unwrap_or(peer);
                taken = pool
                    .release_replica(address, from)
                    .and_then(|_| pool.adopt_replica(address, peer));
            }
            Some(_) | None => {}
        }
    }
    match taken {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(pool = %pool.name(), replica = %address, %error, "cannot adopt a replica");
            false
        }
    }
}

/// Removes a draining replica when its requests have ended. Ends early when the replica is adopted again.
async fn remove_drained(pool: Weak<Pool>, address: SocketAddr, peer: PeerId, drain_max: Duration) {
    let deadline = Instant::now() + drain_max;
    loop {
        let Some(pool) = pool.upgrade() else { return };
        if !member_at(&pool, address).is_some_and(|m| m.draining && m.adopted_from == Some(peer)) {
            return;
        }
        let name = address.to_string();
        let replicas = pool.replicas();
        let busy = replicas.iter().any(|r| r.name == name && r.outstanding > 0);
        if !busy || Instant::now() >= deadline {
            // The replica may have been removed already.
            let _ = pool.release_replica(address, peer);
            return;
        }
        drop(pool);
        tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
    }
}

fn member_at(pool: &Pool, address: SocketAddr) -> Option<Member> {
    let members = pool.members();
    members.borrow().iter().find(|m| m.addr == address).copied()
}

//! Replicas of a region that died: taken into the pools, and given back.
//!
//! An adopted replica is one of the pool's: it is probed, gets requests, is among Envoy's endpoints. When it is given back
//! it first gets nothing new, and leaves when what it had here has ended, or after as long as a stop would wait.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use isotherm_regions::PoolReplicas;
use isotherm_router::PeerId;
use tokio::time::Instant;

use super::pools::pool_of;
use crate::pool::{MembershipError, Pool, PoolRegistry};

/// How often it is looked whether a replica that leaves has anything left to do.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A replica, with the name of its pool in this service.
type ReplicaKey = (Arc<str>, SocketAddr);

/// Whose replicas are in the pools.
#[derive(Debug)]
pub(super) struct Adoptions {
    pool_registry: Arc<PoolRegistry>,
    /// How long a replica that is given back may go on with what it has.
    drain_max: Duration,
    held: BTreeMap<PeerId, AdoptedReplicas>,
}

#[derive(Debug, Default)]
struct AdoptedReplicas {
    /// What the region's record says.
    wanted: Vec<PoolReplicas>,
    places: BTreeSet<ReplicaKey>,
}

impl Adoptions {
    pub(super) fn new(pool_registry: Arc<PoolRegistry>, drain_max: Duration) -> Self {
        Self {
            pool_registry,
            drain_max,
            held: BTreeMap::new(),
        }
    }

    /// Takes in exactly these replicas of `peer`.
    pub(super) fn adopt(&mut self, peer: PeerId, pools: Vec<PoolReplicas>) {
        self.held.entry(peer).or_default().wanted = pools;
        self.settle(peer);
    }

    /// Gives everything of `peer` back.
    pub(super) fn release(&mut self, peer: PeerId) {
        let places = self.held.remove(&peer).map(|adopted| adopted.places);
        for place in places.into_iter().flatten() {
            self.give_back(peer, &place);
        }
    }

    /// Takes in what belongs into pools that a reload has opened.
    pub(super) fn pools_changed(&mut self) {
        for peer in self.held.keys().copied().collect::<Vec<_>>() {
            self.settle(peer);
        }
    }

    /// How many replicas of `peer` are in the pools.
    pub(super) fn count(&self, peer: PeerId) -> usize {
        self.held.get(&peer).map_or(0, |held| held.places.len())
    }

    fn settle(&mut self, peer: PeerId) {
        let Some(adopted) = self.held.get_mut(&peer) else {
            return;
        };
        let table = self.pool_registry.table();
        let mut wanted = BTreeMap::new();
        for members in &adopted.wanted {
            // A model that is not served here stays with its own region.
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
            .places
            .iter()
            .filter(|place| !wanted.contains_key(*place))
            .cloned()
            .collect();
        adopted.places.retain(|place| wanted.contains_key(place));
        for (place, pool) in wanted {
            // A pool that was closed and opened again by reloads has lost what it had.
            if take(&pool, place.1, peer) {
                adopted.places.insert(place);
            } else {
                adopted.places.remove(&place);
            }
        }
        for place in gone {
            self.give_back(peer, &place);
        }
    }

    fn give_back(&self, peer: PeerId, (name, address): &ReplicaKey) {
        let table = self.pool_registry.table();
        let Some(pool) = table.pools().iter().find(|pool| pool.name() == name) else {
            return;
        };
        // An operator may have removed it, or made it this region's own.
        if held_from(pool, *address) == Some(peer) && pool.drain_replica(*address).is_ok() {
            let leaving = leave(Arc::downgrade(pool), *address, peer, self.drain_max);
            tokio::spawn(leaving);
        }
    }
}

/// Takes a replica of `peer` in; says whether it is in as such.
fn take(pool: &Pool, address: SocketAddr, peer: PeerId) -> bool {
    let mut taken = pool.adopt_replica(address, peer);
    if let Err(MembershipError::Exists(_)) = taken {
        let members = pool.members();
        let member = members.borrow().iter().find(|m| m.addr == address).copied();
        match member {
            Some(member) if member.adopted_from == Some(peer) && !member.draining => return true,
            // It was on its way out, or comes from another region now: it starts afresh.
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

/// Lets a replica go once what it had here has ended. Ends early when the replica is adopted again meanwhile.
async fn leave(pool: Weak<Pool>, address: SocketAddr, peer: PeerId, drain_max: Duration) {
    let deadline = Instant::now() + drain_max;
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let members = pool.members();
        let member = members.borrow().iter().find(|m| m.addr == address).copied();
        if !member.is_some_and(|m| m.draining && m.adopted_from == Some(peer)) {
            return;
        }
        let name = address.to_string();
        let replicas = pool.replicas();
        let busy = replicas.iter().any(|r| r.name == name && r.outstanding > 0);
        if !busy || Instant::now() >= deadline {
            // Whoever else removed it has done this work.
            let _ = pool.release_replica(address, peer);
            return;
        }
        drop(pool);
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn held_from(pool: &Pool, address: SocketAddr) -> Option<PeerId> {
    let members = pool.members();
    let member = members.borrow().iter().find(|m| m.addr == address).copied();
    member?.adopted_from
}

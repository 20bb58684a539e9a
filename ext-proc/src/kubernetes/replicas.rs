//! Replicas as a source reports them: addresses, and what is known of the process behind each.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isotherm_router::Role;

/// Limit of replicas of one source.
const DISCOVERED_MAX: usize = 10_000;

/// A replica of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveredReplica {
    /// Number of the process behind the address. A new process at an old address has another.
    pub(crate) incarnation: u64,
    /// Whether the replica finishes its requests and gets no new ones.
    pub(crate) is_draining: bool,
    /// The part of a request that the replica serves.
    pub(crate) role: Role,
}

/// The replicas of a source by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveredReplicas {
    by_address: BTreeMap<SocketAddr, DiscoveredReplica>,
    has_overflowed: bool,
}

impl DiscoveredReplicas {
    /// Adds a replica. Of two at one address, the ready one counts: a failed pod keeps its address until it is deleted.
    pub(crate) fn add(&mut self, address: SocketAddr, endpoint: DiscoveredReplica) {
        if self.by_address.len() >= DISCOVERED_MAX && !self.by_address.contains_key(&address) {
            self.has_overflowed = true;
            return;
        }
        let known = self.by_address.entry(address).or_insert(endpoint);
        if known.is_draining {
            *known = endpoint;
        }
    }

    /// The replicas in the order of their addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SocketAddr, DiscoveredReplica)> {
        self.by_address
            .iter()
            .map(|(address, endpoint)| (*address, *endpoint))
    }

    /// Whether replicas were left out because of [`DISCOVERED_MAX`].
    pub(crate) fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_replica_wins_over_a_draining_one_at_the_same_address() {
        let address = SocketAddr::from(([10, 0, 0, 1], 8000));
        let ready = DiscoveredReplica {
            incarnation: 2,
            is_draining: false,
            role: Role::Both,
        };
        let draining = DiscoveredReplica {
            incarnation: 1,
            is_draining: true,
            role: Role::Both,
        };
        for pair in [[ready, draining], [draining, ready]] {
            let mut endpoints = DiscoveredReplicas::default();
            for endpoint in pair {
                endpoints.add(address, endpoint);
            }
            assert_eq!(endpoints.iter().collect::<Vec<_>>(), [(address, ready)]);
        }
    }
}

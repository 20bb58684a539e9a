//! The replicas that a pool has from its sources, and the changes that bring the pool in step with them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isotherm_router::Role;

use super::MembershipError;
use super::Pool;
use crate::addresses::Addresses;
use crate::kubernetes::{DiscoveredReplica, DiscoveredReplicas};

const FULL: &str = "replica not added: the pool has as many replicas as it may have";

/// The effects of a change of the sources: a line of the log for each kind, however many replicas it concerns.
#[derive(Debug, Default)]
struct Changes(BTreeMap<&'static str, Addresses>);

impl Changes {
    fn add(&mut self, what: &'static str, address: SocketAddr) {
        self.0.entry(what).or_default().add(address);
    }

    fn log(&self, pool: &str) {
        for (what, replicas) in &self.0 {
            match *what {
                FULL => tracing::warn!(%pool, %replicas, "{what}"),
                _ => tracing::info!(%pool, %replicas, "{what}"),
            }
        }
    }
}

/// The replicas of a pool's sources at their last change.
#[derive(Debug, Default)]
pub(super) struct SourceReplicas(BTreeMap<SocketAddr, SourceReplica>);

#[derive(Debug)]
struct SourceReplica {
    last: DiscoveredReplica,
    /// Whether the source has added the replica to the pool. One that drains from the start is not added.
    is_added: bool,
    /// Whether the source has drained the replica, and not an operator before.
    is_drained: bool,
}

impl SourceReplicas {
    /// Adds, drains, resumes and removes replicas where `wanted` differs from the last call.
    pub(super) fn apply(&mut self, pool: &Pool, wanted: DiscoveredReplicas) {
        let wanted: BTreeMap<_, _> = wanted.iter().collect();
        let mut changes = Changes::default();
        self.0.retain(|address, known| {
            let is_same = |new: &DiscoveredReplica| new.incarnation == known.last.incarnation;
            let stays = wanted.get(address).is_some_and(is_same);
            // A replica that the pool does not have was removed by an operator.
            if !stays && known.is_added && pool.remove_replica(*address).is_ok() {
                changes.add("replica removed: its source does not list it", *address);
            }
            stays
        });
        for (address, new) in wanted {
            let known = self.0.entry(address).or_insert(SourceReplica {
                last: DiscoveredReplica {
                    is_draining: true,
                    ..new
                },
                is_added: false,
                is_drained: false,
            });
            let last = std::mem::replace(&mut known.last, new);
            let has_new_role = last.role != new.role && known.is_added;
            // An operator may have removed the replica.
            if has_new_role && pool.change_role(address, new.role).is_ok() {
                changes.add(role_changed(new.role), address);
            }
            let was_draining = last.is_draining;
            match (was_draining, new.is_draining) {
                (true, false) if known.is_added => known.resume(pool, address, &mut changes),
                (true, false) => known.is_added = add(pool, address, new.role, &mut changes),
                (false, true) => known.drain(pool, address, &mut changes),
                (true, true) | (false, false) => {}
            }
        }
        changes.log(pool.name());
    }
}

impl SourceReplica {
    fn drain(&mut self, pool: &Pool, address: SocketAddr, changes: &mut Changes) {
        let members = pool.members();
        let members = members.borrow();
        let member = members.iter().find(|member| member.addr == address);
        let is_active = member.is_some_and(|member| !member.draining);
        drop(members);
        if self.is_added && is_active && pool.drain_replica(address).is_ok() {
            self.is_drained = true;
            changes.add(
                "replica drains: its source reports it as not ready",
                address,
            );
        }
    }

    fn resume(&mut self, pool: &Pool, address: SocketAddr, changes: &mut Changes) {
        if std::mem::take(&mut self.is_drained) && pool.resume_replica(address).is_ok() {
            changes.add("replica is ready again", address);
        }
    }
}

const fn role_changed(role: Role) -> &'static str {
    match role {
        Role::Both => "the replica serves prefill and decode now",
        Role::Prefill => "the replica serves prefill now",
        Role::Decode => "the replica serves decode now",
    }
}

/// Adds a replica to the pool; returns whether it was added.
fn add(pool: &Pool, address: SocketAddr, role: Role, changes: &mut Changes) -> bool {
    match pool.add_replica_as(address, role) {
        Ok(_) => {
            changes.add("replica added", address);
            true
        }
        Err(MembershipError::Full) => {
            changes.add(FULL, address);
            false
        }
        Err(error) => {
            tracing::warn!(pool = %pool.name(), %error, "replica not added");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::clock::Clock;
    use crate::config;
    use crate::metrics::Metrics;
    use crate::pool::{PoolRegistry, REPLICAS_MAX};

    fn addr(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    fn pool() -> (PoolRegistry, Arc<Pool>) {
        let config = config::parse("pools: [{ model: m }]").unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let pool = registry.pool_for("m").unwrap();
        (registry, pool)
    }

    /// Replicas by the last byte of their address: with their incarnation, and whether they drain.
    fn replicas(replicas: &[(u8, u64, bool)]) -> DiscoveredReplicas {
        let mut discovered = DiscoveredReplicas::default();
        for (last, incarnation, is_draining) in replicas {
            let replica = DiscoveredReplica {
                incarnation: *incarnation,
                is_draining: *is_draining,
                role: Role::Both,
            };
            discovered.add(addr(*last), replica);
        }
        discovered
    }

    /// The members of the pool: the last byte of the address, the id, and whether they drain.
    fn members(pool: &Pool) -> Vec<(u8, u32, bool)> {
        let members = pool.members();
        let members = members.borrow();
        let last = |addr: SocketAddr| match addr.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        };
        members
            .iter()
            .map(|member| (last(member.addr), member.id.0, member.draining))
            .collect()
    }

    #[tokio::test]
    async fn a_replica_drains_and_resumes_under_its_id_and_a_new_process_gets_another() {
        let (_registry, pool) = pool();
        let mut source = SourceReplicas::default();
        source.apply(&pool, replicas(&[(1, 7, false), (2, 7, true)]));
        assert_eq!(
            members(&pool),
            [(1, 0, false)],
            "a replica that was never ready is not added"
        );
        source.apply(&pool, replicas(&[(1, 7, true), (2, 7, false)]));
        assert_eq!(members(&pool), [(1, 0, true), (2, 1, false)]);
        source.apply(&pool, replicas(&[(1, 7, false), (2, 7, false)]));
        assert_eq!(members(&pool), [(1, 0, false), (2, 1, false)]);
        source.apply(&pool, replicas(&[(1, 8, false), (2, 8, true)]));
        assert_eq!(members(&pool), [(1, 2, false)]);
        source.apply(&pool, replicas(&[]));
        assert_eq!(members(&pool), []);
    }

    #[tokio::test]
    async fn a_changed_role_keeps_the_replica_under_its_id() {
        let (_registry, pool) = pool();
        let mut source = SourceReplicas::default();
        let with_role = |role| {
            let mut discovered = DiscoveredReplicas::default();
            let replica = DiscoveredReplica {
                role,
                ..DiscoveredReplica::default()
            };
            discovered.add(addr(1), replica);
            discovered
        };
        for role in [Role::Prefill, Role::Decode, Role::Both] {
            source.apply(&pool, with_role(role));
            assert_eq!(members(&pool), [(1, 0, false)]);
            assert_eq!(pool.members().borrow()[0].role, role);
            assert_eq!(pool.replicas()[0].role, role);
        }
    }

    #[tokio::test]
    async fn changes_by_an_operator_stay() {
        let (_registry, pool) = pool();
        let mut source = SourceReplicas::default();
        source.apply(&pool, replicas(&[(1, 7, false), (2, 7, false)]));
        pool.drain_replica(addr(1)).unwrap();
        pool.remove_replica(addr(2)).unwrap();
        pool.add_replica(addr(3)).unwrap();
        for is_draining in [true, false] {
            source.apply(&pool, replicas(&[(1, 7, is_draining), (2, 7, is_draining)]));
            assert_eq!(members(&pool), [(1, 0, true), (3, 2, false)]);
        }
        source.apply(&pool, replicas(&[]));
        assert_eq!(members(&pool), [(3, 2, false)]);
    }

    #[tokio::test]
    async fn a_full_pool_takes_no_more() {
        let (_registry, pool) = pool();
        for n in 0..REPLICAS_MAX {
            let port = u16::try_from(n + 1).unwrap();
            pool.add_replica(SocketAddr::from(([10, 1, 0, 1], port)))
                .unwrap();
        }
        let mut source = SourceReplicas::default();
        source.apply(&pool, replicas(&[(1, 7, false)]));
        assert_eq!(pool.members().borrow().len(), REPLICAS_MAX);
        source.apply(&pool, replicas(&[]));
        assert_eq!(pool.members().borrow().len(), REPLICAS_MAX);
    }
}

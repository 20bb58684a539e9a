//! Membership of a pool: addresses, and the replica ids that the router uses.
//!
//! An address that leaves and returns gets a new [`ReplicaId`]. What the router learned of the old process (its cache,
//! its speed, its requests in flight) says nothing about the new one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isotherm_router::{PeerId, ReplicaId, Role};

use super::endpoint::Endpoint;
use super::request::EndpointMatch;

/// Limit of replicas of one pool.
pub const REPLICAS_MAX: usize = 10_000;

/// A replica of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Id of the replica in the router.
    pub id: ReplicaId,
    /// Address of the replica.
    pub addr: SocketAddr,
    /// The part of a request that the replica serves.
    pub role: Role,
    /// Whether the replica drains: it finishes its requests and gets no new ones.
    pub draining: bool,
    /// The lease by which the pool uses a replica of another region.
    pub lease: Option<ReplicaLease>,
}

/// Lease of this region on a replica of another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLease {
    /// The region that owns the replica.
    pub owner: PeerId,
    /// Revision of the lease, which decisions name.
    pub revision: u64,
}

impl Member {
    /// The region that owns a leased replica.
    pub fn owner(&self) -> Option<PeerId> {
        self.lease.map(|lease| lease.owner)
    }
}

/// Error of a change of membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The pool has a replica at this address.
    #[error("replica {0} is in the pool already")]
    Exists(SocketAddr),
    /// The pool has no replica at this address.
    #[error("replica {0} is not in the pool; `isotherm replicas list` shows its replicas")]
    Unknown(SocketAddr),
    /// The replica is not leased from the given region.
    #[error("replica {0} is not leased from that region")]
    NotLeased(SocketAddr),
    /// The pool has as many replicas as it may have.
    #[error("the pool has {REPLICAS_MAX} replicas, which is its limit; remove one first")]
    Full,
}

/// The replicas of one pool, by address and by id.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    by_addr: BTreeMap<SocketAddr, Member>,
    endpoints: BTreeMap<ReplicaId, Endpoint>,
    next_id: u32,
}

impl Membership {
    /// Adds an address under a new id.
    pub(crate) fn add(
        &mut self,
        addr: SocketAddr,
        role: Role,
        lease: Option<ReplicaLease>,
    ) -> Result<ReplicaId, MembershipError> {
        if self.by_addr.contains_key(&addr) {
            return Err(MembershipError::Exists(addr));
        }
        if self.by_addr.len() >= REPLICAS_MAX {
            return Err(MembershipError::Full);
        }
        // A pool that has used up 2^32 ids counts as full.
        let id = ReplicaId(self.next_id);
        self.next_id = self.next_id.checked_add(1).ok_or(MembershipError::Full)?;
        let member = Member {
            id,
            addr,
            role,
            draining: false,
            lease,
        };
        self.by_addr.insert(addr, member);
        self.endpoints.insert(id, addr.into());
        Ok(id)
    }

    /// Turns a leased replica into one of this region; `None` if it is not leased.
    pub(crate) fn keep(&mut self, addr: SocketAddr) -> Option<ReplicaId> {
        let member = self.by_addr.get_mut(&addr)?;
        member.lease.take()?;
        Some(member.id)
    }

    pub(crate) fn change_role(
        &mut self,
        addr: SocketAddr,
        role: Role,
    ) -> Result<ReplicaId, MembershipError> {
        let member = self.by_addr.get_mut(&addr);
        let member = member.ok_or(MembershipError::Unknown(addr))?;
        member.role = role;
        Ok(member.id)
    }

    /// Changes the lease of a leased address, which may drain. Returns its id, and whether it was draining.
    /// Fails when it is this region's own.
    pub(crate) fn lease(
        &mut self,
        addr: SocketAddr,
        lease: ReplicaLease,
    ) -> Result<Option<(ReplicaId, bool)>, MembershipError> {
        match self.by_addr.get_mut(&addr) {
            None => return Ok(None),
            Some(member) if member.lease.is_none() => return Err(MembershipError::Exists(addr)),
            Some(member) => member.lease = Some(lease),
        }
        self.resume(addr).map(Some)
    }

    /// Removes an address that is leased from `peer`.
    pub(crate) fn release(
        &mut self,
        addr: SocketAddr,
        peer: PeerId,
    ) -> Result<ReplicaId, MembershipError> {
        match self.by_addr.get(&addr) {
            None => Err(MembershipError::Unknown(addr)),
            Some(member) if member.owner() == Some(peer) => self.remove(addr),
            Some(_) => Err(MembershipError::NotLeased(addr)),
        }
    }

    pub(crate) fn remove(&mut self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        let member = self.by_addr.remove(&addr);
        let member = member.ok_or(MembershipError::Unknown(addr))?;
        self.endpoints.remove(&member.id);
        Ok(member.id)
    }

    /// Marks an address as draining. Returns its id, and whether it was not draining before.
    pub(crate) fn drain(&mut self, addr: SocketAddr) -> Result<(ReplicaId, bool), MembershipError> {
        let member = self.by_addr.get_mut(&addr);
        let member = member.ok_or(MembershipError::Unknown(addr))?;
        let was_draining = std::mem::replace(&mut member.draining, true);
        Ok((member.id, !was_draining))
    }

    /// Marks an address as no longer draining. Returns its id, and whether it was draining before.
    pub(crate) fn resume(
        &mut self,
        addr: SocketAddr,
    ) -> Result<(ReplicaId, bool), MembershipError> {
        let member = self.by_addr.get_mut(&addr);
        let member = member.ok_or(MembershipError::Unknown(addr))?;
        let was_draining = std::mem::replace(&mut member.draining, false);
        Ok((member.id, was_draining))
    }

    /// Returns the lease of a leased replica.
    pub(crate) fn lease_of(&self, id: ReplicaId) -> Option<ReplicaLease> {
        let addr = self.addr_of(id)?;
        self.by_addr.get(&addr)?.lease
    }

    /// Whether the address is this region's own.
    pub(crate) fn is_own(&self, addr: SocketAddr) -> bool {
        self.by_addr
            .get(&addr)
            .is_some_and(|member| member.lease.is_none())
    }

    pub(crate) fn addr_of(&self, id: ReplicaId) -> Option<SocketAddr> {
        self.endpoint_of(id).map(Endpoint::addr)
    }

    pub(crate) fn endpoint_of(&self, id: ReplicaId) -> Option<&Endpoint> {
        self.endpoints.get(&id)
    }

    pub(crate) fn id_of(&self, addr: SocketAddr) -> Option<ReplicaId> {
        self.by_addr.get(&addr).map(|member| member.id)
    }

    /// Returns the replicas that a gateway names.
    pub(crate) fn named(&self, endpoint: EndpointMatch) -> impl Iterator<Item = ReplicaId> {
        let range = match endpoint {
            EndpointMatch::Port(addr) => addr..=addr,
            EndpointMatch::Host(ip) => SocketAddr::new(ip, 0)..=SocketAddr::new(ip, u16::MAX),
        };
        self.by_addr.range(range).map(|(_, member)| member.id)
    }

    /// Returns all members in the order of their addresses.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.by_addr.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn an_address_that_returns_gets_a_new_id() {
        let mut membership = Membership::default();
        let first = membership.add(addr(1), Role::Both, None).unwrap();
        assert_eq!(
            membership.add(addr(1), Role::Both, None),
            Err(MembershipError::Exists(addr(1)))
        );
        assert_eq!(membership.remove(addr(1)), Ok(first));
        assert_eq!(
            membership.remove(addr(1)),
            Err(MembershipError::Unknown(addr(1)))
        );
        let second = membership.add(addr(1), Role::Both, None).unwrap();
        assert_ne!(first, second);
        assert_eq!(membership.addr_of(first), None);
        assert_eq!(membership.addr_of(second), Some(addr(1)));
        assert_eq!(membership.id_of(addr(1)), Some(second));
    }

    #[test]
    fn the_first_drain_of_a_replica_is_reported_and_the_second_is_not() {
        let mut membership = Membership::default();
        let id = membership.add(addr(1), Role::Both, None).unwrap();
        assert_eq!(membership.drain(addr(1)), Ok((id, true)));
        assert_eq!(membership.drain(addr(1)), Ok((id, false)));
        assert_eq!(
            membership.members(),
            [Member {
                id,
                addr: addr(1),
                role: Role::Both,
                draining: true,
                lease: None,
            }]
        );
    }

    #[test]
    fn a_leased_replica_is_released_to_the_region_that_owns_it_only() {
        let mut membership = Membership::default();
        let (eu, asia) = (PeerId(0), PeerId(1));
        let own = membership.add(addr(1), Role::Both, None).unwrap();
        let lease = ReplicaLease {
            owner: eu,
            revision: 1,
        };
        let leased = membership.add(addr(2), Role::Both, Some(lease)).unwrap();
        let not_leased = |port| Err(MembershipError::NotLeased(addr(port)));
        assert_eq!(membership.release(addr(1), eu), not_leased(1));
        assert_eq!(membership.release(addr(2), asia), not_leased(2));
        assert_eq!(membership.release(addr(2), eu), Ok(leased));
        assert_eq!(membership.id_of(addr(1)), Some(own));

        let kept = membership.add(addr(2), Role::Both, Some(lease)).unwrap();
        assert_eq!(membership.keep(addr(2)), Some(kept));
        assert_eq!(membership.keep(addr(2)), None, "it is not leased any more");
        assert_eq!(membership.release(addr(2), eu), not_leased(2));
    }
}

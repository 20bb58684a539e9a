//! Who is in a pool: addresses, and the identities that the router knows them by.
//!
//! An address that leaves and returns gets a new [`ReplicaId`]: what the router learned of the old process
//! (its cache, its headroom, its requests in flight) says nothing about the new one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isotherm_router::{PeerId, ReplicaId};

use super::endpoint::Endpoint;

/// The most replicas that one pool holds.
pub const REPLICAS_MAX: usize = 10_000;

/// One replica of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What the router knows it by.
    pub id: ReplicaId,
    /// Where it listens.
    pub addr: SocketAddr,
    /// It finishes what it has, and gets nothing new.
    pub draining: bool,
    /// The region that it belongs to, where this one only looks after it.
    pub adopted_from: Option<PeerId>,
}

/// Why the membership of a pool could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The address is in the pool already.
    #[error("replica {0} is in the pool already")]
    Exists(SocketAddr),
    /// The address is not in the pool.
    #[error("replica {0} is not in the pool; `isotherm replicas list` shows who is")]
    Unknown(SocketAddr),
    /// The address is in the pool, and does not belong to that region.
    #[error("replica {0} is not adopted from that region")]
    NotAdopted(SocketAddr),
    /// The pool holds as many replicas as it may.
    #[error("the pool holds {REPLICAS_MAX} replicas, which is the most it may; remove one first")]
    Full,
}

/// The replicas of one pool, by address and by identity.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    by_addr: BTreeMap<SocketAddr, Member>,
    endpoint_of: BTreeMap<ReplicaId, Endpoint>,
    next_id: u32,
}

impl Membership {
    /// Takes an address in, under a new identity.
    pub(crate) fn add(
        &mut self,
        addr: SocketAddr,
        adopted_from: Option<PeerId>,
    ) -> Result<ReplicaId, MembershipError> {
        if self.by_addr.contains_key(&addr) {
            return Err(MembershipError::Exists(addr));
        }
        if self.by_addr.len() >= REPLICAS_MAX {
            return Err(MembershipError::Full);
        }
        // Four thousand million replicas come and go before this runs out: then the pool counts as full.
        let id = ReplicaId(self.next_id);
        self.next_id = self.next_id.checked_add(1).ok_or(MembershipError::Full)?;
        self.by_addr.insert(
            addr,
            Member {
                id,
                addr,
                draining: false,
                adopted_from,
            },
        );
        self.endpoint_of.insert(id, addr.into());
        Ok(id)
    }

    /// Makes an adopted address this region's own; `None` where it is not adopted.
    pub(crate) fn keep(&mut self, addr: SocketAddr) -> Option<ReplicaId> {
        let member = self.by_addr.get_mut(&addr)?;
        member.adopted_from.take()?;
        Some(member.id)
    }

    /// Lets an address go that was adopted from `peer`.
    pub(crate) fn release(
        &mut self,
        addr: SocketAddr,
        peer: PeerId,
    ) -> Result<ReplicaId, MembershipError> {
        match self.by_addr.get(&addr) {
            None => Err(MembershipError::Unknown(addr)),
            Some(member) if member.adopted_from == Some(peer) => self.remove(addr),
            Some(_) => Err(MembershipError::NotAdopted(addr)),
        }
    }

    /// Lets an address go.
    pub(crate) fn remove(&mut self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        let member = self
            .by_addr
            .remove(&addr)
            .ok_or(MembershipError::Unknown(addr))?;
        self.endpoint_of.remove(&member.id);
        Ok(member.id)
    }

    /// Marks an address as draining; says who it is, and whether that is news.
    pub(crate) fn drain(&mut self, addr: SocketAddr) -> Result<(ReplicaId, bool), MembershipError> {
        let member = self
            .by_addr
            .get_mut(&addr)
            .ok_or(MembershipError::Unknown(addr))?;
        let news = !member.draining;
        member.draining = true;
        Ok((member.id, news))
    }

    /// Where a replica listens.
    pub(crate) fn addr_of(&self, id: ReplicaId) -> Option<SocketAddr> {
        self.endpoint_of(id).map(Endpoint::addr)
    }

    /// The same, with its text.
    pub(crate) fn endpoint_of(&self, id: ReplicaId) -> Option<&Endpoint> {
        self.endpoint_of.get(&id)
    }

    /// Who listens there.
    pub(crate) fn id_of(&self, addr: SocketAddr) -> Option<ReplicaId> {
        self.by_addr.get(&addr).map(|member| member.id)
    }

    /// Everyone, in order of address.
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
    fn an_address_that_returns_is_somebody_new() {
        let mut membership = Membership::default();
        let first = membership.add(addr(1), None).unwrap();
        assert_eq!(
            membership.add(addr(1), None),
            Err(MembershipError::Exists(addr(1)))
        );
        assert_eq!(membership.remove(addr(1)), Ok(first));
        assert_eq!(
            membership.remove(addr(1)),
            Err(MembershipError::Unknown(addr(1)))
        );
        let second = membership.add(addr(1), None).unwrap();
        assert_ne!(first, second);
        assert_eq!(membership.addr_of(first), None);
        assert_eq!(membership.addr_of(second), Some(addr(1)));
        assert_eq!(membership.id_of(addr(1)), Some(second));
    }

    #[test]
    fn draining_is_news_once() {
        let mut membership = Membership::default();
        let id = membership.add(addr(1), None).unwrap();
        assert_eq!(membership.drain(addr(1)), Ok((id, true)));
        assert_eq!(membership.drain(addr(1)), Ok((id, false)));
        assert_eq!(
            membership.members(),
            [Member {
                id,
                addr: addr(1),
                draining: true,
                adopted_from: None,
            }]
        );
    }

    #[test]
    fn only_the_region_that_an_address_was_adopted_from_takes_it_back() {
        let mut membership = Membership::default();
        let (eu, asia) = (PeerId(0), PeerId(1));
        let own = membership.add(addr(1), None).unwrap();
        let adopted = membership.add(addr(2), Some(eu)).unwrap();
        let not_adopted = |port| Err(MembershipError::NotAdopted(addr(port)));
        assert_eq!(membership.release(addr(1), eu), not_adopted(1));
        assert_eq!(membership.release(addr(2), asia), not_adopted(2));
        assert_eq!(membership.release(addr(2), eu), Ok(adopted));
        assert_eq!(membership.id_of(addr(1)), Some(own));

        let kept = membership.add(addr(2), Some(eu)).unwrap();
        assert_eq!(membership.keep(addr(2)), Some(kept));
        assert_eq!(
            membership.keep(addr(2)),
            None,
            "it is this region's already"
        );
        assert_eq!(membership.release(addr(2), eu), not_adopted(2));
    }
}

//! A pool among regions: the reports of its peers, the placements of its siblings, and the replicas that it leases.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_router::{Event, PeerId, PeerReport, PeerStatus, ReplicaId, Role, Target, Time};

use super::Pool;
use super::membership::{MembershipError, ReplicaLease};
use super::peer_table::PeerTable;
use super::shared_placement::{SharedPlacement, SharedTarget};
use crate::sans_io::Driver;

impl Pool {
    /// Adds a replica of another region, until it is released. A leased replica that drains gets requests again.
    /// Fails when the replica is this region's own, or the pool is full.
    pub fn lease_replica(
        &self,
        addr: SocketAddr,
        lease: ReplicaLease,
    ) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| match state.membership.lease(addr, lease)? {
            None => state.add_replica(now, addr, Role::Both, Some(lease)),
            Some((replica, was_draining)) => {
                if was_draining {
                    state.router.handle(now, Event::Resumed(replica));
                }
                Ok(replica)
            }
        })
    }

    /// Sends no request to this region's own replicas (`true`): another region decides about them.
    pub fn set_suspended(&self, is_suspended: bool) {
        self.drive(|state, now| {
            if std::mem::replace(&mut state.is_suspended, is_suspended) == is_suspended {
                return;
            }
            for member in state.membership.members() {
                let is_affected = member.lease.is_none() && !member.draining;
                match is_suspended {
                    true if is_affected => state.router.handle(now, Event::Draining(member.id)),
                    false if is_affected => state.router.handle(now, Event::Resumed(member.id)),
                    true | false => {}
                }
            }
        });
    }

    /// Returns a replica to the region that it is leased from. Its requests in flight still end as usual.
    /// Fails when the pool does not have the replica, or has not leased it from that region.
    pub fn release_replica(
        &self,
        addr: SocketAddr,
        to: PeerId,
    ) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| {
            let replica = state.membership.release(addr, to)?;
            state.on_replica_removed(now, replica);
            self.adapters.remove(replica);
            self.page_reports.remove(replica);
            Ok(replica)
        })
    }

    /// Returns the home region of each leased replica.
    pub fn leased(&self) -> BTreeMap<ReplicaId, Arc<str>> {
        let Some(peers) = self.peer_table() else {
            return BTreeMap::new();
        };
        let members = Arc::clone(&self.members().borrow());
        let leased = members.iter().filter_map(|member| {
            let region = peers.get(member.owner()?)?;
            Some((member.id, Arc::clone(&region.name)))
        });
        leased.collect()
    }

    /// Reports a peer's state of its pool of this model at `as_of`. An unknown peer is ignored.
    pub fn peer_reported(
        &self,
        peer: PeerId,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
    ) {
        let event = Event::PeerReported {
            peer,
            report,
            as_of,
            round_trip,
        };
        self.peer_event(peer, event);
    }

    /// Reports that a peer is unreachable, or does not serve this model.
    pub fn peer_lost(&self, peer: PeerId) {
        self.peer_event(peer, Event::PeerLost(peer));
    }

    /// The state of this pool, for the peers.
    pub fn report(&self) -> PeerReport {
        self.state.lock().router.report()
    }

    /// The router's view of each peer.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let state = self.state.lock();
        state.router.peers(self.clock().now()).collect()
    }

    /// The regions that the pool knows, if there are others.
    pub fn peer_table(&self) -> Option<Arc<PeerTable>> {
        self.state.lock().peer_table.clone()
    }

    /// Takes up to `max` placements that the siblings have to learn of, oldest first.
    pub fn take_placements(&self, max: usize) -> Vec<SharedPlacement> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let (membership, peer_table) = (&state.membership, state.peer_table.as_deref());
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(placement) = state.router.poll_placement()
        {
            taken.extend(
                placement
                    .translate(|target| SharedTarget::from_router(target, membership, peer_table)),
            );
        }
        taken
    }

    /// Applies placements of a sibling. A placement with an unknown replica or region is ignored.
    pub fn apply_placements(&self, placements: impl IntoIterator<Item = SharedPlacement>) {
        self.drive(|state, now| {
            for placement in placements {
                let (membership, peer_table) = (&state.membership, state.peer_table.as_deref());
                match placement.translate(|target| target.into_router(membership, peer_table)) {
                    Some(placement) => {
                        if let Target::Replica(replica) = placement.target {
                            state.wake(replica);
                        }
                        state.router.handle(now, Event::Shared(placement));
                    }
                    None => self.metrics.count_unknown_placement(),
                }
            }
        });
    }

    pub(crate) fn set_peer_table(&self, peer_table: Option<Arc<PeerTable>>) {
        self.drive(|state, now| {
            let before = state.peer_table.clone();
            let is_in = |table: &Option<Arc<PeerTable>>, peer| {
                table
                    .as_ref()
                    .is_some_and(|table| table.get(peer).is_some())
            };
            for left in before.iter().flat_map(|table| table.peers()) {
                if !is_in(&peer_table, left.id) {
                    state.router.handle(now, Event::PeerRemoved(left.id));
                }
            }
            // Decisions so far refer to the table before.
            state.collect_replies(None);
            state.peer_table.clone_from(&peer_table);
            for joined in peer_table.iter().flat_map(|table| table.peers()) {
                if !is_in(&before, joined.id) {
                    let name = joined.name.to_string();
                    let peer = joined.id;
                    state.router.handle(now, Event::PeerAdded { peer, name });
                }
            }
        });
    }

    fn peer_event(&self, peer: PeerId, event: Event) {
        self.drive(|state, now| {
            let known = state.peer_table.as_ref().and_then(|table| table.get(peer));
            if known.is_some() {
                state.router.handle(now, event);
            }
        });
    }
}

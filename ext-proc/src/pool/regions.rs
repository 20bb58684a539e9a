//! A pool among regions: what it hears of its peers and tells them, what it shares with its siblings, and whose replicas
//! it looks after.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_router::{Event, PeerId, PeerReport, PeerSpec, PeerStatus, ReplicaId, Time};

use super::membership::MembershipError;
use super::peers::PeerTable;
use super::shared_placement::SharedPlacement;
use super::state::PendingReplies;
use super::{Pool, join};

impl Pool {
    /// Takes a replica in that belongs to a region that is lost, until it is released.
    ///
    /// # Errors
    ///
    /// When it is there already, or the pool is full.
    pub fn adopt_replica(
        &self,
        addr: SocketAddr,
        from: PeerId,
    ) -> Result<ReplicaId, MembershipError> {
        self.change_members(|core, now| join(core, now, addr, Some(from)))
    }

    /// Gives a replica back to the region that it was adopted from. What it has in flight ends as it ends.
    ///
    /// # Errors
    ///
    /// When it is not in the pool, or is not adopted from that region.
    pub fn release_replica(
        &self,
        addr: SocketAddr,
        to: PeerId,
    ) -> Result<ReplicaId, MembershipError> {
        self.change_members(|core, now| {
            let replica = core.membership.release(addr, to)?;
            core.unprobed.remove(&replica);
            Ok((replica, core.handle(now, Event::Removed { replica })))
        })
    }

    /// What a peer said of its pool of this model at `as_of`, when it was asked. News of an unknown peer is dropped.
    pub fn peer_reported(
        &self,
        peer: PeerId,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
    ) {
        self.peer_event(
            peer,
            Event::PeerReported {
                peer,
                report,
                as_of,
                round_trip,
            },
        );
    }

    /// A peer is not heard any more, or does not serve this model.
    pub fn peer_lost(&self, peer: PeerId) {
        self.peer_event(peer, Event::PeerLost { peer });
    }

    /// What this pool tells peers of itself.
    #[must_use]
    pub fn report(&self) -> PeerReport {
        let core = self.lock();
        core.router.report(self.clock.now())
    }

    /// What the core knows of each peer.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        let core = self.lock();
        core.router.peers(self.clock.now()).collect()
    }

    /// The regions that this pool knows, where there are others.
    #[must_use]
    pub fn peer_table(&self) -> Option<Arc<PeerTable>> {
        self.lock().peer_table.clone()
    }

    /// What siblings have to hear of placements made here, oldest first; `max` of them at most.
    #[must_use]
    pub fn take_placements(&self, max: usize) -> Vec<SharedPlacement> {
        let mut core = self.lock();
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(placement) = core.router.poll_placement()
        {
            // Whoever has left in the meantime is not worth telling of.
            taken.extend(SharedPlacement::name(
                placement,
                &core.membership,
                core.peer_table.as_deref(),
            ));
        }
        taken
    }

    /// Placements that a sibling made. Those that name a replica or a region that is unknown here are dropped.
    pub fn shared(&self, placements: impl IntoIterator<Item = SharedPlacement>) {
        self.drive(|core, now| {
            let mut replies = PendingReplies::default();
            for placement in placements {
                match placement.resolve(&core.membership, core.peer_table.as_deref()) {
                    Some(placement) => {
                        replies.append(core.handle(now, Event::Shared(placement)));
                    }
                    None => self.metrics.unknown_placement(),
                }
            }
            ((), replies)
        });
    }

    /// The regions are these from now on.
    pub(crate) fn set_peer_table(&self, peer_table: Option<Arc<PeerTable>>) {
        self.drive(|core, now| {
            let mut replies = PendingReplies::default();
            let known = |in_it: &Option<Arc<PeerTable>>, peer| {
                in_it.as_ref().is_some_and(|it| it.get(peer).is_some())
            };
            let before = core.peer_table.clone();
            for gone in before.iter().flat_map(|it| it.peers()) {
                if !known(&peer_table, gone.id) {
                    let event = Event::PeerRemoved { peer: gone.id };
                    replies.append(core.handle(now, event));
                }
            }
            core.peer_table.clone_from(&peer_table);
            for come in peer_table.iter().flat_map(|it| it.peers()) {
                if !known(&before, come.id) {
                    let spec = PeerSpec {
                        name: come.name.to_string(),
                    };
                    let peer = come.id;
                    replies.append(core.handle(now, Event::PeerAdded { peer, spec }));
                }
            }
            ((), replies)
        });
    }

    fn peer_event(&self, peer: PeerId, event: Event) {
        self.drive(|core, now| {
            let known = core.peer_table.as_ref().and_then(|it| it.get(peer));
            let replies = match known {
                Some(_) => core.handle(now, event),
                None => PendingReplies::default(),
            };
            ((), replies)
        });
    }
}

//! Peer regions: what each last said of itself.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::{PeerAvailability, PeerId, PeerReport, PeerSpec, PeerStatus, Time};

/// All peer regions of a pool.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: BTreeMap<PeerId, PeerStatus>,
}

impl Peers {
    /// A peer joined.
    pub(crate) fn added(&mut self, id: PeerId, spec: PeerSpec) {
        self.peers.entry(id).or_insert(PeerStatus {
            id,
            name: spec.name,
            availability: PeerAvailability::NeverHeard,
            report: None,
            as_of: None,
            round_trip: None,
            forwarded_since: 0,
            outstanding: 0,
            prefix_bytes: 0,
            forwarded: 0,
            returned: 0,
        });
    }

    /// A peer left.
    pub(crate) fn removed(&mut self, id: PeerId) {
        self.peers.remove(&id);
    }

    /// A peer said this.
    pub(crate) fn reported(
        &mut self,
        id: PeerId,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
    ) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.report = Some(report);
            peer.as_of = Some(as_of);
            peer.round_trip = Some(round_trip);
            peer.availability = PeerAvailability::Available;
        }
    }

    /// A peer is not heard any more.
    pub(crate) fn lost(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.availability = PeerAvailability::Lost;
        }
    }

    /// All, in order of identity.
    pub(crate) fn everybody(&self) -> impl Iterator<Item = &PeerStatus> {
        self.peers.values()
    }
}

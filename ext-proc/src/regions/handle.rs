//! Handle of the admin interface and the metrics on the regions.

use std::sync::Arc;

use isotherm_regions::{Event, PeerRegionStatus, RegionName};
use isotherm_router::PeerId;

use super::RegionsDriver;
use super::links::{PeerLink, SiblingLink};
use super::state::DriverState;
use super::status::{PeerState, RegionsStatus, SiblingState};

/// Handle on this service's state among regions. Clones share it.
#[derive(Clone, Debug)]
pub struct RegionsHandle(pub(super) Arc<RegionsDriver>);

/// Error of a name that is not a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a peer of this region; `isotherm regions` lists the peers")]
pub struct UnknownRegion(pub String);

impl RegionsHandle {
    /// Returns the status of the regions.
    #[must_use]
    pub fn status(&self) -> RegionsStatus {
        let core = self.0.lock();
        let now = self.0.clock().now();
        let silence_max = core.config.silence_max();
        let status = core.regions.status(now);
        let mut peers: Vec<_> = status
            .peers
            .into_iter()
            .filter_map(|peer| Some(state(&core, core.links.peers.get(&peer.id)?, peer)))
            .collect();
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        let siblings = core.links.siblings.iter().map(|link| {
            let SiblingLink {
                address, sibling, ..
            } = link;
            let timing = sibling.timing(now);
            let reports = sibling.reports(now, silence_max).iter();
            SiblingState {
                address: address.to_string(),
                link: link.state.clone(),
                round_trip: timing.map(|(round_trip, _)| round_trip),
                heartbeat_age: timing.map(|(_, age)| age),
                queue: reports.fold(0, |sum, (_, report)| sum.saturating_add(report.queue)),
            }
        });
        RegionsStatus {
            name: status.name.to_string(),
            has_gateway: status.has_gateway,
            successors: names(&status.successors),
            peers,
            siblings: siblings.collect(),
            counters: status.counters,
            placements: core.counts,
            certificate: core.certificate,
            handshakes_rejected: core.handshakes_rejected,
        }
    }

    /// Records the operator's declaration that no part of a region runs, so that its replicas may be adopted without proof. With
    /// `lost: false`, revokes the declaration.
    ///
    /// # Errors
    ///
    /// When the region is not a peer.
    pub fn declare_lost(&self, region: &str, lost: bool) -> Result<(), UnknownRegion> {
        let table = self.0.pool_registry().table();
        let peer = table.peer_table().and_then(|known| known.named(region));
        let peer: PeerId = peer.ok_or_else(|| UnknownRegion(region.to_owned()))?.id;
        tracing::warn!(region, lost, "operator declared whether a region is lost");
        self.0.handle(Event::DeclaredLost {
            peer,
            is_lost: lost,
        });
        Ok(())
    }
}

fn state(core: &DriverState, link: &PeerLink, peer: PeerRegionStatus) -> PeerState {
    PeerState {
        id: peer.id,
        name: peer.name.to_string(),
        address: link.config.address.to_string(),
        cluster: link.config.cluster.clone(),
        link: link.state.clone(),
        state: peer.state,
        round_trip: peer.round_trip,
        heartbeat_age: peer.heartbeat_age,
        version: peer.version,
        replicas: peer.replicas,
        adopted: core.adoptions.count(peer.id),
        adopted_by: names(&peer.adopted_by),
        adoption_blocker: peer.adoption_blocker,
    }
}

fn names(regions: &[RegionName]) -> Vec<String> {
    regions.iter().map(ToString::to_string).collect()
}

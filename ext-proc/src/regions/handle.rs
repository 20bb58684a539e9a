//! Handle of the admin interface and the metrics on the regions.

use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{AdoptionBlocker, Event, PeerRegionStatus, RegionName};
use isotherm_router::PeerId;

use super::RegionsDriver;
use super::state::DriverState;
use super::status::{PeerState, RegionsStatus, SiblingState};
use crate::clock::millis;

/// Handle on this service's state among regions. Clones share it.
#[derive(Clone, Debug)]
pub struct RegionsHandle(pub(super) Arc<RegionsDriver>);

/// Error of a name that is not a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a peer of this region; `isotherm regions` lists the peers")]
pub struct UnknownRegion(pub String);

impl RegionsHandle {
    /// Returns the status of the regions.
    pub fn status(&self) -> RegionsStatus {
        let core = self.0.lock();
        let now = self.0.clock().now();
        let silence_max = core.config.silence_max();
        let status = core.regions.status(now);
        let peers = status.peers.into_iter();
        let mut peers: Vec<_> = peers.filter_map(|peer| peer_state(&core, peer)).collect();
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        let siblings = core.links.siblings.iter().map(|link| {
            let timing = link.sibling.timing(now);
            let reports = link.sibling.reports(now, silence_max).iter();
            SiblingState {
                address: link.address.to_string(),
                link: link.state.clone(),
                round_trip_ms: timing.map(|(round_trip, _)| fractional_millis(round_trip)),
                heartbeat_age_ms: timing.map(|(_, age)| millis(age)),
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
            addresses_rejected: core.addresses_rejected,
        }
    }

    /// Records the operator's declaration that no part of a region runs, so that its replicas may be adopted without proof. With
    /// `lost: false`, revokes the declaration.
    /// Fails when the region is not a peer.
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

fn peer_state(core: &DriverState, peer: PeerRegionStatus) -> Option<PeerState> {
    let link = core.links.peers.get(&peer.id)?;
    Some(PeerState {
        name: peer.name.to_string(),
        cluster: link.config.cluster.clone(),
        address: link.config.address.to_string(),
        link: link.state.clone(),
        state: peer.state,
        adoption_blocker: peer.adoption_blocker.as_ref().map(describe),
        round_trip_ms: peer.round_trip.map(fractional_millis),
        heartbeat_age_ms: peer.heartbeat_age.map(millis),
        version: peer.version,
        replicas: peer.replicas,
        adopted: core.adoptions.count(peer.id),
        adopted_by: names(&peer.adopted_by),
    })
}

fn names(regions: &[RegionName]) -> Vec<String> {
    regions.iter().map(ToString::to_string).collect()
}

/// Describes to an operator why this region does not adopt a region's replicas.
fn describe(blocker: &AdoptionBlocker) -> String {
    match blocker {
        AdoptionBlocker::Disabled => "adoption is disabled here".to_owned(),
        AdoptionBlocker::NoGateway => "no Envoy is connected here".to_owned(),
        AdoptionBlocker::NoRecord => "its replicas are unknown here".to_owned(),
        AdoptionBlocker::NotProvedDead => "its death is not proved".to_owned(),
        AdoptionBlocker::ReplicasUnreachable => "its replicas do not answer from here".to_owned(),
        AdoptionBlocker::Yielded => "another region is better placed".to_owned(),
        AdoptionBlocker::Unaccounted(region) => {
            format!("{region} may have adopted them, and is silent")
        }
        AdoptionBlocker::AdoptedBy(region) => format!("{region} has adopted them"),
        AdoptionBlocker::RegionAhead(region) => format!("{region} goes first"),
    }
}

/// Milliseconds with three decimals: between services of one region a round trip takes a fraction of one.
fn fractional_millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

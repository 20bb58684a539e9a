//! Status of the regions, for operators and metrics.

use core::time::Duration;

use strum::{AsRefStr, IntoStaticStr};

use super::event::{AdoptionBlocker, LinkFailure};
use super::message::{Liveness, RegionName};
use super::{Regions, records};
use isotherm_router::{PeerId, Time};
use serde::{Deserialize, Serialize};

/// Status of all regions, as one service sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionsStatus {
    /// Name of this region.
    pub name: RegionName,
    /// Whether this region's gateway is connected.
    pub has_gateway: bool,
    /// Regions that may adopt this region's replicas, first choice first.
    pub successors: Vec<RegionName>,
    /// Other regions, in order of id.
    pub peers: Vec<PeerRegionStatus>,
    /// Counters since the start.
    pub counters: RegionsCounters,
}

/// Status of another region.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRegionStatus {
    /// Id of the region.
    pub id: PeerId,
    /// Name of the region.
    pub name: RegionName,
    /// State of the region.
    pub state: RegionState,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
    /// Time since the ping of the last accepted heartbeat.
    pub heartbeat_age: Option<Duration>,
    /// Version of the region's software.
    pub version: Option<String>,
    /// Number of replicas in the region's record.
    pub replicas: usize,
    /// Other regions that report to have adopted the region's replicas.
    pub adopted_by: Vec<RegionName>,
    /// Reason that prevents an adoption while the region is down.
    pub adoption_blocker: Option<AdoptionBlocker>,
}

/// State of another region.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    IntoStaticStr,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RegionState {
    /// The region has not been heard since the start.
    NeverHeard,
    /// The region is heard and has a gateway.
    Up,
    /// The region is heard and reports that it has no gateway.
    NoGateway,
    /// The region is not heard, and its death is not proved.
    Lost,
    /// The region runs and must not be used.
    Refused,
    /// The region's service is proved not to run, while the network to it works.
    Dead,
    /// The operator declared the region lost.
    DeclaredLost,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionsCounters {
    /// Accepted heartbeats.
    pub heartbeats: u64,
    /// Rejected heartbeats: late, repeated, never asked for, or of another link.
    pub heartbeats_rejected: u64,
    /// Accepted records.
    pub records: u64,
    /// Rejected records: of another region, or too large.
    pub records_rejected: u64,
    /// Losses of peers.
    pub regions_lost: u64,
    /// Adoptions.
    pub adoptions: u64,
    /// Reports of other regions that they have adopted replicas which this region has adopted.
    pub adoption_conflicts: u64,
    /// Suspensions of this service.
    pub suspensions: u64,
}

impl Regions {
    pub(super) fn peer_status(&self, id: PeerId, now: Time) -> Option<PeerRegionStatus> {
        let peer = self.peers.get(&id)?;
        let others = self.other_peers(id);
        let holders = others.filter(|(_, other)| other.services.has_adopted(&peer.name));
        Some(PeerRegionStatus {
            id,
            name: peer.name.clone(),
            state: self.state(id),
            round_trip: peer.heartbeats.round_trip,
            heartbeat_age: peer.heartbeats.as_of.map(|as_of| now.since(as_of)),
            version: peer.software_version.as_deref().map(str::to_owned),
            replicas: records::addresses(&peer.record.pools).count(),
            adopted_by: holders.map(|(_, other)| other.name.clone()).collect(),
            adoption_blocker: self.decide_adoption(id).and_then(Result::err),
        })
    }

    fn state(&self, id: PeerId) -> RegionState {
        let Some(peer) = self.peers.get(&id) else {
            return RegionState::NeverHeard;
        };
        let liveness = peer.liveness(self.now, self.silence_max());
        if peer.link_failure == Some(LinkFailure::Refused) {
            return RegionState::Refused;
        }
        match liveness {
            Liveness::Alive { .. } if liveness.is_up() => RegionState::Up,
            Liveness::Alive { .. } => RegionState::NoGateway,
            Liveness::Silent if peer.is_declared_lost => RegionState::DeclaredLost,
            Liveness::Silent if peer.death_proof.is_proved => RegionState::Dead,
            Liveness::Silent if peer.is_lost => RegionState::Lost,
            Liveness::Silent => RegionState::NeverHeard,
        }
    }
}

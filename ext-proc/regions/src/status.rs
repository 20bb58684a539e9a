//! What people are shown of the regions.

use core::time::Duration;

use super::adoption::AdoptionDecision;
use super::event::LinkFailure;
use super::message::{Incarnation, Liveness, RecordVersion, RegionName};
use super::{Regions, records};
use isotherm_router::{PeerId, Time};

/// The regions, as one service sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionsStatus {
    /// This region.
    pub name: RegionName,
    /// This life of the service.
    pub incarnation: Incarnation,
    /// Whether its gateway is connected.
    pub has_gateway: bool,
    /// Versions of its own record.
    pub record_version: RecordVersion,
    /// Who may adopt its replicas, the first first.
    pub successors: Vec<RegionName>,
    /// The other regions, in order of identity.
    pub peers: Vec<PeerRegionStatus>,
    /// What has happened since the start.
    pub counters: RegionsCounters,
}

/// Another region.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRegionStatus {
    /// Its identity.
    pub id: PeerId,
    /// Its name.
    pub name: RegionName,
    /// How it is.
    pub state: RegionState,
    /// Whether the link that this service dials is up; why not, where it is known.
    pub link: Result<(), Option<LinkFailure>>,
    /// Round trip, smoothed.
    pub round_trip: Option<Duration>,
    /// Age of its last acceptable heartbeat, since it was asked.
    pub heartbeat_age: Option<Duration>,
    /// The version of its software.
    pub version: Option<String>,
    /// Its life, as its last heartbeat says.
    pub incarnation: Option<Incarnation>,
    /// The versions of its record that are known here.
    pub record_version: RecordVersion,
    /// How many replicas that record names.
    pub replicas: usize,
    /// Whether the replicas that are asked as witnesses answered last; none while nobody asks.
    pub replicas_answered: Option<bool>,
    /// Whether this region holds its replicas.
    pub is_adopted: bool,
    /// Other regions that say they hold its replicas.
    pub adopted_by: Vec<RegionName>,
    /// While it is down: why this region does not adopt it.
    pub adoption_blocker: Option<AdoptionBlocker>,
}

/// How a peer region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionState {
    /// Nothing was heard of it since the start.
    NeverHeard,
    /// It is heard, with its gateway.
    Up,
    /// It is heard, and says that it has no gateway.
    NoGateway,
    /// It is not heard, and nothing proves that it is dead.
    Lost,
    /// It answers and must not be used.
    Refused,
    /// Its service is proved not to run, while its network works.
    Dead,
    /// The operator says that it is lost.
    DeclaredLost,
}

impl RegionState {
    /// A short name for metrics and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverHeard => "never_heard",
            Self::Up => "up",
            Self::NoGateway => "no_gateway",
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::Dead => "dead",
            Self::DeclaredLost => "declared_lost",
        }
    }
}

/// Why a region that is down is not adopted from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptionBlocker {
    /// Adoption is switched off here.
    Disabled,
    /// This region has no gateway itself.
    NoGateway,
    /// Its record is not known here.
    NoRecord,
    /// It is not proved to be dead (yet), or another region hears it.
    NotProvedDead,
    /// Its replicas do not answer this region.
    ReplicasUnreachable,
    /// This region leaves it to another one, which asked for it or can rule out somebody whom this one cannot.
    Yielded,
    /// This region may adopt it, or holds it, and may be dead or not: it is not heard, and cannot be ruled out.
    Unaccounted(RegionName),
    /// This region holds its replicas.
    AdoptedBy(RegionName),
    /// This region goes first.
    RegionAhead(RegionName),
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionsCounters {
    /// Heartbeats that were believed.
    pub heartbeats: u64,
    /// Heartbeats that were not: late, repeated, never asked for, of another link.
    pub heartbeats_rejected: u64,
    /// Records that were taken.
    pub records: u64,
    /// Records that were not: of another region, too large.
    pub records_rejected: u64,
    /// Times that a peer was lost.
    pub peers_lost: u64,
    /// Adoptions.
    pub adoptions: u64,
    /// Times that another region held the same replicas. This should stay zero.
    pub adoption_conflicts: u64,
    /// Times that this service stood still for too long.
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
            link: match peer.heartbeats.session() {
                Some(_) => Ok(()),
                None => Err(peer.link_failure),
            },
            round_trip: peer.heartbeats.round_trip(),
            heartbeat_age: peer.heartbeats.as_of().map(|as_of| now.since(as_of)),
            version: peer.software_version.as_deref().map(str::to_owned),
            incarnation: peer.incarnation,
            record_version: peer.record.record_version(),
            replicas: records::addresses(&peer.record.pools).count(),
            replicas_answered: peer.last_probe.map(|(_, alive)| alive),
            is_adopted: peer.claim.is_adopted,
            adopted_by: holders.map(|(_, other)| other.name.clone()).collect(),
            adoption_blocker: match self.decide_adoption(id) {
                AdoptionDecision::Blocked(blocked) => Some(blocked),
                AdoptionDecision::AlreadyAdopted
                | AdoptionDecision::NotDown
                | AdoptionDecision::Allowed => None,
            },
        })
    }

    fn state(&self, id: PeerId) -> RegionState {
        let Some(peer) = self.peers.get(&id) else {
            return RegionState::NeverHeard;
        };
        match peer.liveness(self.now, self.silence_max()) {
            _ if peer.link_failure == Some(LinkFailure::Refused) => RegionState::Refused,
            Liveness::Alive {
                has_gateway: true, ..
            } => RegionState::Up,
            Liveness::Alive {
                has_gateway: false, ..
            } => RegionState::NoGateway,
            Liveness::Silent if peer.is_declared_lost => RegionState::DeclaredLost,
            Liveness::Silent if peer.death_proof.is_proved() => RegionState::Dead,
            Liveness::Silent if peer.is_lost => RegionState::Lost,
            Liveness::Silent => RegionState::NeverHeard,
        }
    }
}

//! What people are shown of the regions.

use core::time::Duration;

use super::adopt::Verdict;
use super::event::Broken;
use super::message::{Held, Incarnation, RegionName, Sight};
use super::{Regions, records};
use crate::{PeerId, Time};

/// The regions, as one service sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionsStatus {
    /// This region.
    pub name: RegionName,
    /// This life of the service.
    pub incarnation: Incarnation,
    /// Whether its gateway is connected.
    pub gateway: bool,
    /// Versions of its own record.
    pub record: Held,
    /// Who may adopt its replicas, the first first.
    pub heirs: Vec<RegionName>,
    /// The other regions, in order of identity.
    pub peers: Vec<PeerRegion>,
    /// What has happened since the start.
    pub counters: RegionsCounters,
}

/// Another region.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRegion {
    /// Its identity.
    pub id: PeerId,
    /// Its name.
    pub name: RegionName,
    /// How it is.
    pub state: RegionState,
    /// Whether the link that this service dials is up; why not, where it is known.
    pub link: Result<(), Option<Broken>>,
    /// Round trip, smoothed.
    pub round_trip: Option<Duration>,
    /// Age of its last acceptable heartbeat, since it was asked.
    pub heartbeat_age: Option<Duration>,
    /// The version of its software.
    pub version: Option<String>,
    /// Its life, as its last heartbeat says.
    pub incarnation: Option<Incarnation>,
    /// The versions of its record that are known here.
    pub record: Held,
    /// How many replicas that record names.
    pub replicas: usize,
    /// Whether the replicas that are asked as witnesses answered last; none while nobody asks.
    pub witness: Option<bool>,
    /// Whether this region holds its replicas.
    pub adopted: bool,
    /// Other regions that say they hold its replicas.
    pub held_by: Vec<RegionName>,
    /// While it is down: why this region does not adopt it.
    pub blocked: Option<Blocked>,
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
pub enum Blocked {
    /// Adoption is switched off here.
    SwitchedOff,
    /// This region has no gateway itself.
    NoGateway,
    /// Its record is not known here.
    NoRecord,
    /// It is not proved to be dead (yet), or another region hears it.
    NotDead,
    /// Its replicas do not answer this region.
    ReplicasSilent,
    /// This region leaves it to another one, which asked for it or can rule out somebody whom this one cannot.
    LeftToOthers,
    /// This region may adopt it, or holds it, and may be dead or not: it is not heard, and cannot be ruled out.
    Unknown(RegionName),
    /// This region holds its replicas.
    HeldBy(RegionName),
    /// This region goes first.
    First(RegionName),
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionsCounters {
    /// Heartbeats that were believed.
    pub heartbeats: u64,
    /// Heartbeats that were not: late, repeated, never asked for, of another link.
    pub heartbeats_refused: u64,
    /// Records that were taken.
    pub records: u64,
    /// Records that were not: of another region, too large.
    pub records_refused: u64,
    /// Times that a peer was lost.
    pub lost: u64,
    /// Adoptions.
    pub adoptions: u64,
    /// Times that another region held the same replicas. This should stay zero.
    pub conflicts: u64,
    /// Times that this service stood still for too long.
    pub sleeps: u64,
}

impl Regions {
    pub(super) fn peer_status(&self, id: PeerId, now: Time) -> Option<PeerRegion> {
        let peer = self.peers.get(&id)?;
        let others = self.others(id);
        let holders = others.filter(|(_, other)| other.voices.holds(&peer.name));
        Some(PeerRegion {
            id,
            name: peer.name.clone(),
            state: self.state(id),
            link: match peer.pulse.session() {
                Some(_) => Ok(()),
                None => Err(peer.broken),
            },
            round_trip: peer.pulse.round_trip(),
            heartbeat_age: peer.pulse.as_of().map(|as_of| now.since(as_of)),
            version: peer.version.as_deref().map(str::to_owned),
            incarnation: peer.incarnation,
            record: peer.record.held(),
            replicas: records::addresses(&peer.record.pools).count(),
            witness: peer.witness.map(|(_, alive)| alive),
            adopted: peer.claim.holds,
            held_by: holders.map(|(_, other)| other.name.clone()).collect(),
            blocked: match self.verdict(id) {
                Verdict::Blocked(blocked) => Some(blocked),
                Verdict::Holds | Verdict::Well | Verdict::Free => None,
            },
        })
    }

    fn state(&self, id: PeerId) -> RegionState {
        let Some(peer) = self.peers.get(&id) else {
            return RegionState::NeverHeard;
        };
        match peer.sight(self.now, self.silence_max()) {
            _ if peer.broken == Some(Broken::Refused) => RegionState::Refused,
            Sight::Alive { gateway: true, .. } => RegionState::Up,
            Sight::Alive { gateway: false, .. } => RegionState::NoGateway,
            Sight::Silent if peer.declared => RegionState::DeclaredLost,
            Sight::Silent if peer.proof.proved() => RegionState::Dead,
            Sight::Silent if peer.lost => RegionState::Lost,
            Sight::Silent => RegionState::NeverHeard,
        }
    }
}

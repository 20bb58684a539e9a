//! How the regions are, as this service sees them: what operators and metrics are told.

use std::time::{Duration, SystemTime};

use isotherm_regions::{AdoptionBlocker, RegionState, RegionsCounters};
use isotherm_router::PeerId;

/// How the regions are now.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionsStatus {
    /// This region's name.
    pub name: String,
    /// Whether an Envoy of this region is connected, to this service or to a sibling that is heard.
    pub has_gateway: bool,
    /// Who may adopt this region's replicas, first choice first.
    pub successors: Vec<String>,
    /// The other regions, in the order of their names.
    pub peers: Vec<PeerState>,
    /// The other services of this region, in the order of the configuration.
    pub siblings: Vec<SiblingState>,
    /// What has happened since the start.
    pub counters: RegionsCounters,
    /// What was shared with siblings since the start.
    pub placements: PlacementCounts,
    /// This region's certificate; its default where links are not protected.
    pub certificate: CertificateState,
    /// Callers that were turned away since the start: no certificate or a wrong one, too many, or nonsense.
    pub handshakes_rejected: u64,
}

/// How another region is.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerState {
    /// What pools know it by.
    pub id: PeerId,
    /// Its name.
    pub name: String,
    /// Where its service listens.
    pub address: String,
    /// The Envoy cluster that leads to it.
    pub cluster: String,
    /// The link to it.
    pub link: LinkState,
    /// What that and its heartbeats make of it.
    pub state: RegionState,
    /// Round trip, smoothed.
    pub round_trip: Option<Duration>,
    /// How long ago its last heartbeat was asked for.
    pub heartbeat_age: Option<Duration>,
    /// The version of its software.
    pub version: Option<String>,
    /// How many replicas it has, by its record, in all pools.
    pub replicas: usize,
    /// How many of them are in this service's pools.
    pub adopted: usize,
    /// Other regions that say they hold its replicas.
    pub adopted_by: Vec<String>,
    /// While it is down: why its replicas are not adopted here.
    pub adoption_blocker: Option<AdoptionBlocker>,
}

/// How another service of this region is.
#[derive(Clone, Debug, PartialEq)]
pub struct SiblingState {
    /// Where it listens.
    pub address: String,
    /// The link to it.
    pub link: LinkState,
    /// Round trip of its last heartbeat.
    pub round_trip: Option<Duration>,
    /// How long ago its last heartbeat was asked for.
    pub heartbeat_age: Option<Duration>,
    /// Requests that wait there, in all pools, as it said last; zero where that is too long ago.
    pub queue: u32,
}

/// This region's certificate, and what became of changes of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateState {
    /// When it expires, where that is known.
    pub expires: Option<SystemTime>,
    /// Times that new files were loaded.
    pub loaded: u64,
    /// Times that new files were refused; the ones before stayed in use.
    pub rejected: u64,
}

/// Placements told to siblings, and heard from them. A message counts once for each sibling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCounts {
    /// Messages sent.
    pub sent: u64,
    /// Messages that were not, because the link was down or behind.
    pub dropped: u64,
    /// Messages received.
    pub received: u64,
}

/// The state of a link that this service dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It has not been up since the start.
    Dialling,
    /// It is up.
    Up,
    /// It is down, for a reason such as "connection refused"; it is dialled again and again.
    Unreachable(String),
    /// The other end lives and must not be used, for a reason such as "its certificate is not for eu.isotherm".
    Refused(String),
}

impl LinkState {
    /// A short name for metrics and tables.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Dialling => "dialling",
            Self::Up => "up",
            Self::Unreachable(_) => "unreachable",
            Self::Refused(_) => "refused",
        }
    }

    /// Why it is down, where it is.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Dialling | Self::Up => None,
            Self::Unreachable(why) | Self::Refused(why) => Some(why),
        }
    }
}

//! How the regions are, as this service sees them: what operators and metrics are told.

use std::time::Duration;

use isotherm_router::PeerId;

/// How the regions are now.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// This region's name.
    pub name: String,
    /// Whether an Envoy of this region is connected, to this service or to a sibling that is heard.
    pub gateway: bool,
    /// The other regions, in the order of their names.
    pub peers: Vec<PeerState>,
    /// The other services of this region, in the order of the configuration.
    pub siblings: Vec<SiblingState>,
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
    pub standing: Standing,
    /// Round trip, as measured with its last heartbeat.
    pub round_trip: Option<Duration>,
    /// How long ago its last heartbeat was asked for.
    pub heartbeat_age: Option<Duration>,
    /// Whether it had an Envoy connected when it was heard last.
    pub gateway: bool,
    /// How many replicas it has, by its record, in all pools.
    pub replicas: usize,
    /// How many of them this service has adopted.
    pub adopted: usize,
    /// Who may adopt them, first choice first.
    pub heirs: Vec<String>,
}

/// How another service of this region is.
#[derive(Clone, Debug, PartialEq)]
pub struct SiblingState {
    /// Where it listens.
    pub address: String,
    /// The link to it.
    pub link: LinkState,
    /// Round trip, as measured with its last heartbeat.
    pub round_trip: Option<Duration>,
    /// How long ago its last heartbeat was asked for.
    pub heartbeat_age: Option<Duration>,
    /// Requests that wait there, in all pools, as it said last.
    pub queue: u32,
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

/// What is made of another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing was heard of it since the start.
    NeverHeard,
    /// It is heard.
    Heard,
    /// It is heard, and has no Envoy: no requests can enter there.
    WithoutGateway,
    /// It is not heard any more; why is not known.
    Lost,
    /// It is dead: it is not heard, or has no Envoy, while its replicas answer.
    Dead,
    /// An operator has said that it is lost.
    DeclaredLost,
}

impl Standing {
    /// Every standing.
    pub const ALL: [Self; 6] = [
        Self::NeverHeard,
        Self::Heard,
        Self::WithoutGateway,
        Self::Lost,
        Self::Dead,
        Self::DeclaredLost,
    ];

    /// A short name for metrics and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverHeard => "never_heard",
            Self::Heard => "heard",
            Self::WithoutGateway => "without_gateway",
            Self::Lost => "lost",
            Self::Dead => "dead",
            Self::DeclaredLost => "declared_lost",
        }
    }
}

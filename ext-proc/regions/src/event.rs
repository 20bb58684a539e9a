//! What comes into a region's state machine, and what it wants done.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::message::{Heartbeat, Ping, PoolReplicas, RegionName, RegionRecord, Session};
use isotherm_router::{PeerId, PeerReport, Time};

/// What a service knows of the regions when it starts, or when its configuration changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionsConfig {
    /// This region's name.
    pub name: RegionName,
    /// Time between two pings.
    pub interval: Duration,
    /// Whether this region adopts others' replicas.
    pub adopt: bool,
    /// How long a region must have been well before it gets its replicas back.
    pub return_after: Duration,
    /// The version of the software, for people.
    pub version: Arc<str>,
    /// All other regions. The same number always means the same region.
    pub peers: Vec<(PeerId, RegionName)>,
}

/// Why a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkFailure {
    /// Nobody answers: connection refused, reset, timed out, or closed, also in the middle of the handshake.
    Unreachable,
    /// Somebody answers who must not be used: wrong certificate or name, another protocol. It lives.
    Refused,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The link that this service dials to a peer is up: the handshake is done and the peer's name is proved.
    LinkUp {
        /// Which peer.
        peer: PeerId,
        /// The link's number: new with each link.
        session: Session,
    },
    /// The link was lost, or one attempt to dial failed. To be told of *each* failed attempt.
    LinkDown {
        /// Which peer.
        peer: PeerId,
        /// Why.
        failure: LinkFailure,
        /// When this attempt to dial began.
        dial_started: Time,
    },
    /// A peer answered, on the link that this service dialled.
    Heartbeat {
        /// Which peer: by its certificate, not by what it says.
        peer: PeerId,
        /// What it said.
        heartbeat: Heartbeat,
    },
    /// A peer told its record, on the link that this service dialled.
    Record {
        /// Which peer: by its certificate, not by what it says.
        peer: PeerId,
        /// Its record.
        record: RegionRecord,
    },
    /// This region's own replicas, all pools; to be told at the start and with each change.
    LocalPools {
        /// The pools.
        pools: Vec<PoolReplicas>,
    },
    /// Whether this region's own gateway is connected.
    GatewayChanged {
        /// Whether it is.
        is_connected: bool,
    },
    /// Replicas of a peer were asked directly, as [`Effect::Watch`] wants.
    ReplicasProbed {
        /// Whose replicas.
        peer: PeerId,
        /// When they were asked.
        sent: Time,
        /// Whether any of them answered. One that has not answered after three intervals does not.
        any_answered: bool,
    },
    /// What the siblings (other services of this region) hold, all together.
    SiblingsAdopted {
        /// The regions whose replicas they hold.
        regions: BTreeSet<RegionName>,
    },
    /// Whether this service, among its siblings, is the one that writes its region's record. One without siblings is.
    RecordLeadership {
        /// Whether it is.
        is_leader: bool,
    },
    /// A sibling told what it has of this region's own record.
    SiblingRecord {
        /// Its record.
        record: RegionRecord,
    },
    /// The operator says that a region is lost, no part of it runs; or takes that back.
    DeclaredLost {
        /// Which region.
        peer: PeerId,
        /// Whether it is lost.
        is_lost: bool,
    },
    /// The configuration changed.
    Reconfigured(RegionsConfig),
    /// The service goes: it gives everything back.
    Shutdown,
}

/// What the driver must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask a peer, on the link that this service dialled.
    Ping {
        /// Which peer.
        peer: PeerId,
        /// With this.
        ping: Ping,
    },
    /// Drop the link that this service dialled, if it is up, and dial now, without waiting out a pause.
    Redial {
        /// Which peer.
        peer: PeerId,
    },
    /// A peer's pools were heard of: every pool's router is to know. Pools that are not named are gone.
    UpdatePeer {
        /// Which peer.
        peer: PeerId,
        /// Its pools, by the name of the model.
        pools: Vec<(Arc<str>, PeerReport)>,
        /// When the peer was asked: what was forwarded after that is not in the report.
        as_of: Time,
        /// The round trip to it, smoothed.
        round_trip: Duration,
    },
    /// A peer is not heard any more: every pool's router is to know.
    MarkPeerLost {
        /// Which peer.
        peer: PeerId,
    },
    /// Ask these replicas of a peer directly, now and with each interval: [`Event::Witness`]. Replaces an earlier list.
    ProbeReplicas {
        /// Whose replicas.
        peer: PeerId,
        /// Their addresses.
        addresses: Vec<Arc<str>>,
    },
    /// Ask them no more.
    StopProbing {
        /// Whose replicas.
        peer: PeerId,
    },
    /// Take these replicas of a peer as own ones from now on. Comes again, with all of them, when they change.
    Adopt {
        /// Whose replicas.
        peer: PeerId,
        /// All its pools.
        pools: Vec<PoolReplicas>,
    },
    /// Send nothing to a peer's replicas any more; what they are doing may end.
    Release {
        /// Whose replicas.
        peer: PeerId,
        /// Why.
        reason: ReleaseReason,
    },
    /// Keep a record, in place of an older one of the same region. This service's own is among them.
    StoreRecord {
        /// What to keep.
        record: Arc<RegionRecord>,
    },
}

/// Why replicas are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseReason {
    /// Their own region is well again.
    OwnerRecovered,
    /// Another region holds them too, and goes before this one. This should never happen.
    Conflict,
    /// This region cannot reach them any more.
    Unreachable,
    /// This region has no gateway any more.
    NoGateway,
    /// This service stood still for so long that others may have taken it for dead.
    Suspended,
    /// The configuration forbids it, or does not know the region any more.
    Configured,
    /// The service goes.
    Shutdown,
}

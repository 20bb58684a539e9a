//! Inputs and outputs of [`Regions`](crate::Regions): configuration, events and effects.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::message::{Heartbeat, Ping, PoolReplicas, RegionName, RegionRecord, Session};
use isotherm_router::{PeerId, PeerReport, Time};

/// Configuration of a service among regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionsConfig {
    /// Name of this region.
    pub name: RegionName,
    /// Time between two pings.
    pub interval: Duration,
    /// Whether this region adopts the replicas of dead regions.
    pub adopt: bool,
    /// Time that a region must be up before its replicas are returned.
    pub return_after: Duration,
    /// Version of the software, for operators.
    pub version: Arc<str>,
    /// All other regions. An id always means the same region.
    pub peers: Vec<(PeerId, RegionName)>,
}

/// Reason for a link that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkFailure {
    /// The peer does not answer: connection refused, reset, closed or timed out, also during the handshake.
    Unreachable,
    /// The peer runs and must not be used: a wrong certificate, name or protocol.
    Refused,
}

/// Input of the state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The handshake of the link that this service dialled succeeded. Each link has a new session.
    LinkUp(PeerId, Session),
    /// The link was lost, or an attempt to dial failed. The driver reports *each* failed attempt.
    LinkDown {
        /// Peer at the other end.
        peer: PeerId,
        /// Reason.
        failure: LinkFailure,
        /// Start of the attempt.
        dial_started: Time,
    },
    /// A heartbeat of a peer, as its certificate names it, arrived on the link that this service dialled.
    Heartbeat(PeerId, Heartbeat),
    /// A record of a peer, as its certificate names it, arrived on the link that this service dialled.
    Record(PeerId, RegionRecord),
    /// All pools of this region with their replicas, at the start and after each change.
    LocalPools(Vec<PoolReplicas>),
    /// The gateway of this region connected (`true`) or disconnected.
    GatewayChanged(bool),
    /// A round of probes that [`Effect::ProbeReplicas`] asked for has ended.
    ReplicasProbed {
        /// Owner of the replicas.
        peer: PeerId,
        /// Start of the round.
        sent: Time,
        /// Whether any replica answered within three intervals.
        any_answered: bool,
    },
    /// The owners of the replicas that the siblings have adopted, all siblings together.
    SiblingsAdopted(BTreeSet<RegionName>),
    /// Whether this service is the one of its siblings that writes the region's record. A service without siblings is.
    RecordLeadership(bool),
    /// A sibling sent its copy of this region's record.
    SiblingRecord(RegionRecord),
    /// The operator declares that no part of a region runs, or revokes that.
    DeclaredLost {
        /// Region in question.
        peer: PeerId,
        /// Whether it is lost.
        is_lost: bool,
    },
    /// The configuration changed.
    Reconfigured(RegionsConfig),
    /// The service shuts down and returns all adopted replicas.
    Shutdown,
}

/// Work for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send a ping on the link that this service dialled.
    Ping(PeerId, Ping),
    /// Drop the link that this service dialled, if it is up, and dial at once.
    Redial(PeerId),
    /// Pass a peer's reports to the routers of all pools. A pool without a report is lost.
    UpdatePeer {
        /// Sender of the reports.
        peer: PeerId,
        /// Reports by model.
        pools: Vec<(Arc<str>, PeerReport)>,
        /// Time of the ping. The reports do not count requests that were forwarded later.
        as_of: Time,
        /// Smoothed round trip.
        round_trip: Duration,
    },
    /// Tell the routers of all pools that a peer's heartbeats have stopped.
    MarkPeerLost(PeerId),
    /// Probe the replicas of a peer at these addresses now and once an interval, and report [`Event::ReplicasProbed`]. The list
    /// replaces an earlier one.
    ProbeReplicas(PeerId, Vec<Arc<str>>),
    /// Stop probing the replicas of a peer.
    StopProbing(PeerId),
    /// Add the replicas of a peer to this service's pools. Repeated with the whole list when the list changes.
    Adopt(PeerId, Vec<PoolReplicas>),
    /// Drain the adopted replicas of a peer and remove them.
    Release(PeerId, ReleaseReason),
    /// Persist a record in place of an older one of the same region.
    StoreRecord(Arc<RegionRecord>),
}

/// Reason for the return of adopted replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseReason {
    /// The owner is up again.
    OwnerRecovered,
    /// A region that goes first has adopted the replicas too. The adoption rule forbids it.
    Conflict,
    /// The replicas no longer answer this region.
    Unreachable,
    /// This region has no gateway.
    NoGateway,
    /// This service was suspended for so long that other regions may have taken it for dead.
    Suspended,
    /// The configuration forbids adoption, or no longer names the owner.
    Configured,
    /// The service shuts down.
    Shutdown,
}

/// Reason that prevents the adoption of a region that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptionBlocker {
    /// The configuration disables adoption.
    Disabled,
    /// This region has no gateway.
    NoGateway,
    /// This region has no record of the owner.
    NoRecord,
    /// The owner's death is not proved, or another region hears the owner.
    NotProvedDead,
    /// The replicas do not answer this region.
    ReplicasUnreachable,
    /// This region yields to another one.
    Yielded,
    /// The named region is not heard, its death is not proved, and it may have adopted the replicas.
    Unaccounted(RegionName),
    /// The named region has adopted the replicas.
    AdoptedBy(RegionName),
    /// The named region goes first.
    RegionAhead(RegionName),
}

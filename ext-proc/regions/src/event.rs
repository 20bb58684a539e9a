//! Inputs and outputs of [`Regions`](crate::Regions): configuration, events and effects.

use core::time::Duration;
use std::sync::Arc;

use super::message::{Heartbeat, Ping, RegionName};
use isotherm_router::{PeerId, PeerReport, Time};

/// Configuration of a service among regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionsConfig {
    /// Time between two pings, which the driver sends.
    pub interval: Duration,
    /// All other regions. An id always means the same region.
    pub peers: Vec<(PeerId, RegionName)>,
}

/// Input of the state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A ping has failed: no reply, no connection, or a refusal.
    LinkDown {
        /// Peer at the other end.
        peer: PeerId,
        /// Whether the peer runs and must not be used: a wrong certificate, name or protocol.
        is_refused: bool,
    },
    /// The reply to a ping, of a peer as its certificate names it.
    Heartbeat(PeerId, Ping, Heartbeat),
    /// The configuration changed.
    Reconfigured(RegionsConfig),
}

/// Work for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
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
}

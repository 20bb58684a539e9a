//! Replies to inbound requests: peers get the state of this region, siblings get this service's own state.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::RegionsDriver;
use super::{placements, scaling};
use crate::peering::{InboundHandler, Message};

/// Shortest time between two log lines of rejected links; all are counted.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

impl InboundHandler for RegionsDriver {
    fn on_message(&self, region: &Arc<str>, message: Message) -> Option<Message> {
        let is_sibling = **region == *self.identity.region();
        match message {
            Message::Ping => return Some(self.reply(is_sibling)),
            // Only siblings send placements.
            Message::Placements(placements) if is_sibling => placements::receive(self, placements),
            Message::Scaling(share) => {
                scaling::receive(self, (!is_sibling).then_some(&**region), share);
            }
            // Heartbeats are replies, which a caller does not send.
            Message::Placements(_) | Message::Heartbeat(_) => {}
        }
        None
    }

    fn on_rejected(&self, from: SocketAddr, reason: &str) {
        let now = self.clock().now();
        let mut core = self.lock();
        core.counters.peer_handshakes_rejected += 1;
        if core.next_warning <= now {
            core.next_warning = now.after(WARN_INTERVAL);
            tracing::warn!(%from, reason, "inbound link rejected");
        }
    }
}

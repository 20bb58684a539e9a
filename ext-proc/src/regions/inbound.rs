//! Replies to inbound requests: peers get the state of this region, siblings get this service's own state.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::RegionsDriver;
use super::{placements, scaling};
use crate::peering::{InboundHandler, Message};

/// Shortest time between two log lines of rejected links; all are counted.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

/// Handler of inbound requests, which does not keep the driver alive.
#[derive(Debug)]
pub(super) struct InboundLinks {
    driver: Weak<RegionsDriver>,
    region: Arc<str>,
    warned_at: Mutex<Option<Instant>>,
}

impl InboundLinks {
    pub(super) fn new(driver: &Arc<RegionsDriver>, region: &str) -> Self {
        Self {
            driver: Arc::downgrade(driver),
            region: region.into(),
            warned_at: Mutex::new(None),
        }
    }

    /// Whether [`WARN_INTERVAL`] has passed since the last log line of a rejected link.
    fn should_warn(&self) -> bool {
        let mut warned = self.warned_at.lock();
        let is_due = warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL);
        if is_due {
            *warned = Some(Instant::now());
        }
        is_due
    }
}

impl InboundHandler for InboundLinks {
    fn on_message(&self, region: &Arc<str>, message: Message) -> Option<Message> {
        let driver = self.driver.upgrade()?;
        let is_sibling = *region == self.region;
        match message {
            Message::Ping => return Some(driver.reply(is_sibling)),
            // Only siblings send placements.
            Message::Placements(placements) if is_sibling => {
                placements::receive(&driver, placements);
            }
            Message::Scaling(share) => {
                scaling::receive(&driver, (!is_sibling).then_some(&**region), share);
            }
            // Heartbeats are replies, which a caller does not send.
            Message::Placements(_) | Message::Heartbeat(_) => {}
        }
        None
    }

    fn on_rejected(&self, from: SocketAddr, reason: &str) {
        if let Some(driver) = self.driver.upgrade() {
            driver.lock().counters.peer_handshakes_rejected += 1;
        }
        if self.should_warn() {
            tracing::warn!(%from, reason, "inbound link rejected");
        }
    }
}

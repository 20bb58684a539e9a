//! Answers those who call: peers with heartbeats and this region's record, siblings with what is this service's own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use isotherm_regions::Session;

use super::RegionsDriver;
use super::placements;
use crate::peering::{Caller, Message, MessageHandler};

/// How often a caller that was turned away is logged at most; all are counted.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

/// What the acceptor of links hands over to. It does not keep the service.
#[derive(Debug)]
pub(super) struct InboundLinks {
    shared: Weak<RegionsDriver>,
    own: Arc<str>,
    /// When a caller that was turned away was last logged.
    warned: Mutex<Option<Instant>>,
}

impl InboundLinks {
    pub(super) fn new(shared: &Arc<RegionsDriver>, own: &str) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            own: own.into(),
            warned: Mutex::new(None),
        }
    }

    /// Whoever knocks a thousand times a second must not fill the log.
    fn may_warn(&self) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let may = warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL);
        if may {
            *warned = Some(Instant::now());
        }
        may
    }

    fn respond(&self, caller: &Caller, session: Session, said: Message) -> Vec<Message> {
        let Some(shared) = self.shared.upgrade() else {
            return Vec::new();
        };
        if session != caller.session {
            return Vec::new();
        }
        if caller.region == self.own {
            return match said {
                Message::Ping(ping) => shared.answer_sibling(&ping),
                Message::Placements(placed) => {
                    placements::receive(&shared, placed);
                    Vec::new()
                }
                // Who calls asks; records and heartbeats are answers.
                Message::Heartbeat(_) | Message::Record(_) => Vec::new(),
            };
        }
        let table = shared.pool_registry().table();
        let peer_table = table.peer_table();
        let peer = peer_table.and_then(|peer_table| peer_table.named(&caller.region));
        match (peer, said) {
            (Some(peer), Message::Ping(ping)) => shared.answer_peer(peer.id, &ping),
            // As above, and placements are between siblings.
            (
                _,
                Message::Ping(_)
                | Message::Heartbeat(_)
                | Message::Record(_)
                | Message::Placements(_),
            ) => Vec::new(),
        }
    }
}

impl MessageHandler for InboundLinks {
    fn on_open(&self, caller: &Caller) {
        tracing::debug!(region = %caller.region, "region calls");
    }

    async fn on_message(&self, caller: &Caller, session: Session, said: Message) -> Vec<Message> {
        self.respond(caller, session, said)
    }

    fn on_close(&self, caller: &Caller) {
        tracing::debug!(region = %caller.region, "region calls no more");
    }

    fn on_rejected(&self, from: Option<SocketAddr>, why: &str) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().turned_away += 1;
        }
        if self.may_warn() {
            tracing::warn!(
                from = from.map(|from| from.to_string()),
                why,
                "a caller was turned away"
            );
        }
    }
}

//! The links of this service: one to each peer, one to each sibling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_router::PeerId;
use tokio::sync::mpsc;

use super::sibling::Sibling;
use super::status::LinkState;
use crate::clock::Clock;
use crate::config::{Address, PeerConfig};
use crate::peering::{
    LinkClient, LinkError, LinkEvent, LinkTimeouts, LocalIdentity, Message, PeerEndpoint,
};

/// Other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkKey {
    Peer(PeerId),
    Sibling(Address),
}

/// All links. Dropping this cuts them.
#[derive(Debug)]
pub(super) struct Links {
    identity: Arc<LocalIdentity>,
    clock: Clock,
    events: mpsc::Sender<(LinkKey, LinkEvent)>,
    heartbeat: Option<Duration>,
    pub(super) peers: BTreeMap<PeerId, PeerLink>,
    pub(super) siblings: Vec<SiblingLink>,
}

#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) config: PeerConfig,
    pub(super) state: LinkState,
    client: LinkClient,
}

#[derive(Debug)]
pub(super) struct SiblingLink {
    pub(super) address: Address,
    pub(super) state: LinkState,
    pub(super) sibling: Sibling,
    pub(super) client: LinkClient,
}

impl Links {
    /// Creates an empty set, whose links report to `events`.
    pub(super) fn new(
        identity: Arc<LocalIdentity>,
        clock: Clock,
        events: mpsc::Sender<(LinkKey, LinkEvent)>,
    ) -> Self {
        Self {
            identity,
            clock,
            events,
            heartbeat: None,
            peers: BTreeMap::new(),
            siblings: Vec::new(),
        }
    }

    /// Calls these peers and siblings, and drops all others. Unchanged links stay up.
    pub(super) fn apply(
        &mut self,
        peers: &[(PeerId, PeerConfig)],
        siblings: &[Address],
        heartbeat: Duration,
    ) {
        let timeouts = LinkTimeouts::of(heartbeat);
        if self.heartbeat.replace(heartbeat) != Some(heartbeat) {
            self.clear();
        }
        self.identity
            .set_peers(peers.iter().map(|(_, peer)| peer.name.as_str()));
        let mut before = std::mem::take(&mut self.peers);
        for (id, config) in peers {
            let kept = before.remove(id);
            let kept = kept.filter(|link| link.config.address == config.address);
            let link = kept.unwrap_or_else(|| PeerLink {
                config: config.clone(),
                state: LinkState::Dialling,
                client: self.call(&config.name, &config.address, timeouts, LinkKey::Peer(*id)),
            });
            let config = config.clone();
            self.peers.insert(*id, PeerLink { config, ..link });
        }
        let mut before = std::mem::take(&mut self.siblings);
        for address in siblings {
            let kept = before.iter().position(|link| link.address == *address);
            let link = match kept {
                Some(kept) => before.swap_remove(kept),
                None => SiblingLink {
                    address: address.clone(),
                    state: LinkState::Dialling,
                    sibling: Sibling::default(),
                    client: self.call(
                        self.identity.region(),
                        address,
                        timeouts,
                        LinkKey::Sibling(address.clone()),
                    ),
                },
            };
            self.siblings.push(link);
        }
    }

    pub(super) fn clear(&mut self) {
        self.peers.clear();
        self.siblings.clear();
    }

    /// Sends a message to a peer. A message that cannot be sent counts as lost on the way.
    pub(super) fn send_to_peer(&self, peer: PeerId, message: &Message) {
        if let Some(link) = self.peers.get(&peer)
            && let Err(error) = link.client.send(message)
        {
            tracing::debug!(region = link.config.name, %error, "message not sent");
        }
    }

    pub(super) fn sibling(&mut self, address: &Address) -> Option<&mut SiblingLink> {
        self.siblings
            .iter_mut()
            .find(|link| link.address == *address)
    }

    fn call(
        &self,
        region: &str,
        address: &Address,
        timeouts: LinkTimeouts,
        key: LinkKey,
    ) -> LinkClient {
        let peer = PeerEndpoint {
            region: region.to_owned(),
            address: address.to_string(),
        };
        LinkClient::spawn(
            Arc::clone(&self.identity),
            peer,
            timeouts,
            self.clock,
            (key, self.events.clone()),
        )
    }
}

impl LinkState {
    /// Applies an event of the link to `peer`, and logs a change.
    pub(super) fn update(&mut self, peer: &str, event: &LinkEvent) {
        let next = match event {
            LinkEvent::Heartbeat(..) => Self::Up,
            LinkEvent::Down { error } if matches!(error, LinkError::Refused(_)) => {
                Self::Refused(error.to_string())
            }
            LinkEvent::Down { error } => Self::Unreachable(error.to_string()),
        };
        if next.as_ref() != self.as_ref() {
            match next.reason() {
                None => tracing::info!(to = peer, "link up"),
                Some(reason) => tracing::warn!(to = peer, reason, "link down"),
            }
        }
        *self = next;
    }
}

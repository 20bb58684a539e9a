//! The links that this service dials: one to each peer region, one to each sibling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::LinkFailure;
use isotherm_router::PeerId;
use tokio::sync::mpsc;

use super::sibling::Sibling;
use super::status::LinkState;
use crate::config::{Address, PeerConfig};
use crate::peering::{
    Dialer, LinkError, LinkEvent, LinkTimeouts, LocalIdentity, Message, PeerEndpoint, SendError,
};

/// Which link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkKey {
    /// To a peer region.
    Peer(PeerId),
    /// To another service of this region.
    Sibling(Address),
}

/// All links. Dropping this cuts them.
#[derive(Debug)]
pub(super) struct Links {
    own: Arc<LocalIdentity>,
    events: mpsc::Sender<(LinkKey, LinkEvent)>,
    heartbeat: Option<Duration>,
    pub(super) peers: BTreeMap<PeerId, PeerLink>,
    pub(super) siblings: Vec<SiblingLink>,
}

/// The link to a peer region.
#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) config: PeerConfig,
    pub(super) state: LinkState,
    dialer: Dialer,
}

/// The link to another service of this region, and what is known of it.
#[derive(Debug)]
pub(super) struct SiblingLink {
    pub(super) address: Address,
    pub(super) state: LinkState,
    pub(super) sibling: Sibling,
    dialer: Dialer,
}

impl Links {
    /// No links yet; what happens to those that will be dialled goes to `events`.
    pub(super) fn new(own: Arc<LocalIdentity>, events: mpsc::Sender<(LinkKey, LinkEvent)>) -> Self {
        Self {
            own,
            events,
            heartbeat: None,
            peers: BTreeMap::new(),
            siblings: Vec::new(),
        }
    }

    /// Dials these from now on, and no others. Links that stay as they are stay up.
    pub(super) fn apply(
        &mut self,
        peers: &[(PeerId, PeerConfig)],
        siblings: &[Address],
        heartbeat: Duration,
    ) {
        let pace = LinkTimeouts::of(heartbeat);
        if self.heartbeat.replace(heartbeat) != Some(heartbeat) {
            self.clear();
        }
        self.own
            .set_peers(peers.iter().map(|(_, peer)| peer.name.as_str()));
        let mut before = std::mem::take(&mut self.peers);
        for (id, config) in peers {
            let kept = before.remove(id);
            let kept = kept.filter(|link| link.config.address == config.address);
            let link = kept.unwrap_or_else(|| PeerLink {
                config: config.clone(),
                state: LinkState::Dialling,
                dialer: self.dial(&config.name, &config.address, pace, LinkKey::Peer(*id)),
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
                    dialer: self.dial(
                        self.own.region(),
                        address,
                        pace,
                        LinkKey::Sibling(address.clone()),
                    ),
                },
            };
            self.siblings.push(link);
        }
    }

    /// Cuts all links.
    pub(super) fn clear(&mut self) {
        self.peers.clear();
        self.siblings.clear();
    }

    /// Says something to a peer. What cannot be said is as good as lost on the way.
    pub(super) fn tell_peer(&self, peer: PeerId, said: &Message) {
        if let Some(link) = self.peers.get(&peer)
            && let Err(error) = link.dialer.send(said)
        {
            tracing::debug!(region = link.config.name, %error, "not said");
        }
    }

    /// Cuts the link to a peer and dials at once.
    pub(super) fn redial(&mut self, peer: PeerId) {
        if let Some(link) = self.peers.get_mut(&peer) {
            if link.state == LinkState::Up {
                link.state = LinkState::Dialling;
            }
            link.dialer.redial();
        }
    }

    /// The link to a sibling.
    pub(super) fn sibling(&mut self, address: &Address) -> Option<&mut SiblingLink> {
        self.siblings
            .iter_mut()
            .find(|link| link.address == *address)
    }

    fn dial(&self, region: &str, address: &Address, pace: LinkTimeouts, key: LinkKey) -> Dialer {
        let peer = PeerEndpoint {
            region: region.to_owned(),
            address: address.to_string(),
        };
        Dialer::spawn(Arc::clone(&self.own), peer, pace, key, self.events.clone())
    }
}

impl SiblingLink {
    /// Says something.
    pub(super) fn tell(&self, said: &Message) -> Result<(), SendError> {
        self.dialer.send(said)
    }
}

impl LinkState {
    /// What became of the link to `whom`; changes are logged.
    pub(super) fn note(&mut self, whom: &str, event: &LinkEvent) {
        let next = match event {
            LinkEvent::Up { .. } => Self::Up,
            LinkEvent::Down { error, .. } => match error {
                LinkError::Refused(_) => Self::Refused(error.to_string()),
                LinkError::Unreachable(_) | LinkError::Local(_) => {
                    Self::Unreachable(error.to_string())
                }
            },
            LinkEvent::Message { .. } => return,
        };
        if next.as_str() != self.as_str() {
            match next.why() {
                None => tracing::info!(to = whom, "link up"),
                Some(why) => tracing::warn!(to = whom, why, "link down"),
            }
        }
        *self = next;
    }
}

/// What a link that is down says of the other side; `None` where the fault is this machine's own, which says nothing.
pub(super) fn broken(error: &LinkError) -> Option<LinkFailure> {
    match error {
        LinkError::Unreachable(_) => Some(LinkFailure::Unreachable),
        LinkError::Refused(_) => Some(LinkFailure::Refused),
        LinkError::Local(_) => None,
    }
}

//! The links of this service: one to each peer, one to each sibling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use isotherm_router::{PeerId, Time};

use super::RegionsDriver;
use super::heard::HeardService;
use super::status::{LinkState, RegionState};
use crate::config::{Address, PeerConfig};
use crate::peering::{LinkClient, LinkError, LinkEvent, LinkTimeouts, PeerEndpoint};

/// Other end of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkKey {
    Peer(PeerId),
    /// The sibling at an address.
    Sibling(Address),
}

/// All links. Dropping this cuts them.
#[derive(Debug, Default)]
pub(super) struct Links {
    heartbeat: Option<Duration>,
    links: BTreeMap<LinkKey, Link>,
}

/// A link to another service, and the last heartbeat from it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) endpoint: PeerEndpoint,
    pub(super) state: LinkState,
    pub(super) heard: HeardService,
    client: LinkClient,
}

impl Links {
    /// Calls these peers and siblings, and drops all others. Unchanged links stay up. The links report to `driver`.
    pub(super) fn apply(
        &mut self,
        driver: &RegionsDriver,
        peers: &[(PeerId, PeerConfig)],
        siblings: &[Address],
        heartbeat: Duration,
    ) {
        if self.heartbeat.replace(heartbeat) != Some(heartbeat) {
            self.clear();
        }
        let names = peers.iter().map(|(_, peer)| peer.name.as_str());
        driver.identity.set_peers(names);
        let endpoint = |region: &str, address: &Address| PeerEndpoint {
            region: region.to_owned(),
            address: address.clone(),
        };
        let peers = peers.iter().map(|(id, config)| {
            let endpoint = endpoint(&config.name, &config.address);
            (LinkKey::Peer(*id), endpoint)
        });
        let own = driver.identity.region();
        let siblings = siblings.iter().map(|address| {
            let key = LinkKey::Sibling(address.clone());
            (key, endpoint(own, address))
        });
        let mut before = std::mem::take(&mut self.links);
        let links = peers.chain(siblings).map(|(key, endpoint)| {
            let kept = before.remove(&key);
            let kept = kept.filter(|link| link.endpoint == endpoint);
            let link = kept.unwrap_or_else(|| Link::call(driver, &key, endpoint, heartbeat));
            (key, link)
        });
        self.links = links.collect();
    }

    pub(super) fn clear(&mut self) {
        self.links.clear();
    }

    pub(super) fn get_mut(&mut self, key: &LinkKey) -> Option<&mut Link> {
        self.links.get_mut(key)
    }

    /// The links to peers, in order of id.
    pub(super) fn peers(&self) -> impl Iterator<Item = (PeerId, &Link)> {
        self.links.iter().filter_map(|(key, link)| match key {
            LinkKey::Peer(id) => Some((*id, link)),
            LinkKey::Sibling(_) => None,
        })
    }

    /// The links to siblings, in order of address.
    pub(super) fn siblings(&self) -> impl Iterator<Item = &Link> {
        let links = self.links.iter();
        let siblings = links.filter(|(key, _)| matches!(key, LinkKey::Sibling(_)));
        siblings.map(|(_, link)| link)
    }

    /// Sends an encoded message to every service. A message that cannot be sent counts as lost on the way.
    pub(super) fn send_to_all(&self, message: &Bytes) {
        for link in self.links.values() {
            link.send(message.clone());
        }
    }
}

impl Link {
    fn call(
        driver: &RegionsDriver,
        key: &LinkKey,
        endpoint: PeerEndpoint,
        heartbeat: Duration,
    ) -> Self {
        let (this, key) = (driver.this.clone(), key.clone());
        let client = LinkClient::spawn(
            Arc::clone(&driver.identity),
            endpoint.clone(),
            LinkTimeouts::of(heartbeat),
            driver.clock(),
            move |event| {
                if let Some(driver) = this.upgrade() {
                    driver.on_link_event(&key, event);
                }
            },
        );
        Self {
            endpoint,
            state: LinkState::Dialling,
            heard: HeardService::default(),
            client,
        }
    }

    /// Sends an encoded message. Returns whether the link took it.
    pub(super) fn send(&self, message: Bytes) -> bool {
        self.client.send(message)
    }

    /// Applies an event to the state of the link, and logs a change. Returns whether the link was up.
    pub(super) fn update(&mut self, event: &LinkEvent) -> bool {
        let next = match event {
            Ok(_) => LinkState::Up,
            Err(error @ LinkError::Refused(_)) => LinkState::Refused(error.to_string()),
            Err(error) => LinkState::Unreachable(error.to_string()),
        };
        if next.as_ref() != self.state.as_ref() {
            let PeerEndpoint { region, address } = &self.endpoint;
            match next.reason() {
                None => tracing::info!(region, %address, "link up"),
                Some(reason) => tracing::warn!(region, %address, reason, "link down"),
            }
        }
        std::mem::replace(&mut self.state, next) == LinkState::Up
    }

    /// The state of the region at the other end.
    pub(super) fn region_state(&self, now: Time, silence_max: Duration) -> RegionState {
        match self.heard.fresh(now, silence_max) {
            _ if matches!(self.state, LinkState::Refused(_)) => RegionState::Refused,
            None if self.heard.as_of.is_none() => RegionState::NeverHeard,
            None => RegionState::Lost,
            Some(heartbeat) if heartbeat.has_gateway => RegionState::Up,
            Some(_) => RegionState::NoGateway,
        }
    }
}

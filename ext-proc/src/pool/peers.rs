//! The regions that this service knows: its own, and its peers by the identities that the routing cores use.
//!
//! One peer_table holds for every pool. A peer keeps its identity for as long as its name is known, also through reloads
//! that move it in the file: the cores know it by nothing else.

use std::sync::Arc;

use isotherm_router::PeerId;

/// The most peers that one service has.
pub const PEERS_MAX: usize = 1_000;

/// Another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntry {
    /// What the routing cores know it by.
    pub id: PeerId,
    /// Its name.
    pub name: Arc<str>,
    /// The Envoy cluster that leads there.
    pub cluster: Arc<str>,
}

/// The regions of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTable {
    own: Arc<str>,
    peers: Vec<PeerEntry>,
    next_id: u16,
}

impl PeerTable {
    /// The regions that a configuration names: this one, and each peer with its Envoy cluster. Peers that were known
    /// `before` keep their identities.
    #[must_use]
    pub fn new<'a>(
        own: &str,
        peers: impl IntoIterator<Item = (&'a str, &'a str)>,
        before: Option<&Self>,
    ) -> Self {
        let mut peer_table = Self {
            own: own.into(),
            peers: Vec::new(),
            next_id: before.map_or(0, |before| before.next_id),
        };
        for (name, cluster) in peers.into_iter().take(PEERS_MAX) {
            let known = before.and_then(|before| before.named(name));
            let id = match known {
                Some(known) => known.id,
                None => {
                    let id = PeerId(peer_table.next_id);
                    // 65,000 changes of name within one life of the service do not happen.
                    peer_table.next_id = peer_table.next_id.wrapping_add(1);
                    id
                }
            };
            peer_table.peers.push(PeerEntry {
                id,
                name: name.into(),
                cluster: cluster.into(),
            });
        }
        peer_table
    }

    /// The name of this region.
    #[must_use]
    pub fn own(&self) -> &Arc<str> {
        &self.own
    }

    /// Every peer, in the order of the configuration.
    #[must_use]
    pub fn peers(&self) -> &[PeerEntry] {
        &self.peers
    }

    /// The peer with this identity.
    #[must_use]
    pub fn get(&self, id: PeerId) -> Option<&PeerEntry> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// The peer with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&PeerEntry> {
        self.peers.iter().find(|peer| *peer.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_keeps_its_identity_through_reloads_and_nobody_gets_that_of_another() {
        let first = PeerTable::new("us", [("eu", "region-eu"), ("asia", "region-asia")], None);
        let asia = first.named("asia").unwrap().id;
        let second = PeerTable::new(
            "us",
            [("africa", "region-africa"), ("asia", "a")],
            Some(&first),
        );
        assert_eq!(second.named("asia").unwrap().id, asia);
        assert_eq!(&*second.get(asia).unwrap().cluster, "a");
        let africa = second.named("africa").unwrap().id;
        assert!(first.get(africa).is_none());
        assert!(second.named("eu").is_none());
    }
}

//! The regions that the service knows: its own, and its peers by the ids that the routers use.
//!
//! All pools share one table. A peer keeps its id while the configuration names it, also when a reload moves it within
//! the file: the routers know a peer only by its id.

use std::sync::Arc;

use isotherm_router::PeerId;

use crate::config::peer_cluster;

/// Another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntry {
    /// Id of the region in the routers.
    pub id: PeerId,
    /// Name of the region.
    pub name: Arc<str>,
    /// Envoy cluster that leads to the region.
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
    /// Builds the table of region `own` and its peers. A peer in `before` keeps its id.
    pub fn new<'a>(
        own: &str,
        peers: impl IntoIterator<Item = &'a str>,
        before: Option<&Self>,
    ) -> Self {
        let mut next_id = before.map_or(0, |before| before.next_id);
        let entries = peers.into_iter().map(|name| {
            let known = before.and_then(|before| before.named(name));
            let id = known.map_or_else(
                || {
                    let id = PeerId(next_id);
                    // 65,000 changes of name within one life of the service do not happen.
                    next_id = next_id.wrapping_add(1);
                    id
                },
                |known| known.id,
            );
            PeerEntry {
                id,
                name: name.into(),
                cluster: peer_cluster(name).into(),
            }
        });
        let peers = entries.collect();
        Self {
            own: own.into(),
            peers,
            next_id,
        }
    }

    /// Name of this region.
    pub fn own(&self) -> &Arc<str> {
        &self.own
    }

    /// Peers in the order of the configuration.
    pub fn peers(&self) -> &[PeerEntry] {
        &self.peers
    }

    /// Looks a peer up by its id.
    pub fn get(&self, id: PeerId) -> Option<&PeerEntry> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// Looks a peer up by its name.
    pub fn named(&self, name: &str) -> Option<&PeerEntry> {
        self.peers.iter().find(|peer| *peer.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_keeps_its_id_through_reloads_and_no_other_peer_gets_it() {
        let first = PeerTable::new("us", ["eu", "asia"], None);
        let asia = first.named("asia").unwrap().id;
        let second = PeerTable::new("us", ["africa", "asia"], Some(&first));
        assert_eq!(second.named("asia").unwrap().id, asia);
        assert_eq!(&*second.get(asia).unwrap().cluster, "region-asia");
        let africa = second.named("africa").unwrap().id;
        assert!(first.get(africa).is_none());
        assert!(second.named("eu").is_none());
    }
}

//! Rows of peer regions: what each needs and has, as it told last.
//!
//! Every region solves the program of all regions and applies its own row, so there is no leader. A peer that has not been heard for
//! a while is either cut off or down. Its clients may come here, so its demand still counts, and of its replicas only the fewest.
//! After one interval its clients have arrived or not, which the demand of this region shows; then the peer counts no more.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use isotherm_router::Time;

use crate::demand::finite;
use crate::{PeerSample, RegionRow};

/// The most peers.
const PEERS_MAX: usize = 256;
/// Pools of a peer that are kept.
const POOLS_MAX: usize = 1_000;
/// Time after which a peer counts as unheard.
const HEARD_MAX: Duration = Duration::from_secs(60);
/// Time after which a peer is forgotten.
const PEER_AGE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Peers, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerTable {
    peers: BTreeMap<String, Peer>,
}

#[derive(Clone, Debug)]
struct Peer {
    heard: Time,
    rows: BTreeMap<String, RegionRow>,
}

impl PeerTable {
    /// Takes what a peer told.
    pub(crate) fn hear(&mut self, now: Time, sample: PeerSample) {
        self.peers
            .retain(|_, peer| now.since(peer.heard) <= PEER_AGE_MAX);
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&sample.region) {
            return;
        }
        let rows = sample
            .rows
            .into_iter()
            .take(POOLS_MAX)
            .map(|(pool, row)| (pool, sanitized(row)));
        let peer = Peer {
            heard: now,
            rows: rows.collect(),
        };
        self.peers.insert(sample.region, peer);
    }

    /// Regions in the order that all of them use: by name.
    fn names<'a>(&'a self, own: &'a str) -> BTreeSet<&'a str> {
        self.peers.keys().map(String::as_str).chain([own]).collect()
    }

    /// Index of this region.
    pub(crate) fn own_index(&self, own: &str) -> usize {
        self.names(own)
            .iter()
            .position(|name| *name == own)
            .unwrap_or_default()
    }

    /// Rows of one pool, with the indexes of their regions.
    pub(crate) fn rows(
        &self,
        now: Time,
        own: &str,
        pool: &str,
        interval: Duration,
    ) -> Vec<(usize, RegionRow)> {
        let names = self.names(own);
        let rows = names.iter().enumerate().filter_map(|(index, name)| {
            let peer = self.peers.get(*name).filter(|_| *name != own)?;
            let row = peer.rows.get(pool).filter(|row| row.capacity > 0.0)?;
            let age = now.since(peer.heard);
            if age > interval {
                return None;
            }
            let is_heard = age <= HEARD_MAX;
            let fixed = RegionRow {
                replicas: row.min,
                max: row.min,
                ..*row
            };
            Some((index, if is_heard { *row } else { fixed }))
        });
        rows.collect()
    }
}

fn sanitized(row: RegionRow) -> RegionRow {
    RegionRow {
        demand: finite(row.demand),
        capacity: finite(row.capacity),
        max: row.max.max(row.min),
        ..row
    }
}

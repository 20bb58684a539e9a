//! From a prefix's hash to its node.
//!
//! Many small tables instead of a large one: a hash table grows by hashing everything again, and with a million
//! nodes that is a pause of tens of milliseconds. A shard's is a fraction of one.

use hashbrown::HashTable;

use super::node::{NodeId, Nodes};

/// How many tables.
const SHARDS: usize = 256;

/// From a prefix's hash to its node.
#[derive(Debug)]
pub(super) struct Table {
    shards: Vec<HashTable<NodeId>>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
        }
    }
}

impl Table {
    #[inline]
    pub(super) fn find(&self, nodes: &Nodes, hash: u64) -> Option<NodeId> {
        let key = spread(hash);
        self.shards
            .get(shard(key))?
            .find(key, |id| nodes.get(*id).is_some_and(|n| n.hash == hash))
            .copied()
    }

    /// Enters a node that is not in it.
    pub(super) fn insert(&mut self, nodes: &Nodes, hash: u64, id: NodeId) {
        let key = spread(hash);
        if let Some(shard) = self.shards.get_mut(shard(key)) {
            shard.insert_unique(key, id, |id| {
                nodes.get(*id).map_or(0, |node| spread(node.hash))
            });
        }
    }

    pub(super) fn remove(&mut self, hash: u64, id: NodeId) {
        let key = spread(hash);
        if let Some(shard) = self.shards.get_mut(shard(key))
            && let Ok(found) = shard.find_entry(key, |other| *other == id)
        {
            found.remove();
        }
    }
}

/// A header's hashes are only as good as whoever wrote it: spread them over all bits.
const fn spread(hash: u64) -> u64 {
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// The table itself uses the lowest and the highest bits.
const fn shard(key: u64) -> usize {
    (key >> 44) as usize % SHARDS
}

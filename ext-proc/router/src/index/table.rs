//! From a prefix's hash to its node.
//!
//! Many small tables instead of a large one: a hash table grows by hashing everything again, and with a million
//! nodes that is a pause of tens of milliseconds. A shard's is a fraction of one.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::node::{NodeId, Nodes};

/// How many tables.
const SHARDS: usize = 256;

/// What became of a search that may insert.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// The node was there.
    There(NodeId),
    /// It was made.
    Inserted(NodeId),
    /// It could not be made.
    NoRoom,
}

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

    /// The node of a hash; where there is none, what `create` makes is entered. One search for both.
    pub(super) fn find_or_insert(
        &mut self,
        hash: u64,
        nodes: &mut Nodes,
        create: impl FnOnce(&mut Nodes) -> Option<NodeId>,
    ) -> Found {
        let key = spread(hash);
        let Some(shard) = self.shards.get_mut(shard(key)) else {
            return Found::NoRoom;
        };
        let same = |id: &NodeId| nodes.get(*id).is_some_and(|node| node.hash == hash);
        let key_of = |id: &NodeId| nodes.get(*id).map_or(0, |node| spread(node.hash));
        match shard.entry(key, same, key_of) {
            Entry::Occupied(there) => Found::There(*there.get()),
            Entry::Vacant(vacant) => create(nodes).map_or(Found::NoRoom, |id| {
                vacant.insert(id);
                Found::Inserted(id)
            }),
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

//! The hash table from block hash to node.
//!
//! An open-addressing table with eight bytes per place: a node's number and half of its key. The table grows without reading
//! any node, and in many small shards, so that no growth is a pause. Two secret numbers mix the hashes, so that no client can
//! choose prompts that collide. `docs/design/prefix-index.md` has the rejected tables.

use super::node::{NodeId, Nodes};
use super::shard::Shard;
use super::slab::NONE;

const SHARDS: usize = 256;

/// Nodes by block hash.
#[derive(Debug)]
pub(super) struct Table {
    mixer: HashMixer,
    shards: Box<[Shard; SHARDS]>,
}

impl Table {
    /// An empty table. The seed determines the secret numbers.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            mixer: HashMixer::new(seed),
            shards: Box::new(core::array::from_fn(|_| Shard::default())),
        }
    }

    #[inline]
    pub(super) fn find(&self, nodes: &Nodes, hash: u64) -> Option<NodeId> {
        let key = self.mixer.key(hash);
        let matches = |id| is_of(nodes, id, hash);
        let found = self.shards.get(key.shard())?.find(key.tag, matches);
        found.ok().map(|(_, id)| id)
    }

    /// The node that [`Self::find`] would return, very rarely a wrong one, without a read of the node; [`NONE`] if there is none.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> NodeId {
        let key = self.mixer.key(hash);
        let shard = self.shards.get(key.shard());
        let found = shard.and_then(|shard| shard.find(key.tag, |_| true).ok());
        found.map_or(NONE, |(_, id)| id)
    }

    /// The key of a hash, for callers that need it twice.
    #[inline]
    pub(super) fn key(&self, hash: u64) -> Key {
        self.mixer.key(hash)
    }

    /// Prefetches the bucket where a search begins. Several prefetches overlap; several searches would not.
    #[inline]
    pub(super) fn prefetch(&self, key: Key) -> u32 {
        let shard = self.shards.get(key.shard());
        shard.map_or(0, |shard| shard.prefetch(key.tag))
    }

    /// The node of a hash, created by `create` if there is none, and whether it is new. One search serves both. `None` when no
    /// node could be created.
    #[inline]
    pub(super) fn find_or_insert(
        &mut self,
        key: Key,
        hash: u64,
        nodes: &mut Nodes,
        create: impl FnOnce(&mut Nodes) -> Option<NodeId>,
    ) -> Option<(NodeId, bool)> {
        let shard = self.shards.get_mut(key.shard())?;
        shard.make_room();
        match shard.find(key.tag, |id| is_of(nodes, id, hash)) {
            Ok((_, id)) => Some((id, false)),
            Err(free) => {
                let id = create(nodes)?;
                shard.insert(free, key.tag, id);
                Some((id, true))
            }
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, hash: u64, id: NodeId) {
        let key = self.mixer.key(hash);
        if let Some(shard) = self.shards.get_mut(key.shard()) {
            shard.remove(key.tag, id);
        }
    }
}

/// Mixes hashes with two secret numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashMixer {
    mask: u64,
    factor: u64,
}

impl HashMixer {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            mask: mixed(seed),
            factor: mixed(!seed) | 1,
        }
    }

    /// Both halves of the product, folded. Each bit of the hash reaches each bit of the result.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the other half is folded in"
    )]
    pub(super) fn mix(self, hash: u64) -> u64 {
        let product = u128::from(hash ^ self.mask) * u128::from(self.factor);
        product as u64 ^ (product >> 64) as u64
    }

    #[inline]
    fn key(self, hash: u64) -> Key {
        Key::of(self.mix(hash))
    }
}

/// The last step of `SplitMix64`, a bijection.
const fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A mixed hash, cut into shard and tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The half that a place keeps; never 0, which marks a free place.
    pub(super) tag: u32,
    shard: u8,
}

impl Key {
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is kept, and the highest byte"
    )]
    pub(super) fn of(mixed: u64) -> Self {
        Self {
            tag: (mixed as u32).max(1),
            shard: (mixed >> 56) as u8,
        }
    }

    pub(super) const fn shard(self) -> usize {
        self.shard as usize
    }
}

#[inline]
fn is_of(nodes: &Nodes, id: NodeId, hash: u64) -> bool {
    nodes.get(id).is_some_and(|node| node.hash == hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::node::Entry;
    use super::*;
    use crate::replica_index::ReplicaIndex;

    fn make(nodes: &mut Nodes, hash: u64) -> Option<NodeId> {
        let entry = Entry {
            stamp: 1,
            children: 0,
            slot: ReplicaIndex(0),
            span: 1,
        };
        nodes.create(hash, NONE, entry, 0)
    }

    proptest! {
        #[test]
        fn it_is_a_map(ops in prop::collection::vec((any::<bool>(), 0_u64..400), 0..600), seed: u64) {
            let (mut table, mut nodes) = (Table::new(seed), Nodes::default());
            let mut model: BTreeMap<u64, NodeId> = BTreeMap::new();
            for (insert, hash) in ops {
                if insert {
                    match table.find_or_insert(table.key(hash), hash, &mut nodes, |nodes| make(nodes, hash)) {
                        Some((id, false)) => prop_assert_eq!(model.get(&hash), Some(&id)),
                        Some((id, true)) => prop_assert!(model.insert(hash, id).is_none()),
                        None => prop_assert!(false, "the table grows"),
                    }
                } else if let Some(id) = model.remove(&hash) {
                    table.remove(hash, id);
                    prop_assert!(nodes.remove(id, ReplicaIndex(0)).is_some_and(|removed| removed.is_node_removed));
                }
                prop_assert_eq!(table.find(&nodes, hash), model.get(&hash).copied());
            }
            for hash in 0..400 {
                prop_assert_eq!(table.find(&nodes, hash), model.get(&hash).copied());
            }
        }
    }

    #[test]
    fn where_hashes_are_depends_on_the_seed() {
        let hashes = 0..100_000_u64;
        let one = HashMixer::new(1);
        // Hashes that collide under this seed.
        let first_bucket = |mixer: HashMixer, hash| {
            let key = mixer.key(hash);
            (key.shard, key.tag % 4)
        };
        let chosen: Vec<u64> = hashes
            .filter(|hash| first_bucket(one, *hash) == first_bucket(one, 0))
            .collect();
        assert!(chosen.len() > 50);
        for seed in 2..10 {
            let other = HashMixer::new(seed);
            let met = chosen
                .iter()
                .filter(|hash| first_bucket(other, **hash) == first_bucket(other, 0));
            assert!(met.count() < 8, "{seed}");
        }
    }
}

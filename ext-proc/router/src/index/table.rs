//! From a prefix's hash to its node.
//!
//! An open table of eight bytes a place: a node's number and half of its key. So a search reads one cache line for a prefix
//! that is not there and two for one that is (the second is its node's, which whoever asks reads anyway), and a table
//! grows without a look at any node: those lie all over the memory, and were a third of what an insertion cost.
//!
//! Many small tables instead of a large one: growing enters everything again, and with a million nodes that is a pause of
//! tens of milliseconds. A shard's is a fraction of one.
//!
//! Rejected: `hashbrown`, which needs a line more for each search, and all nodes when it grows.

use super::node::{NodeId, Nodes};
use super::slab::NONE;

/// How many tables.
const SHARDS: usize = 256;
/// Places in a table that is not empty, at least.
const PLACES_MIN: usize = 8;

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
    shards: Vec<Shard>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }
}

impl Table {
    #[inline]
    pub(super) fn find(&self, nodes: &Nodes, hash: u64) -> Option<NodeId> {
        let key = spread(hash);
        let shard = self.shards.get(shard_of(key))?;
        let at = shard.find(tag_of(key), |id| is_of(nodes, id, hash)).ok()?;
        shard.places.get(at).map(|place| place.id)
    }

    /// What [`Self::find`] finds, without a look at the node: nothing only where there is nothing, and a wrong one very
    /// rarely.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> NodeId {
        let key = spread(hash);
        let Some(shard) = self.shards.get(shard_of(key)) else {
            return NONE;
        };
        let found = shard.find(tag_of(key), |_| true).ok();
        found
            .and_then(|at| shard.places.get(at))
            .map_or(NONE, |place| place.id)
    }

    /// Reads where a search would begin. That has no use but to fetch it: several of these overlap, where several searches
    /// would each wait for the memory.
    #[inline]
    pub(super) fn peek(&self, hash: u64) -> u32 {
        let key = spread(hash);
        let shard = self.shards.get(shard_of(key));
        let place = shard.and_then(|shard| shard.places.get(shard.home(tag_of(key))));
        place.map_or(0, |place| place.tag)
    }

    /// The node of a hash; where there is none, what `create` makes is entered. One search for both.
    pub(super) fn find_or_insert(
        &mut self,
        hash: u64,
        nodes: &mut Nodes,
        create: impl FnOnce(&mut Nodes) -> Option<NodeId>,
    ) -> Found {
        let key = spread(hash);
        let tag = tag_of(key);
        let Some(shard) = self.shards.get_mut(shard_of(key)) else {
            return Found::NoRoom;
        };
        shard.make_room();
        match shard.find(tag, |id| is_of(nodes, id, hash)) {
            Ok(at) => match shard.places.get(at) {
                Some(place) => Found::There(place.id),
                None => Found::NoRoom,
            },
            Err(free) => match create(nodes) {
                Some(id) => {
                    shard.enter(free, Place { tag, id });
                    Found::Inserted(id)
                }
                None => Found::NoRoom,
            },
        }
    }

    pub(super) fn remove(&mut self, hash: u64, id: NodeId) {
        let key = spread(hash);
        if let Some(shard) = self.shards.get_mut(shard_of(key))
            && let Ok(at) = shard.find(tag_of(key), |other| other == id)
        {
            shard.remove(at);
        }
    }
}

/// One table: each node is at its home or behind it, with no free place between.
#[derive(Debug, Default)]
struct Shard {
    /// A power of two of them, of which a quarter is free; or none.
    places: Vec<Place>,
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The lower half of the node's key.
    tag: u32,
    /// The node, or [`NONE`].
    id: NodeId,
}

impl Place {
    const FREE: Self = Self { tag: 0, id: NONE };
}

impl Shard {
    /// Where a node should be.
    #[inline]
    const fn home(&self, tag: u32) -> usize {
        tag as usize & self.mask()
    }

    #[inline]
    const fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    /// The place of a node, or else the free one that ended the search.
    #[inline]
    fn find(&self, tag: u32, is_it: impl Fn(NodeId) -> bool) -> Result<usize, usize> {
        let mut at = self.home(tag);
        while let Some(place) = self.places.get(at) {
            if place.id == NONE {
                break;
            }
            if place.tag == tag && is_it(place.id) {
                return Ok(at);
            }
            at = (at + 1) & self.mask();
        }
        Err(at)
    }

    fn enter(&mut self, free: usize, place: Place) {
        if let Some(there) = self.places.get_mut(free) {
            *there = place;
            self.used += 1;
        }
    }

    /// Sees to it that a quarter is free once another one is entered: searches end at a free place.
    #[inline]
    fn make_room(&mut self) {
        if (self.used + 1) * 4 > self.places.len() * 3 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.places.len() * 2).max(PLACES_MIN);
        let old = core::mem::replace(&mut self.places, vec![Place::FREE; places]);
        self.used = 0;
        for place in old.into_iter().filter(|place| place.id != NONE) {
            if let Err(free) = self.find(place.tag, |_| false) {
                self.enter(free, place);
            }
        }
    }

    /// Frees a place, and moves those behind it up that would not be found any more.
    fn remove(&mut self, at: usize) {
        let mut hole = at;
        let mut next = at;
        loop {
            next = (next + 1) & self.mask();
            let Some(place) = self.places.get(next).copied() else {
                return;
            };
            if place.id == NONE {
                break;
            }
            let from_home = next.wrapping_sub(self.home(place.tag)) & self.mask();
            let from_hole = next.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.set(hole, place);
                hole = next;
            }
        }
        self.set(hole, Place::FREE);
        self.used -= 1;
    }

    fn set(&mut self, at: usize, place: Place) {
        if let Some(there) = self.places.get_mut(at) {
            *there = place;
        }
    }
}

#[inline]
fn is_of(nodes: &Nodes, id: NodeId, hash: u64) -> bool {
    nodes.get(id).is_some_and(|node| node.hash == hash)
}

/// A header's hashes are only as good as whoever wrote it: spread them over all bits.
const fn spread(hash: u64) -> u64 {
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// What a place keeps of a key.
#[expect(clippy::cast_possible_truncation, reason = "half of it is kept")]
const fn tag_of(key: u64) -> u32 {
    key as u32
}

/// Which table; these bits are not in the tag.
const fn shard_of(key: u64) -> usize {
    (key >> 44) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::node::Entry;
    use super::*;
    use crate::slots::Slot;

    fn make(nodes: &mut Nodes, hash: u64) -> Option<NodeId> {
        let entry = Entry {
            stamp: 1,
            children: 0,
            slot: Slot(0),
        };
        nodes.create(hash, NONE, 1, entry, 0)
    }

    proptest! {
        /// Hashes that all belong to one table, and to few homes of it, some with equal tags.
        #[test]
        fn it_is_a_map_however_its_keys_collide(
            ops in prop::collection::vec((any::<bool>(), 0_u64..40, 0_u64..3), 0..300),
        ) {
            let (mut table, mut nodes) = (Table::default(), Nodes::default());
            let mut model: BTreeMap<u64, NodeId> = BTreeMap::new();
            for (insert, low, high) in ops {
                let hash = unspread((high << 60) | (low % 7) | (low << 20));
                if insert {
                    match table.find_or_insert(hash, &mut nodes, |nodes| make(nodes, hash)) {
                        Found::There(id) => prop_assert_eq!(model.get(&hash), Some(&id)),
                        Found::Inserted(id) => prop_assert!(model.insert(hash, id).is_none()),
                        Found::NoRoom => prop_assert!(false, "there is room"),
                    }
                } else if let Some(id) = model.remove(&hash) {
                    table.remove(hash, id);
                    prop_assert!(nodes.remove_entry(id, Slot(0)).is_some());
                }
                for (hash, id) in &model {
                    prop_assert_eq!(table.find(&nodes, *hash), Some(*id));
                }
                prop_assert_eq!(table.find(&nodes, hash).is_some(), model.contains_key(&hash));
            }
        }
    }

    /// The hash that is spread to this key.
    fn unspread(key: u64) -> u64 {
        // The inverse of the factor, modulo 2^64.
        let inverse = (0..6).fold(1_u64, |x, _| {
            x.wrapping_mul(2_u64.wrapping_sub(x.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        });
        let mixed = key ^ (key >> 29) ^ (key >> 58);
        let folded = mixed.wrapping_mul(inverse);
        folded ^ (folded >> 32)
    }

    #[test]
    fn a_place_takes_eight_bytes() {
        assert_eq!(size_of::<Place>(), 8);
        assert_eq!(
            spread(unspread(0x1234_5678_9abc_def0)),
            0x1234_5678_9abc_def0
        );
    }
}

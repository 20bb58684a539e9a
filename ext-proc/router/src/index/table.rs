//! From a prefix's hash to its node.
//!
//! An open table of eight bytes a place: a node's number and half of its key. So a search reads one cache line for a prefix
//! that is not there and two for one that is (the second is its node's, which whoever asks reads anyway), and a table
//! grows without a look at any node: those lie all over the memory, and were a third of what an insertion cost.
//!
//! The places of one cache line are one bucket, all compared at once: which of them holds a node is not worth a branch, and a
//! branch that waits for the memory and goes the wrong way stops all reads behind it.
//!
//! Many small tables instead of a large one: growing enters everything again, and with a million nodes that is a pause of
//! tens of milliseconds. A shard's is a fraction of one.
//!
//! Hashes come from prompts and from headers, so whoever writes those could choose many that meet in one bucket. They are
//! mixed with two numbers that nobody knows outside of this process; no decision depends on which these are.
//!
//! Rejected: `hashbrown`, which needs a line more for each search, and all nodes when it grows; single places searched one by
//! one, which cross into a second line every fourth time; a bucket for several prefixes of one chain in a row, since all
//! that fork off behind the same system prompt would meet in one.

use super::node::{NodeId, Nodes};
use super::slab::NONE;

/// How many tables.
const SHARDS: usize = 256;
/// Places in a bucket: a cache line.
const PLACES: usize = 8;

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
    spread: Spread,
    shards: Box<[Shard; SHARDS]>,
}

impl Table {
    /// An empty one, whose places nobody can foretell who does not know the seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            spread: Spread::new(seed),
            shards: Box::new(core::array::from_fn(|_| Shard::default())),
        }
    }

    #[inline]
    pub(super) fn find(&self, nodes: &Nodes, hash: u64) -> Option<NodeId> {
        let key = self.spread.key(hash);
        let is_it = |id| is_of(nodes, id, hash);
        let found = self.shards.get(key.shard())?.find(key.tag, is_it);
        found.ok().map(|(_, id)| id)
    }

    /// What [`Self::find`] finds, without a look at the node: nothing only where there is nothing, and a wrong one very
    /// rarely.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> NodeId {
        let key = self.spread.key(hash);
        let shard = self.shards.get(key.shard());
        let found = shard.and_then(|shard| shard.find(key.tag, |_| true).ok());
        found.map_or(NONE, |(_, id)| id)
    }

    /// Reads where a search would begin. That has no use but to fetch it: several of these overlap, where several searches
    /// would each wait for the memory.
    #[inline]
    pub(super) fn peek(&self, hash: u64) -> u32 {
        let key = self.spread.key(hash);
        let shard = self.shards.get(key.shard());
        let bucket = shard.and_then(|shard| shard.buckets.get(shard.home(key.tag)));
        bucket.map_or(0, |bucket| bucket.tags[0])
    }

    /// The node of a hash; where there is none, what `create` makes is entered. One search for both.
    #[inline]
    pub(super) fn find_or_insert(
        &mut self,
        hash: u64,
        nodes: &mut Nodes,
        create: impl FnOnce(&mut Nodes) -> Option<NodeId>,
    ) -> Found {
        let key = self.spread.key(hash);
        let Some(shard) = self.shards.get_mut(key.shard()) else {
            return Found::NoRoom;
        };
        shard.make_room();
        match shard.find(key.tag, |id| is_of(nodes, id, hash)) {
            Ok((_, id)) => Found::There(id),
            Err(free) => match create(nodes) {
                Some(id) => {
                    shard.put(free, key.tag, id);
                    shard.used += 1;
                    Found::Inserted(id)
                }
                None => Found::NoRoom,
            },
        }
    }

    pub(super) fn remove(&mut self, hash: u64, id: NodeId) {
        let key = self.spread.key(hash);
        if let Some(shard) = self.shards.get_mut(key.shard()) {
            shard.remove(key.tag, id);
        }
    }
}

/// Spreads hashes over all bits of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    mask: u64,
    factor: u64,
}

impl Spread {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            mask: mixed(seed),
            factor: mixed(!seed) | 1,
        }
    }

    /// Both halves of the product, folded: each bit of the hash reaches each bit of the key, in a way that the two numbers
    /// decide.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is cut off comes in again with the other half"
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

/// A bijection that leaves no bit where it was (the last step of `SplitMix64`).
const fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[derive(Clone, Copy, Debug)]
struct Key {
    /// What a place keeps of it; never [`FREE`].
    tag: u32,
    shard: u8,
}

impl Key {
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is kept, and the highest byte"
    )]
    fn of(mixed: u64) -> Self {
        Self {
            tag: (mixed as u32).max(1),
            shard: (mixed >> 56) as u8,
        }
    }

    const fn shard(self) -> usize {
        self.shard as usize
    }
}

/// The tag of a place that is free.
const FREE: u32 = 0;

/// One table: each node is in its home bucket, or in the first one behind it that had room.
#[derive(Debug, Default)]
struct Shard {
    /// A power of two of them, with a quarter of their places free; or none.
    buckets: Vec<Bucket>,
    used: usize,
}

/// A cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Bucket {
    tags: [u32; PLACES],
    ids: [NodeId; PLACES],
}

/// A place: which bucket, and which one of its places.
#[derive(Clone, Copy, Debug)]
struct At {
    bucket: usize,
    place: usize,
}

/// Some places of a bucket, a bit for each.
#[derive(Clone, Copy, Debug)]
struct Which(u32);

impl Iterator for Which {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros() as usize;
        if self.0 == 0 {
            return None;
        }
        self.0 &= self.0 - 1;
        Some(place)
    }
}

impl Bucket {
    const EMPTY: Self = Self {
        tags: [FREE; PLACES],
        ids: [NONE; PLACES],
    };

    /// Which places have this tag, and which ones are free. All are compared, and at the same time.
    #[inline]
    fn look(&self, tag: u32) -> (Which, Which) {
        let mut both = 0;
        for (place, other) in self.tags.iter().enumerate() {
            let has_it = u32::from(*other == tag);
            let is_free = u32::from(*other == FREE) << PLACES;
            both |= (has_it | is_free) << place;
        }
        (Which(both & ((1 << PLACES) - 1)), Which(both >> PLACES))
    }

    fn is_full(&self) -> bool {
        !self.tags.contains(&FREE)
    }

    #[inline]
    fn id(&self, place: usize) -> NodeId {
        self.ids.get(place).copied().unwrap_or(NONE)
    }
}

impl Shard {
    /// In which bucket a node should be.
    #[inline]
    const fn home(&self, tag: u32) -> usize {
        tag as usize & self.mask()
    }

    #[inline]
    const fn mask(&self) -> usize {
        self.buckets.len().wrapping_sub(1)
    }

    /// How far behind its home a node is in this bucket.
    const fn strayed(&self, tag: u32, bucket: usize) -> usize {
        bucket.wrapping_sub(self.home(tag)) & self.mask()
    }

    /// The place of a node and the node, or else the free place that ended the search.
    #[inline]
    fn find(&self, tag: u32, is_it: impl Fn(NodeId) -> bool) -> Result<(At, NodeId), At> {
        let mut at = self.home(tag);
        while let Some(bucket) = self.buckets.get(at) {
            let (having, mut free) = bucket.look(tag);
            for place in having {
                let id = bucket.id(place);
                if is_it(id) {
                    return Ok((At { bucket: at, place }, id));
                }
            }
            if let Some(place) = free.next() {
                return Err(At { bucket: at, place });
            }
            at = (at + 1) & self.mask();
        }
        // There is no bucket yet.
        Err(At {
            bucket: at,
            place: 0,
        })
    }

    #[inline]
    fn put(&mut self, at: At, tag: u32, id: NodeId) {
        if let Some(bucket) = self.buckets.get_mut(at.bucket)
            && let Some(other) = bucket.tags.get_mut(at.place)
            && let Some(there) = bucket.ids.get_mut(at.place)
        {
            (*other, *there) = (tag, id);
        }
    }

    /// Sees to it that a quarter is free once another one is entered: searches end at a free place.
    #[inline]
    fn make_room(&mut self) {
        if (self.used + 1) * 4 > self.buckets.len() * PLACES * 3 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let buckets = (self.buckets.len() * 2).max(1);
        let old = core::mem::replace(&mut self.buckets, vec![Bucket::EMPTY; buckets]);
        for bucket in old {
            for (tag, id) in bucket.tags.into_iter().zip(bucket.ids) {
                if tag != FREE
                    && let Err(free) = self.find(tag, |_| false)
                {
                    self.put(free, tag, id);
                }
            }
        }
    }

    /// Frees a node's place. A full bucket that gets a free one ends searches that went on before: what lies behind it for
    /// want of room moves up, and so on behind that one.
    fn remove(&mut self, tag: u32, id: NodeId) {
        let Ok((mut hole, _)) = self.find(tag, |other| other == id) else {
            return;
        };
        while let Some((from, tag, id)) = self.behind(hole.bucket) {
            self.put(hole, tag, id);
            hole = from;
        }
        self.put(hole, FREE, NONE);
        self.used -= 1;
    }

    /// Something behind a full bucket that belongs there or further in front.
    fn behind(&self, full: usize) -> Option<(At, u32, NodeId)> {
        let mut bucket = full;
        while self.buckets.get(bucket)?.is_full() {
            bucket = (bucket + 1) & self.mask();
            let between = bucket.wrapping_sub(full) & self.mask();
            let there = self.buckets.get(bucket)?;
            let places = there.tags.iter().zip(there.ids).enumerate();
            for (place, (tag, id)) in places {
                if *tag != FREE && self.strayed(*tag, bucket) >= between {
                    return Some((At { bucket, place }, *tag, id));
                }
            }
        }
        None
    }
}

/// A table of its own that does not grow large: numbers by keys that were mixed.
#[derive(Debug, Default)]
pub(super) struct Places(Shard);

impl Places {
    #[inline]
    pub(super) fn find(&self, mixed: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.0.find(Key::of(mixed).tag, is_it);
        found.ok().map(|(_, id)| id)
    }

    /// Enters one that is not there.
    pub(super) fn enter(&mut self, mixed: u64, id: u32) {
        let Key { tag, .. } = Key::of(mixed);
        self.0.make_room();
        if let Err(free) = self.0.find(tag, |_| false) {
            self.0.put(free, tag, id);
            self.0.used += 1;
        }
    }

    pub(super) fn remove(&mut self, mixed: u64, id: u32) {
        self.0.remove(Key::of(mixed).tag, id);
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
        #[test]
        fn it_is_a_map(ops in prop::collection::vec((any::<bool>(), 0_u64..400), 0..600), seed: u64) {
            let (mut table, mut nodes) = (Table::new(seed), Nodes::default());
            let mut model: BTreeMap<u64, NodeId> = BTreeMap::new();
            for (insert, hash) in ops {
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
                prop_assert_eq!(table.find(&nodes, hash), model.get(&hash).copied());
            }
            for hash in 0..400 {
                prop_assert_eq!(table.find(&nodes, hash), model.get(&hash).copied());
            }
        }

        /// Tags that all belong to few buckets, some of them equal.
        #[test]
        fn a_shard_is_one_however_its_tags_collide(
            ops in prop::collection::vec((prop::bool::weighted(0.6), 0_u32..3, 0_u32..3, 0_u32..40), 0..400),
        ) {
            let mut shard = Shard::default();
            let mut model: BTreeMap<NodeId, u32> = BTreeMap::new();
            for (insert, home, high, id) in ops {
                let there = model.remove(&id);
                if let Some(tag) = there {
                    shard.remove(tag, id);
                } else if insert {
                    let tag = (home.wrapping_sub(1) & 0xff) | (high << 20) | 0x100;
                    shard.make_room();
                    let free = shard.find(tag, |_| false).unwrap_err();
                    shard.put(free, tag, id);
                    shard.used += 1;
                    model.insert(id, tag);
                }
                prop_assert_eq!(shard.used, model.len());
                for (id, tag) in &model {
                    let found = shard.find(*tag, |other| other == *id);
                    prop_assert!(found.is_ok_and(|(_, found)| found == *id));
                }
                let in_use = |bucket: &Bucket| bucket.tags.iter().filter(|tag| **tag != FREE).count();
                prop_assert_eq!(shard.buckets.iter().map(in_use).sum::<usize>(), model.len());
            }
        }
    }

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!(size_of::<Bucket>(), 64);
    }

    #[test]
    fn where_hashes_are_depends_on_the_seed() {
        let hashes = 0..100_000_u64;
        let one = Spread::new(1);
        // Chosen to meet in one bucket, by somebody who knows this seed.
        let home = |spread: Spread, hash| {
            let key = spread.key(hash);
            (key.shard, key.tag % 4)
        };
        let chosen: Vec<u64> = hashes
            .filter(|hash| home(one, *hash) == home(one, 0))
            .collect();
        assert!(chosen.len() > 50);
        for seed in 2..10 {
            let other = Spread::new(seed);
            let met = chosen
                .iter()
                .filter(|hash| home(other, **hash) == home(other, 0));
            assert!(met.count() < 8, "{seed}");
        }
    }
}

//! A hash table of node numbers by tag, in buckets of one cache line.
//!
//! A tag is half of a key. Several nodes may have the same tag, so the caller confirms a candidate. A node lies in the first
//! bucket of its tag, or in the next bucket with a free place. All places of a bucket are compared at once, without a
//! branch for each: a mispredicted branch that waits for memory would stop the reads behind it.

use super::node::NodeId;
use super::slab::NONE;

/// Places per bucket, which fill a cache line.
const PLACES: usize = 8;
/// Tag of a free place.
const FREE: u32 = 0;

/// Node numbers by tag.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Buckets, a power of two in number, with a quarter of their places free; or none.
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

#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceIndex {
    bucket: usize,
    place: usize,
}

/// A set of places of a bucket, one bit each.
#[derive(Clone, Copy, Debug)]
struct PlaceMask(u32);

impl Iterator for PlaceMask {
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

    /// The places with this tag, and the free places. All places are compared at the same time.
    #[inline]
    fn compare(&self, tag: u32) -> (PlaceMask, PlaceMask) {
        let mut both = 0;
        for (place, other) in self.tags.iter().enumerate() {
            let has_it = u32::from(*other == tag);
            let is_free = u32::from(*other == FREE) << PLACES;
            both |= (has_it | is_free) << place;
        }
        (
            PlaceMask(both & ((1 << PLACES) - 1)),
            PlaceMask(both >> PLACES),
        )
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
    /// The bucket where a search for this tag begins.
    #[inline]
    const fn first_bucket(&self, tag: u32) -> usize {
        tag as usize & self.mask()
    }

    #[inline]
    const fn mask(&self) -> usize {
        self.buckets.len().wrapping_sub(1)
    }

    const fn distance(&self, tag: u32, bucket: usize) -> usize {
        bucket.wrapping_sub(self.first_bucket(tag)) & self.mask()
    }

    /// The place of a node and the node, or the free place that ended the search.
    #[inline]
    pub(super) fn find(
        &self,
        tag: u32,
        matches: impl Fn(NodeId) -> bool,
    ) -> Result<(PlaceIndex, NodeId), PlaceIndex> {
        let mut at = self.first_bucket(tag);
        while let Some(bucket) = self.buckets.get(at) {
            let (matching, mut free) = bucket.compare(tag);
            for place in matching {
                let id = bucket.id(place);
                if matches(id) {
                    return Ok((PlaceIndex { bucket: at, place }, id));
                }
            }
            if let Some(place) = free.next() {
                return Err(PlaceIndex { bucket: at, place });
            }
            at = (at + 1) & self.mask();
        }
        // There is no bucket yet.
        Err(PlaceIndex {
            bucket: at,
            place: 0,
        })
    }

    #[inline]
    fn free_for(&self, tag: u32) -> PlaceIndex {
        let mut bucket = self.first_bucket(tag);
        loop {
            let current = self.buckets.get(bucket);
            match current.map(|current| current.compare(FREE).0.next()) {
                Some(None) => bucket = (bucket + 1) & self.mask(),
                Some(Some(place)) => return PlaceIndex { bucket, place },
                None => return PlaceIndex { bucket, place: 0 },
            }
        }
    }

    /// Reads the bucket where a search begins.
    #[inline]
    pub(super) fn prefetch(&self, tag: u32) -> u32 {
        let bucket = self.buckets.get(self.first_bucket(tag));
        bucket.map_or(0, |bucket| bucket.tags[0])
    }

    /// Inserts a number at the free place that ended its search, after [`Self::make_room`].
    #[inline]
    pub(super) fn insert(&mut self, free: PlaceIndex, tag: u32, id: NodeId) {
        self.put(free, tag, id);
        self.used += 1;
    }

    #[inline]
    fn put(&mut self, at: PlaceIndex, tag: u32, id: NodeId) {
        if let Some(bucket) = self.buckets.get_mut(at.bucket)
            && let Some(other) = bucket.tags.get_mut(at.place)
            && let Some(current) = bucket.ids.get_mut(at.place)
        {
            (*other, *current) = (tag, id);
        }
    }

    /// Grows unless a quarter of the places stays free after one insertion: searches end at a free place.
    #[inline]
    pub(super) fn make_room(&mut self) {
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
                if tag != FREE {
                    self.put(self.free_for(tag), tag, id);
                }
            }
        }
    }

    /// Removes a node. A free place in a full bucket would end searches too early, so a displaced node moves into it.
    pub(super) fn remove(&mut self, tag: u32, id: NodeId) {
        let mut at = self.first_bucket(tag);
        while let Some(bucket) = self.buckets.get(at) {
            let (mut matching, free) = bucket.compare(tag);
            if let Some(place) = matching.find(|place| bucket.id(*place) == id) {
                let hole = PlaceIndex { bucket: at, place };
                let hole = if free.0 == 0 {
                    self.fill_hole(hole)
                } else {
                    hole
                };
                self.put(hole, FREE, NONE);
                self.used -= 1;
                return;
            }
            if free.0 != 0 {
                return;
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Fills the hole of a full bucket with a displaced node, repeatedly. Returns the place that is free in the end.
    #[inline(never)]
    fn fill_hole(&mut self, mut hole: PlaceIndex) -> PlaceIndex {
        while let Some((from, tag, id)) = self.displaced_after(hole.bucket) {
            self.put(hole, tag, id);
            hole = from;
        }
        hole
    }

    /// A node behind a full bucket whose search begins at that bucket or before it.
    fn displaced_after(&self, full: usize) -> Option<(PlaceIndex, u32, NodeId)> {
        let mut bucket = full;
        while self.buckets.get(bucket)?.is_full() {
            bucket = (bucket + 1) & self.mask();
            let between = bucket.wrapping_sub(full) & self.mask();
            let current = self.buckets.get(bucket)?;
            let places = current.tags.iter().zip(current.ids).enumerate();
            for (place, (tag, id)) in places {
                if *tag != FREE && self.distance(*tag, bucket) >= between {
                    return Some((PlaceIndex { bucket, place }, *tag, id));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Tags that share few buckets, some of them equal.
        #[test]
        fn a_shard_is_one_however_its_tags_collide(
            ops in prop::collection::vec((prop::bool::weighted(0.6), 0_u32..3, 0_u32..3, 0_u32..40), 0..400),
        ) {
            let mut shard = Shard::default();
            let mut model: BTreeMap<NodeId, u32> = BTreeMap::new();
            for (insert, first_bucket, high, id) in ops {
                let current = model.remove(&id);
                if let Some(tag) = current {
                    shard.remove(tag, id);
                } else if insert {
                    let tag = (first_bucket.wrapping_sub(1) & 0xff) | (high << 20) | 0x100;
                    shard.make_room();
                    let free = shard.find(tag, |_| false).unwrap_err();
                    shard.insert(free, tag, id);
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
}

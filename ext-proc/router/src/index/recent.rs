//! A bounded map that evicts the least recently used entry.
//!
//! Entries lie side by side and link to their neighbours in the order of use by number. The table is the index's own. A
//! search reads two cache lines; a use writes to two more without waiting for them.
//!
//! Every decision reads and writes two of these maps. The crate `lru` allocates each entry on its own, so one use follows four
//! dependent cache misses, and decisions took a tenth longer with it (`cargo xtask bench core decision`). `lru-slab` has no map from
//! key to entry. A walk over all entries at a replica's restart took longer than any other event, so values name its process.

use core::hint::black_box;

use super::shard::Shard;
use super::table::{HashMixer, Key};

const NO_ENTRY: u32 = u32::MAX;

/// Shards of the table: each grows by itself, so that no growth is a pause.
const SHARDS: usize = 64;

/// Entries that a map keeps at most when its bound shrinks below what it holds, so that no change of the bound is a pause.
const KEPT_MAX: usize = 4_096;

/// Memory that the table takes for an entry, in bytes: a place of 8 bytes, where at least three of eight are in use.
const PLACE_BYTES: usize = 24;

pub(super) trait RecencyKey: Copy + Eq {
    /// The key as one number, mixed with secret numbers.
    fn mixed(&self, mixed: &HashMixer) -> u64;
}

/// The most recently used entries.
#[derive(Debug)]
pub(super) struct RecencyMap<K, V> {
    mixed: HashMixer,
    shards: Box<[Shard; SHARDS]>,
    entries: Vec<Entry<K, V>>,
    /// First free entry; each free entry names the next one.
    free: u32,
    newest: u32,
    oldest: u32,
    most: usize,
    len: usize,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    newer: u32,
    older: u32,
}

impl<K: RecencyKey, V: Copy> RecencyMap<K, V> {
    /// An empty map that takes at most so many bytes, and has room for one entry at least. The seed decides where entries lie
    /// in memory.
    pub(super) fn new(bytes_max: usize, seed: u64) -> Self {
        Self::with_most(Self::most_in(bytes_max), HashMixer::new(seed))
    }

    /// An empty map for at most so many entries. The seed decides where entries lie in memory.
    pub(super) fn with_entries(most: usize, seed: u64) -> Self {
        Self::with_most(most, HashMixer::new(seed))
    }

    /// Number of entries in so many bytes.
    const fn most_in(bytes_max: usize) -> usize {
        bytes_max / (size_of::<Entry<K, V>>() + PLACE_BYTES)
    }

    fn with_most(most: usize, mixed: HashMixer) -> Self {
        Self {
            mixed,
            shards: Box::new(core::array::from_fn(|_| Shard::default())),
            entries: Vec::new(),
            free: NO_ENTRY,
            newest: NO_ENTRY,
            oldest: NO_ENTRY,
            most: most.clamp(1, NO_ENTRY as usize),
            len: 0,
        }
    }

    /// Replaces the bound in bytes. Memory beyond it is given back; of the entries, some of the newest stay then.
    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        let mut resized = Self::with_most(Self::most_in(bytes_max), self.mixed);
        if self.entries.len() <= resized.most {
            self.most = resized.most;
            return;
        }
        let mut kept = Vec::new();
        let mut at = self.newest;
        while kept.len() < resized.most.min(KEPT_MAX)
            && let Some(entry) = self.entries.get(at as usize)
        {
            kept.push((entry.key, entry.value));
            at = entry.older;
        }
        for (key, value) in kept.into_iter().rev() {
            resized.put(key, value);
        }
        *self = resized;
    }

    /// The value of a key. Does not count as a use.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        if self.len == 0 {
            return None;
        }
        let at = self.find(key)?;
        self.entries.get(at as usize).map(|entry| &entry.value)
    }

    /// Prefetches the bucket where a search begins.
    pub(super) fn prefetch(&self, key: &K) {
        let key = self.table_key(key);
        let shard = self.shards.get(key.shard() % SHARDS);
        black_box(shard.map(|shard| shard.prefetch(key.tag)));
    }

    /// Inserts a value and returns the previous one.
    pub(super) fn put(&mut self, key: K, value: V) -> Option<V> {
        if let Some(at) = self.find(&key) {
            let entry = self.entries.get_mut(at as usize)?;
            let before = core::mem::replace(&mut entry.value, value);
            if at != self.newest {
                self.unlink(at);
                self.link(at);
            }
            return Some(before);
        }
        if self.len >= self.most {
            self.remove(self.oldest);
        }
        let at = self.place(key, value)?;
        let key = self.table_key(&key);
        if let Some(shard) = self.shards.get_mut(key.shard() % SHARDS) {
            shard.make_room();
            if let Err(free) = shard.find(key.tag, |_| false) {
                shard.insert(free, key.tag, at);
            }
        }
        self.link(at);
        self.len += 1;
        None
    }

    pub(super) fn remove_key(&mut self, key: &K) {
        if let Some(at) = self.find(key) {
            self.remove(at);
        }
    }

    fn find(&self, key: &K) -> Option<u32> {
        let matches = |at: u32| {
            let entry = self.entries.get(at as usize);
            entry.is_some_and(|entry| entry.key == *key)
        };
        let key = self.table_key(key);
        let shard = self.shards.get(key.shard() % SHARDS)?;
        shard.find(key.tag, matches).ok().map(|(_, at)| at)
    }

    #[inline]
    fn table_key(&self, key: &K) -> Key {
        Key::of(key.mixed(&self.mixed))
    }

    fn remove(&mut self, at: u32) {
        let Some(entry) = self.entries.get(at as usize) else {
            return;
        };
        let key = self.table_key(&entry.key);
        if let Some(shard) = self.shards.get_mut(key.shard() % SHARDS) {
            shard.remove(key.tag, at);
        }
        self.unlink(at);
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.older = self.free;
        }
        self.free = at;
        self.len -= 1;
    }

    /// Stores an entry that is not linked yet, and returns its number.
    fn place(&mut self, key: K, value: V) -> Option<u32> {
        let entry = Entry {
            key,
            value,
            newer: NO_ENTRY,
            older: NO_ENTRY,
        };
        let at = self.free;
        if let Some(free) = self.entries.get_mut(at as usize) {
            self.free = free.older;
            *free = entry;
            return Some(at);
        }
        let at = u32::try_from(self.entries.len()).ok()?;
        if self.entries.len() == self.entries.capacity() {
            self.reserve();
        }
        self.entries.push(entry);
        Some(at)
    }

    /// Makes room for all entries: the system gives memory page by page as it is used, and a vector that grows is copied.
    fn reserve(&mut self) {
        let left = self.most.saturating_sub(self.entries.len()).max(1);
        if self.entries.try_reserve_exact(left).is_err() {
            // The bound exceeds what the system promises. A vector doubles by itself, which would exceed the bound.
            let more = (self.entries.len() / 2).max(64);
            self.entries.reserve_exact(more.min(left));
        }
    }

    /// Links an entry as the newest.
    fn link(&mut self, at: u32) {
        let newest = core::mem::replace(&mut self.newest, at);
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.newer = NO_ENTRY;
            entry.older = newest;
        }
        match self.entries.get_mut(newest as usize) {
            Some(older) => older.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Some(entry) = self.entries.get(at as usize) else {
            return;
        };
        let (newer, older) = (entry.newer, entry.older);
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl RecencyKey for u64 {
        fn mixed(&self, mixed: &HashMixer) -> u64 {
            mixed.mix(*self)
        }
    }

    proptest! {
        #[test]
        fn the_least_recently_used_entry_is_evicted(
            ops in prop::collection::vec((0_u8..4, 0_u64..12), 0..200),
            most in 1_usize..8,
            seed: u64,
        ) {
            let mut recent = RecencyMap::with_most(most, HashMixer::new(seed));
            // Oldest first.
            let mut model: Vec<(u64, usize)> = Vec::new();
            for (value, (op, key)) in ops.into_iter().enumerate() {
                let at = model.iter().position(|(other, _)| *other == key);
                if op == 0 {
                    recent.remove_key(&key);
                    at.map(|at| model.remove(at));
                } else {
                    let before = at.map(|at| model.remove(at).1);
                    prop_assert_eq!(recent.put(key, value), before);
                    model.push((key, value));
                    if model.len() > most {
                        model.remove(0);
                    }
                }
                prop_assert_eq!(recent.len, model.len());
                prop_assert!(recent.entries.len() <= most);
                for key in 0..12 {
                    let expected = model.iter().find(|(other, _)| *other == key);
                    prop_assert_eq!(recent.get(&key), expected.map(|(_, value)| value));
                }
            }
        }
    }

    #[test]
    fn a_much_smaller_bound_keeps_a_bounded_number_of_the_newest_entries() {
        let entry_bytes = size_of::<Entry<u64, usize>>() + PLACE_BYTES;
        let mut recent = RecencyMap::new(20_000 * entry_bytes, 1);
        for key in 0..20_000 {
            recent.put(key, 0_usize);
        }
        recent.set_bytes_max(10_000 * entry_bytes);
        assert_eq!(recent.len, KEPT_MAX);
        assert!(recent.get(&19_999).is_some() && recent.get(&15_904).is_some());
        assert_eq!(recent.get(&15_903), None);
    }

    #[test]
    fn entries_are_not_copied_as_their_number_grows() {
        let entry_bytes = size_of::<Entry<u64, usize>>() + PLACE_BYTES;
        let mut recent = RecencyMap::new(20_000 * entry_bytes, 1);
        recent.put(0, 0_usize);
        let first = recent.entries.as_ptr();
        for key in 1..20_000 {
            recent.put(key, 0);
        }
        assert_eq!(recent.entries.as_ptr(), first);
        recent.set_bytes_max(30_000 * entry_bytes);
        for key in 20_000..40_000 {
            recent.put(key, 0);
        }
        assert_eq!((recent.len, recent.entries.capacity()), (30_000, 30_000));
    }

    #[test]
    fn a_smaller_bound_keeps_the_newest_entries() {
        let entry_bytes = size_of::<Entry<u64, usize>>() + PLACE_BYTES;
        let mut recent = RecencyMap::new(100 * entry_bytes, 1);
        for key in 0..150 {
            recent.put(key, 0_usize);
        }
        assert_eq!((recent.len, recent.get(&49)), (100, None));
        assert!(recent.entries.capacity() <= 100, "no more than the bound");
        recent.put(60, 1);
        recent.set_bytes_max(10 * entry_bytes + 1);
        let kept = (0..150).filter(|key| recent.get(key).is_some());
        assert_eq!(
            kept.collect::<Vec<_>>(),
            [60, 141, 142, 143, 144, 145, 146, 147, 148, 149]
        );
        recent.set_bytes_max(20 * entry_bytes);
        for key in 200..220 {
            recent.put(key, 2);
        }
        assert_eq!((recent.len, recent.get(&60)), (20, None));
    }
}

//! A bounded map that evicts the least recently used entry (`docs/decisions/0010-recency-map.md`).
//!
//! Entries lie side by side and link to their neighbours in the order of use by number. The table is the index's own. A
//! search reads two cache lines; a use writes to two more without waiting for them.

use core::hint::black_box;

use super::shard::Shard;
use super::table::{HashMixer, Key};

const NO_ENTRY: u32 = u32::MAX;

pub(super) trait RecencyKey: Copy + Eq {
    /// The key as one number, mixed with secret numbers.
    fn mixed(&self, mixed: &HashMixer) -> u64;
}

/// The most recently used entries.
#[derive(Debug)]
pub(super) struct RecencyMap<K, V> {
    mixed: HashMixer,
    table: Shard,
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
    /// An empty map of at most `most` entries, and at least one. The seed decides where entries lie in memory.
    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self {
            mixed: HashMixer::new(seed),
            table: Shard::default(),
            entries: Vec::new(),
            free: NO_ENTRY,
            newest: NO_ENTRY,
            oldest: NO_ENTRY,
            most: most.clamp(1, NO_ENTRY as usize),
            len: 0,
        }
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
        black_box(self.table.prefetch(self.tag(key)));
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
        self.table.make_room();
        let tag = self.tag(&key);
        if let Err(free) = self.table.find(tag, |_| false) {
            self.table.insert(free, tag, at);
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
        self.table
            .find(self.tag(key), matches)
            .ok()
            .map(|(_, at)| at)
    }

    #[inline]
    fn tag(&self, key: &K) -> u32 {
        Key::of(key.mixed(&self.mixed)).tag
    }

    fn remove(&mut self, at: u32) {
        let Some(entry) = self.entries.get(at as usize) else {
            return;
        };
        self.table.remove(self.tag(&entry.key), at);
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
        self.entries.push(entry);
        Some(at)
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
            let mut recent = RecencyMap::new(most, seed);
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
}

//! What was used last: a bounded map that forgets what was used longest ago.
//!
//! Entries lie side by side and know their neighbours in the order of use by number, and the table is the index's own: a
//! search reads two cache lines, and a use writes to two more without waiting for them.
//!
//! Rejected: the crate `lru`, whose map points to entries that each lie somewhere: four lines, one after the other, and
//! a tenth of what a decision took.

use super::table::{HashMixer, SmallTable};

/// No entry has this number.
const NO_ENTRY: u32 = u32::MAX;

/// What entries are found by.
pub(super) trait RecencyKey: Copy + Eq {
    /// All of it in one number, mixed by numbers that nobody outside knows.
    fn mixed(&self, mixed: &HashMixer) -> u64;
}

/// The latest entries.
#[derive(Debug)]
pub(super) struct RecencyMap<K, V> {
    mixed: HashMixer,
    table: SmallTable,
    entries: Vec<Entry<K, V>>,
    /// Entries that are not used, each with the next one.
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
    /// An empty one of at most so many entries, and at least one. The seed decides where things lie in memory, and nothing
    /// else.
    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self {
            mixed: HashMixer::new(seed),
            table: SmallTable::default(),
            entries: Vec::new(),
            free: NO_ENTRY,
            newest: NO_ENTRY,
            oldest: NO_ENTRY,
            most: most.clamp(1, NO_ENTRY as usize),
            len: 0,
        }
    }

    /// What is known under this key. It counts as no use.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        if self.len == 0 {
            return None;
        }
        let at = self.find(key)?;
        self.entries.get(at as usize).map(|entry| &entry.value)
    }

    /// Reads where a search would begin, so that it is there by then.
    pub(super) fn prefetch(&self, key: &K) {
        self.table.prefetch(key.mixed(&self.mixed));
    }

    /// Enters a value, and returns the one that was there.
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
        self.table.insert(key.mixed(&self.mixed), at);
        self.link(at);
        self.len += 1;
        None
    }

    /// Forgets what is known under this key.
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
        self.table.find(key.mixed(&self.mixed), matches)
    }

    fn remove(&mut self, at: u32) {
        let Some(entry) = self.entries.get(at as usize) else {
            return;
        };
        self.table.remove(entry.key.mixed(&self.mixed), at);
        self.unlink(at);
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.older = self.free;
        }
        self.free = at;
        self.len -= 1;
    }

    /// An entry's number; it stands in no order yet.
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

    /// Makes an entry the newest.
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

    /// Takes an entry out of the order.
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
        fn it_forgets_what_was_used_longest_ago(
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

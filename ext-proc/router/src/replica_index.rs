//! Dense numbers of targets, and sets of them.
//!
//! A replica's identity is never reused, so it is a poor array index. Inside the core each replica has a replica index:
//! small, reused, usable as a bit. Availability, subsets and the targets of a prefix are bit sets.

use smallvec::SmallVec;

/// Replica indices in use at most: present replicas, and removed ones whose index entries are not purged yet.
pub(crate) const INDICES_MAX: usize = 16_384;

/// Words of a set that need no allocation.
const WORDS_INLINE: usize = 16;

/// Dense number of a replica: small, and used again after the replica has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaIndex(pub u16);

impl ReplicaIndex {
    /// Number of replica indices: each is below it.
    pub const COUNT: usize = INDICES_MAX;

    /// The number, to index an array.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of replicas.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReplicaSet {
    words: SmallVec<[u64; WORDS_INLINE]>,
    len: usize,
}

/// Copies the words at once; the derived implementation would copy them one by one.
impl Clone for ReplicaSet {
    fn clone(&self) -> Self {
        Self {
            words: SmallVec::from_slice(&self.words),
            len: self.len,
        }
    }
}

impl ReplicaSet {
    /// Number of members.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the set has no member.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a replica is a member.
    #[inline]
    #[must_use]
    pub fn contains(&self, slot: ReplicaIndex) -> bool {
        self.words
            .get(slot.index() / 64)
            .is_some_and(|word| word & bit(slot) != 0)
    }

    /// Inserts or removes a replica; returns whether that changed the set.
    pub fn set(&mut self, slot: ReplicaIndex, member: bool) -> bool {
        let at = slot.index() / 64;
        if at >= self.words.len() {
            if !member {
                return false;
            }
            self.words.resize(at + 1, 0);
        }
        let Some(word) = self.words.get_mut(at) else {
            return false;
        };
        let before = *word & bit(slot) != 0;
        if before == member {
            return false;
        }
        *word ^= bit(slot);
        if member {
            self.len += 1;
        } else {
            self.len -= 1;
        }
        true
    }

    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let (both, beyond) = self.words.split_at(self.words.len().min(other.words.len()));
        let left = both.iter().zip(&other.words);
        let left = left.fold(0, |left, (word, other)| left | (word & !other));
        left == 0 && beyond.iter().all(|word| *word == 0)
    }

    /// The members that are not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        // The common case is an empty result, which needs no copy.
        if self.is_within(other) {
            return Self::default();
        }
        let mut left = self.clone();
        for (word, taken) in left.words.iter_mut().zip(&other.words) {
            *word &= !taken;
        }
        let words = left.words.iter().filter(|word| **word != 0);
        left.len = words.map(|word| word.count_ones() as usize).sum();
        left
    }

    /// The members that are in `other`, too.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.words.truncate(other.words.len());
        for (word, other) in both.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
        let words = both.words.iter();
        both.len = words.map(|word| word.count_ones() as usize).sum();
        both
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = ReplicaIndex> + '_ {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(at, word)| Bits { at, word: *word })
    }

    /// The first member at or after `from`, wrapping around at the end.
    #[must_use]
    pub fn next_round(&self, from: ReplicaIndex) -> Option<ReplicaIndex> {
        let start = from.index() / 64;
        let first = self.words.get(start).map(|word| word & !(bit(from) - 1));
        let rest = self.words.iter().skip(start + 1).copied();
        let ahead = (start..).zip(first.into_iter().chain(rest));
        let mut members = ahead.flat_map(|(at, word)| Bits { at, word });
        members.next().or_else(|| self.iter().next())
    }

    /// The member with `n` members before it.
    #[must_use]
    pub fn nth(&self, n: usize) -> Option<ReplicaIndex> {
        let mut left = n;
        for (at, word) in self.words.iter().enumerate() {
            let here = word.count_ones() as usize;
            if left < here {
                return Bits { at, word: *word }.nth(left);
            }
            left -= here;
        }
        None
    }
}

const fn bit(slot: ReplicaIndex) -> u64 {
    1 << (slot.0 % 64)
}

struct Bits {
    at: usize,
    word: u64,
}

impl Iterator for Bits {
    type Item = ReplicaIndex;

    fn next(&mut self) -> Option<ReplicaIndex> {
        if self.word == 0 {
            return None;
        }
        let low = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        u16::try_from(self.at * 64 + low).ok().map(ReplicaIndex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[u16]) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        for member in members {
            set.set(ReplicaIndex(*member), true);
        }
        set
    }

    #[test]
    fn members_come_back_in_order() {
        let set = set(&[70, 3, 64, 3, 1000]);
        assert_eq!(set.len(), 4);
        assert_eq!(
            set.iter().map(|slot| slot.0).collect::<Vec<_>>(),
            [3, 64, 70, 1000]
        );
        assert_eq!(set.nth(2), Some(ReplicaIndex(70)));
        assert_eq!(set.nth(4), None);
    }

    #[test]
    fn the_next_one_goes_round_at_the_end() {
        let set = set(&[3, 64, 70]);
        assert_eq!(set.next_round(ReplicaIndex(0)), Some(ReplicaIndex(3)));
        assert_eq!(set.next_round(ReplicaIndex(4)), Some(ReplicaIndex(64)));
        assert_eq!(set.next_round(ReplicaIndex(65)), Some(ReplicaIndex(70)));
        assert_eq!(set.next_round(ReplicaIndex(71)), Some(ReplicaIndex(3)));
        assert_eq!(set.next_round(ReplicaIndex(9000)), Some(ReplicaIndex(3)));
        assert_eq!(ReplicaSet::default().next_round(ReplicaIndex(5)), None);
    }

    #[test]
    fn what_is_left_without_others_is_counted() {
        let all = set(&[3, 64, 70, 200]);
        assert_eq!(all.without(&set(&[3, 64, 70, 200, 500])).len(), 0);
        let left = all.without(&set(&[64, 65]));
        assert_eq!(
            left.iter().map(|slot| slot.0).collect::<Vec<_>>(),
            [3, 70, 200]
        );
        assert_eq!(left.len(), 3);
        assert!(!all.is_within(&set(&[3, 64, 70])));
        assert!(ReplicaSet::default().is_within(&all));
    }

    #[test]
    fn a_change_is_told_from_none() {
        let mut set = set(&[5]);
        assert!(!set.set(ReplicaIndex(5), true));
        assert!(!set.set(ReplicaIndex(900), false));
        assert!(set.set(ReplicaIndex(5), false));
        assert!(set.is_empty());
    }
}

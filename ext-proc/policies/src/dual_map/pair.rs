//! The two candidates of a key, from two independent hash rings (`DualMap` 3.4).
//!
//! When both rings name the same replica, the second candidate is the next replica on the second ring, where the paper takes
//! the next number.

use isotherm_router::{ReplicaIndex, Ring};
use twox_hash::XxHash3_64;

/// Two rings over the same replicas.
#[derive(Debug)]
pub(super) struct TwoRings([Ring; 2]);

impl Default for TwoRings {
    fn default() -> Self {
        Self([0, 1].map(Ring::numbered))
    }
}

/// The candidates of a key; a single replica has no second candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) first: ReplicaIndex,
    pub(super) second: Option<ReplicaIndex>,
}

impl Pair {
    pub(super) fn contains(self, replica: ReplicaIndex) -> bool {
        self.first == replica || self.second == Some(replica)
    }

    /// Second candidate, given one of them.
    pub(super) fn other(self, replica: ReplicaIndex) -> Option<ReplicaIndex> {
        if self.first == replica {
            self.second
        } else {
            Some(self.first)
        }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = ReplicaIndex> {
        [Some(self.first), self.second].into_iter().flatten()
    }
}

impl TwoRings {
    pub(super) fn join(&mut self, replica: ReplicaIndex, name: &str) {
        for ring in &mut self.0 {
            ring.join(replica, name);
        }
    }

    pub(super) fn leave(&mut self, replica: ReplicaIndex) {
        for ring in &mut self.0 {
            ring.leave(replica);
        }
    }

    pub(super) fn pair(&self, key: u64, is_open: impl Fn(ReplicaIndex) -> bool) -> Option<Pair> {
        let [one, other] = &self.0;
        let first = one.find(point(key, 0), &is_open)?;
        let second = other.find(point(key, 1), |replica| {
            replica != first && is_open(replica)
        });
        Some(Pair { first, second })
    }
}

fn point(key: u64, which: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(which, &key.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 4_000;

    fn rings(replicas: impl IntoIterator<Item = u16>) -> TwoRings {
        let mut rings = TwoRings::default();
        for id in replicas {
            rings.join(ReplicaIndex(id), &format!("10.0.0.{id}:8000"));
        }
        rings
    }

    fn pairs(rings: &TwoRings) -> Vec<Pair> {
        (0..KEYS)
            .map(|key| rings.pair(key, |_| true).unwrap())
            .collect()
    }

    #[test]
    fn every_key_has_two_different_candidates() {
        for pair in pairs(&rings(0..8)) {
            assert_ne!(Some(pair.first), pair.second);
            assert!(pair.second.is_some());
        }
    }

    #[test]
    fn the_rings_are_independent() {
        // Two independent choices among eight: each of the 56 ordered pairs gets its part, none most of it.
        let mut counts = [[0_u64; 8]; 8];
        for pair in pairs(&rings(0..8)) {
            counts[pair.first.index()][pair.second.unwrap().index()] += 1;
        }
        for (i, row) in counts.iter().enumerate() {
            for (j, count) in row.iter().enumerate().filter(|(j, _)| *j != i) {
                assert!((20..180).contains(count), "{i} {j}: {count}");
            }
        }
    }

    #[test]
    fn a_new_replica_changes_only_the_pairs_that_it_enters() {
        let (before, after) = (pairs(&rings(0..8)), pairs(&rings(0..9)));
        let mut changed = 0;
        for (old, new) in before.iter().zip(&after) {
            if old != new {
                assert!(new.contains(ReplicaIndex(8)), "{old:?} {new:?}");
                changed += 1;
            }
        }
        // Each ring gives a ninth away.
        assert!((KEYS / 9..KEYS / 3).contains(&changed), "{changed}");
    }

    #[test]
    fn a_replica_that_leaves_and_returns_gets_its_pairs_back() {
        let mut both = rings(0..8);
        let before = pairs(&both);
        both.leave(ReplicaIndex(3));
        for (old, new) in before.iter().zip(pairs(&both)) {
            assert!(!new.contains(ReplicaIndex(3)));
            assert!(old.contains(ReplicaIndex(3)) || *old == new);
        }
        both.join(ReplicaIndex(3), "10.0.0.3:8000");
        assert_eq!(pairs(&both), before);
    }

    #[test]
    fn unusable_replicas_are_passed_and_a_single_replica_has_no_second() {
        let both = rings(0..8);
        for key in 0..100 {
            let pair = both.pair(key, |replica| replica.0 > 5).unwrap();
            assert!(pair.iter().all(|replica| replica.0 > 5));
            let alone = both.pair(key, |replica| replica.0 == 2).unwrap();
            assert_eq!((alone.first, alone.second), (ReplicaIndex(2), None));
            assert_eq!(both.pair(key, |_| false), None);
        }
    }
}

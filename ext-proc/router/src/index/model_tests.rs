//! The index against a naive one, which keeps every prefix of every target with the time of its last use.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Eviction;

const TARGETS: usize = 4;

/// Each target's prefixes, as paths of blocks, with their ages.
#[derive(Debug, Default)]
struct Naive {
    held: BTreeMap<(ReplicaIndex, Vec<u8>), u64>,
    tick: u64,
}

impl Naive {
    fn record(&mut self, path: &[u8], slot: ReplicaIndex, eviction: Eviction) {
        self.tick += 1;
        for depth in 1..=path.len() {
            let age = self
                .held
                .entry((slot, path[..depth].to_vec()))
                .or_insert(self.tick);
            if eviction == Eviction::Lru {
                *age = self.tick;
            }
        }
    }

    fn depth(&self, path: &[u8], slot: ReplicaIndex) -> usize {
        (0..=path.len())
            .rev()
            .find(|depth| *depth == 0 || self.held.contains_key(&(slot, path[..*depth].to_vec())))
            .unwrap_or(0)
    }

    /// Forgets the oldest prefix that none of its target's extends.
    fn evict(&mut self) {
        let is_leaf = |slot: ReplicaIndex, path: &[u8]| {
            !self.held.keys().any(|(other, longer)| {
                *other == slot && longer.len() == path.len() + 1 && longer.starts_with(path)
            })
        };
        let oldest = self
            .held
            .iter()
            .filter(|((slot, path), _)| is_leaf(*slot, path))
            .min_by_key(|(_, age)| **age)
            .map(|(key, _)| key.clone())
            .unwrap();
        self.held.remove(&oldest);
    }
}

fn blocks_of(path: &[u8]) -> Vec<BlockHash> {
    let mut hash = 7_u64;
    (1..)
        .zip(path)
        .map(|(i, block)| {
            hash = (hash ^ u64::from(*block)).wrapping_mul(0x2545_f491_4f6c_dd1d);
            BlockHash {
                hash,
                end_bytes: i * 256,
            }
        })
        .collect()
}

fn operations() -> impl Strategy<Value = Vec<(Vec<u8>, usize)>> {
    let path = prop::collection::vec(0_u8..3, 0..9);
    prop::collection::vec((path, 0..TARGETS), 1..120)
}

fn agree(operations: &[(Vec<u8>, usize)], bytes_max: usize, eviction: Eviction) {
    let limits = IndexLimits {
        bytes_max,
        eviction,
    };
    let mut index = PrefixIndex::new(limits, 1);
    let slots: Vec<ReplicaIndex> = (0..TARGETS).map(|_| index.join().unwrap()).collect();
    let mut all = ReplicaSet::default();
    for slot in &slots {
        all.set(*slot, true);
    }
    let mut naive = Naive::default();
    for (i, (path, target)) in operations.iter().enumerate() {
        let slot = slots[*target];
        let blocks = blocks_of(path);
        let matched = index.deepest_of(&blocks, slot);
        assert_eq!(matched.depth, naive.depth(path, slot));
        index.record(&blocks, slot, &matched);
        naive.record(path, slot, eviction);
        assert!(index.bytes() <= bytes_max);
        // How many go depends on the memory that each takes; which ones go does not.
        while naive.held.len() > index.stats().entries {
            naive.evict();
        }
        assert_eq!(naive.held.len(), index.stats().entries);
        for (path, _) in operations.iter().skip(i % 8).step_by(8) {
            let blocks = blocks_of(path);
            let depths = slots.iter().map(|slot| naive.depth(path, *slot));
            let best = index.deepest(&blocks, &all);
            assert_eq!(Some(best.depth), depths.clone().max());
            for (slot, depth) in slots.iter().zip(depths) {
                assert_eq!(index.deepest_of(&blocks, *slot).depth, depth);
                let is_target = index.targets(&best, &all).any(|target| target == *slot);
                assert_eq!(is_target, best.depth > 0 && depth == best.depth);
            }
        }
    }
    let nodes: std::collections::BTreeSet<&[u8]> =
        naive.held.keys().map(|(_, path)| path.as_slice()).collect();
    assert_eq!(nodes.len(), index.stats().nodes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn forgets_what_was_used_longest_ago(operations in operations(), bytes_max in 0_usize..6_000) {
        agree(&operations, bytes_max, Eviction::Lru);
    }

    #[test]
    fn forgets_what_was_inserted_longest_ago(operations in operations(), bytes_max in 0_usize..6_000) {
        agree(&operations, bytes_max, Eviction::Fifo);
    }
}

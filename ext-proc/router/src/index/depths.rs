//! The longest prefix of a chain that *each* of many targets has.
//!
//! Most targets have nothing of a prompt, or just the system prompt that all share, and one or two have most of it. So
//! this goes from the deepest prefix that anybody has to the next deepest that anybody else has, each a binary search.
//! It costs as many searches as there are different depths, which are few, instead of one for each target; and never
//! more than there are blocks.

use isotherm_fingerprint::BlockHash;

use super::{PrefixIndex, PrefixMatch};
use crate::replica_index::{ReplicaIndex, ReplicaSet};

impl PrefixIndex {
    /// Shows each of these targets once, with the longest prefix of the chain that it has: deepest first, and in order
    /// among those that have the same.
    pub(crate) fn each_deepest(
        &self,
        blocks: &[BlockHash],
        among: &ReplicaSet,
        mut show: impl FnMut(ReplicaIndex, &PrefixMatch),
    ) {
        let mut left = among.clone();
        let mut shorter = blocks;
        while !left.is_empty() {
            let matched = self.deepest(shorter, &left);
            if matched.node.is_none() {
                break;
            }
            for slot in matched
                .node
                .into_iter()
                .flat_map(|id| self.nodes.targets(id))
            {
                if left.set(slot, false) {
                    show(slot, &matched);
                }
            }
            shorter = shorter
                .get(..matched.depth.saturating_sub(1))
                .unwrap_or_default();
        }
        for slot in left.iter() {
            show(slot, &PrefixMatch::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Eviction, IndexLimits};

    const TARGETS: usize = 9;

    fn blocks_of(path: &[u64]) -> Vec<BlockHash> {
        let mut hash = 7_u64;
        (1..)
            .zip(path)
            .map(|(i, block)| {
                hash = (hash ^ block).wrapping_mul(0x2545_f491_4f6c_dd1d);
                BlockHash {
                    hash,
                    end_bytes: i * 256,
                }
            })
            .collect()
    }

    proptest! {
        #[test]
        fn it_is_what_asking_for_each_target_gives(
            sent in prop::collection::vec((prop::collection::vec(0_u64..2, 0..8), 0..TARGETS), 0..60),
            asked in prop::collection::vec(0_u64..2, 0..10),
            among in prop::collection::btree_set(0..TARGETS, 0..TARGETS),
        ) {
            let mut index = PrefixIndex::new(IndexLimits { bytes_max: 3_000, eviction: Eviction::Lru }, 1);
            let slots: Vec<ReplicaIndex> = (0..TARGETS).map(|_| index.join().unwrap()).collect();
            for (path, target) in sent {
                let blocks = blocks_of(&path);
                let matched = index.deepest_of(&blocks, slots[target]);
                index.record(&blocks, slots[target], &matched);
            }
            let blocks = blocks_of(&asked);
            let mut set = ReplicaSet::default();
            for at in &among {
                set.set(slots[*at], true);
            }
            let mut shown = Vec::new();
            index.each_deepest(&blocks, &set, |slot, matched| shown.push((slot, *matched)));
            prop_assert!(shown.is_sorted_by_key(|(slot, matched)| (usize::MAX - matched.depth, *slot)));
            let mut expected: Vec<_> = set.iter().map(|slot| (slot, index.deepest_of(&blocks, slot))).collect();
            shown.sort_unstable_by_key(|(slot, _)| *slot);
            expected.sort_unstable_by_key(|(slot, _)| *slot);
            prop_assert_eq!(shown, expected);
        }
    }
}

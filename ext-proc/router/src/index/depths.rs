//! The longest match of a chain for *each* of many targets.
//!
//! Most targets hold nothing of a prompt, or only the common system prompt; one or two hold most of it. The search goes from
//! the deepest match of any target to the next deepest of the remaining ones. It takes one binary search per distinct
//! depth, not per target, and never more searches than blocks.

use isotherm_fingerprint::BlockHash;

use super::{PrefixIndex, PrefixMatch};
use crate::replica_index::{ReplicaIndex, ReplicaSet};

impl PrefixIndex {
    /// Calls `show` once for each target of the set with its longest match: deepest first, then in order of the targets.
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
        fn each_target_gets_the_match_that_a_search_of_its_own_finds(
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

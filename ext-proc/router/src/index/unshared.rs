//! Prefixes that one target alone holds: what its removal would throw away.

use std::collections::{BTreeMap, BTreeSet};

use super::PrefixIndex;
use super::node::{NodeId, SPAN_BYTES};
use crate::replica_index::ReplicaIndex;

impl PrefixIndex {
    /// Bytes of the prefixes that one target alone holds and that were used after a tick, by target. An index with more nodes than
    /// `nodes_max` is sampled: each examined leaf counts for as many as are skipped.
    pub(crate) fn unshared_bytes(&self, since: u64, nodes_max: u32) -> BTreeMap<ReplicaIndex, u64> {
        let end = self.nodes.end();
        let stride = end.div_ceil(nodes_max.max(1)).max(1);
        let step = usize::try_from(stride).unwrap_or(usize::MAX);
        let mut bytes = BTreeMap::new();
        let mut counted = BTreeSet::new();
        for id in (0..end).step_by(step) {
            let Some(entry) = self.nodes.single(id) else {
                continue;
            };
            if entry.children == 0 && entry.stamp > since {
                let spans = self.count_up(id, entry.slot, &mut counted);
                let of_target = bytes.entry(entry.slot).or_insert(0_u64);
                *of_target += spans * u64::from(SPAN_BYTES) * u64::from(stride);
            }
        }
        bytes
    }

    /// Spans of a leaf and of the prefixes above it that the same target alone holds, each counted once.
    fn count_up(&self, leaf: NodeId, slot: ReplicaIndex, counted: &mut BTreeSet<NodeId>) -> u64 {
        let mut spans = 0;
        let mut id = leaf;
        while let Some(entry) = self.nodes.single(id).filter(|entry| entry.slot == slot) {
            if !counted.insert(id) {
                break;
            }
            spans += u64::from(entry.span);
            let Some(node) = self.nodes.get(id) else {
                break;
            };
            id = node.parent;
        }
        spans
    }
}

//! Placements that siblings share: the new part of a chain, attached below a known prefix.

use isotherm_fingerprint::BlockHash;

use super::node::NodeId;
use super::slab::NONE;
use super::{PrefixIndex, PrefixMatch};
use crate::replica_index::ReplicaIndex;

impl PrefixIndex {
    /// Records that a target was sent a prompt that continues `parent` with `blocks`, where a sibling knows that the target
    /// holds `parent`. Returns whether the index knows `parent`: a lookup could not find the blocks below an unknown one.
    ///
    /// A known prefix that this target is not known to hold is recorded for it too: a target holds every shorter prefix of
    /// a prefix that it holds.
    pub(crate) fn attach(
        &mut self,
        slot: ReplicaIndex,
        parent: Option<BlockHash>,
        blocks: &[BlockHash],
    ) -> bool {
        let Some(parent) = parent else {
            let matched = self.deepest_of(blocks, slot);
            self.record(blocks, slot, &matched);
            return true;
        };
        let Some(id) = self.table.find(&self.nodes, parent.hash) else {
            return false;
        };
        let (above, mut known) = self.missing_above(id, slot);
        let matched = if known.is_empty() {
            known.push(parent.hash);
            let below = self.deepest_of(blocks, slot);
            PrefixMatch::at(below.depth + 1, below.node.or(above))
        } else {
            PrefixMatch::at(0, above)
        };
        // Existing nodes keep their spans; the new ones need the end of the last existing block only.
        let known = known.into_iter().map(|hash| BlockHash { hash, ..parent });
        let chain: Vec<BlockHash> = known.chain(blocks.iter().copied()).collect();
        self.record(&chain, slot, &matched);
        true
    }

    /// Hashes of this node and its ancestors that the target is not known to hold, shortest prefix first, and the node above
    /// them, which it holds.
    fn missing_above(&self, mut id: NodeId, slot: ReplicaIndex) -> (Option<NodeId>, Vec<u64>) {
        let mut missing = Vec::new();
        while id != NONE && self.nodes.entry(id, slot).is_none() {
            let Some(node) = self.nodes.get(id) else {
                break;
            };
            missing.push(node.hash);
            id = node.parent;
        }
        missing.reverse();
        ((id != NONE).then_some(id), missing)
    }
}

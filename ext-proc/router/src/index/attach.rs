//! What others have recorded: the new part of a chain, put below what is known here.

use isotherm_fingerprint::BlockHash;

use super::node::NodeId;
use super::slab::NONE;
use super::{PrefixIndex, PrefixMatch};
use crate::replica_index::ReplicaIndex;

impl PrefixIndex {
    /// A target was sent a prompt that goes on from `parent` with `blocks`, says somebody who knew that it had everything
    /// up to there. Says whether that prefix is known here: without it, what lies below cannot be found.
    ///
    /// Where the prefix is known, but not for this target, the target gets it too: it has every shorter prefix of what
    /// it has.
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
        let (above, missing) = self.missing_above(id, slot);
        if missing.is_empty() {
            let mut chain = vec![parent];
            chain.extend_from_slice(blocks);
            let below = self.deepest_of(blocks, slot);
            let matched = if below.depth == 0 {
                PrefixMatch {
                    depth: 1,
                    node: Some(id),
                }
            } else {
                PrefixMatch {
                    depth: below.depth + 1,
                    ..below
                }
            };
            self.record(&chain, slot, &matched);
            return true;
        }
        // The nodes know their own length; where the last of them ends is all that the new ones need.
        let known = missing.into_iter().map(|hash| BlockHash { hash, ..parent });
        let chain: Vec<BlockHash> = known.chain(blocks.iter().copied()).collect();
        let matched = PrefixMatch {
            depth: 0,
            node: above,
        };
        self.record(&chain, slot, &matched);
        true
    }

    /// The hashes of this node and those above it that the target is not known to have, shortest prefix first, and the
    /// node above them, which it has.
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

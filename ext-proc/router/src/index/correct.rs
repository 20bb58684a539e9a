//! Corrections: what finished requests tell about predictions.

use isotherm_fingerprint::BlockHash;

use super::{PredictionRecord, PrefixIndex};
use crate::replica_index::ReplicaIndex;

/// The most entries that one corrected prediction makes the index forget.
const FORGOTTEN_PER_MISS_MAX: usize = 256;

impl PrefixIndex {
    /// A request did not reach the target after all: takes back what recording it added.
    pub(crate) fn retract(
        &mut self,
        blocks: &[BlockHash],
        slot: ReplicaIndex,
        recorded: &PredictionRecord,
    ) {
        let added = blocks.get(recorded.depth_before..).unwrap_or_default();
        for block in added.iter().rev() {
            let Some(id) = self.table.find(&self.nodes, block.hash) else {
                continue;
            };
            let Some(entry) = self.nodes.entry(id, slot) else {
                continue;
            };
            if entry.children > 0 || entry.stamp > recorded.stamp {
                // A later request uses it too.
                return;
            }
            self.remove_leaf(id, slot, 0);
        }
    }

    /// An engine had less of a prompt in its cache than the index believed.
    ///
    /// Engines evict what was used longest ago, so with the missing part everything of that age or older is gone
    /// as well: the index forgets it. The prompt's own prefixes are of the request's age by now and stay, because
    /// the engine has just computed them.
    pub(crate) fn missed(&mut self, slot: ReplicaIndex, recorded: &PredictionRecord) -> usize {
        let mut forgotten = 0;
        while forgotten < FORGOTTEN_PER_MISS_MAX
            && self
                .order
                .oldest(slot, &self.nodes)
                .is_some_and(|stamp| stamp <= recorded.used_before)
            && self.evict_leaf_of(slot)
        {
            forgotten += 1;
        }
        forgotten
    }

    /// Forgets what a target has of this chain past `depth`, as far as no other prompt shares it.
    pub(crate) fn forget_past(&mut self, blocks: &[BlockHash], slot: ReplicaIndex, depth: usize) {
        for block in blocks.get(depth..).unwrap_or_default().iter().rev() {
            if let Some(id) = self.table.find(&self.nodes, block.hash)
                && let Some(entry) = self.nodes.entry(id, slot)
            {
                if entry.children > 0 {
                    return;
                }
                self.remove_leaf(id, slot, 0);
            }
        }
    }
}

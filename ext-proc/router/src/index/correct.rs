//! Corrections of the index by finished requests.

use isotherm_fingerprint::BlockHash;

use super::{Owner, PredictionRecord, PrefixIndex};
use crate::replica_index::ReplicaIndex;

/// Entries that one corrected prediction removes at most.
const FORGOTTEN_PER_MISS_MAX: u32 = 256;

impl PrefixIndex {
    /// Removes what the recording of a request added, because the request did not reach the target.
    pub(crate) fn retract(
        &mut self,
        blocks: &[BlockHash],
        slot: ReplicaIndex,
        recorded: &PredictionRecord,
    ) {
        let (kept, owner) = (recorded.depth_before, recorded.owner);
        self.retract_down_to(blocks, (slot, owner), kept, |_| recorded.stamp);
    }

    /// Removes a target's blocks of a chain, deepest first, beyond the depth `kept`. `last_use` tells the last use of a block
    /// that counts as taken back. Returns the hash of a block that stays because a later request uses it, too.
    pub(crate) fn retract_down_to(
        &mut self,
        blocks: &[BlockHash],
        (slot, owner): (ReplicaIndex, Owner),
        kept: usize,
        last_use: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        for block in blocks.get(kept..).unwrap_or_default().iter().rev() {
            let Some(id) = self.table.find(&self.nodes, block.hash) else {
                continue;
            };
            let Some(entry) = self.nodes.entry(id, slot) else {
                continue;
            };
            if entry.children > 0 || entry.stamp > last_use(block.hash) {
                return Some(block.hash);
            }
            self.remove_leaf(id, slot, owner);
        }
        None
    }

    /// Corrects the index after a false hit: an engine held less of a prompt than the index believed.
    ///
    /// Engines evict the least recently used blocks, so what is as old as the missing part may be gone as well: up to so many
    /// bytes. The prompt's own prefixes have the request's age and stay, because the engine has just computed
    /// them. An entry of another tenant ends the removal.
    pub(crate) fn missed(
        &mut self,
        slot: ReplicaIndex,
        recorded: &PredictionRecord,
        bytes_max: u32,
    ) {
        let held_min = self.held_bytes(slot).saturating_sub(u64::from(bytes_max));
        let mut forgotten = 0;
        while forgotten < FORGOTTEN_PER_MISS_MAX
            && self.held_bytes(slot) > held_min
            && self
                .order
                .oldest_of(slot, &self.nodes)
                .is_some_and(|(stamp, owner)| {
                    stamp <= recorded.used_before && owner == recorded.owner
                })
            && self.evict_leaf_of(slot)
        {
            forgotten += 1;
        }
    }

    /// Time of the last recording, in ticks.
    pub(crate) const fn last_tick(&self) -> u64 {
        self.tick
    }

    /// Removes up to so many entries of a target whose last use is not after a tick. Returns whether none is left.
    pub(crate) fn forget_until(
        &mut self,
        slot: ReplicaIndex,
        tick: u64,
        entries_max: usize,
    ) -> bool {
        let mut forgotten = 0;
        loop {
            let oldest = self.order.oldest(slot, &self.nodes);
            if oldest.is_none_or(|stamp| stamp > tick) {
                return true;
            }
            if forgotten >= entries_max || !self.evict_leaf_of(slot) {
                return forgotten < entries_max;
            }
            forgotten += 1;
        }
    }

    /// Removes what a target holds of this chain beyond `depth`, except prefixes of other prompts.
    pub(crate) fn forget_past(
        &mut self,
        blocks: &[BlockHash],
        (slot, owner): (ReplicaIndex, Owner),
        depth: usize,
    ) {
        self.retract_down_to(blocks, (slot, owner), depth, |_| u64::MAX);
    }
}

//! Eviction: leaves first, oldest first, until every bound holds.

use super::PrefixIndex;
use super::node::NodeId;
use crate::Eviction;
use crate::slots::Slot;

/// The most leaves of a replica that left which are purged along with one insertion.
const PURGED_PER_RECORD_MAX: usize = 16;

impl PrefixIndex {
    /// Forgets a little of the replicas that left.
    pub(super) fn purge(&mut self) {
        for _ in 0..PURGED_PER_RECORD_MAX {
            let Some(slot) = self.order.retired() else {
                return;
            };
            self.evict_leaf_of(slot);
        }
    }

    /// Applies a target's budget, and the bound of all.
    pub(super) fn enforce(&mut self, slot: Slot) {
        while self.order.over_budget(slot) && self.evict_leaf_of(slot) {
            self.evicted += 1;
        }
        self.enforce_bytes();
    }

    /// Applies the bound of all: whoever left goes first, then the oldest leaf of all.
    pub(super) fn enforce_bytes(&mut self) {
        while self.bytes() > self.limits.bytes_max {
            let victim = self
                .order
                .retired()
                .or_else(|| self.order.oldest_of_all(&self.nodes));
            if !victim.is_some_and(|slot| self.evict_leaf_of(slot)) {
                return;
            }
            self.evicted += 1;
        }
    }

    /// Forgets the oldest leaf of a target; says whether there was one.
    pub(super) fn evict_leaf_of(&mut self, slot: Slot) -> bool {
        let Some((stamp, id)) = self.order.pop(slot, &self.nodes) else {
            return false;
        };
        self.remove_leaf(id, slot, stamp);
        true
    }

    /// Removes a leaf of a target; what it extends becomes a leaf when this was its last extension.
    pub(super) fn remove_leaf(&mut self, id: NodeId, slot: Slot, stamp: u64) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let (hash, parent, span) = (node.hash, node.parent, node.span);
        if self.nodes.remove_entry(id, slot).is_some() {
            self.table.remove(hash, id);
        }
        let mut last_child = false;
        if let Some(mut above) = self.nodes.entry(parent, slot) {
            above.children = above.children.saturating_sub(1);
            last_child = above.children == 0;
            if last_child && self.limits.eviction == Eviction::Lru {
                above.stamp = above.stamp.max(stamp);
            }
            self.nodes.set_entry(parent, above);
            if last_child {
                self.order.push(slot, above.stamp, parent, &self.nodes);
            }
        }
        self.order.removed(slot, span, !last_child);
    }
}

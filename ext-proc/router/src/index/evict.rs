//! Eviction: leaves first, oldest first, until every bound holds.
//!
//! A recording evicts about as much as it adds. A bound that shrinks may leave millions of entries beyond it: one event
//! evicts a bounded number of them, and the router is called again at once.

use core::hint::black_box;
use std::collections::BTreeSet;

use super::node::NodeId;
use super::order::{Owner, RECORD_BYTES};
use super::prefetch::BLOCKS_AHEAD;
use super::{NODE_BYTES, PrefixIndex};
use crate::Eviction;
use crate::replica_index::ReplicaIndex;

/// Leaves of retired targets that one recording purges at most.
const PURGED_PER_RECORD_MAX: usize = 16;

/// Entries that one event evicts at most for each bound. A prompt adds fewer.
pub(super) const EVICTED_PER_EVENT_MAX: usize = 1_024;

/// Evictions left to be done after an event: a bound has become smaller than what the index holds.
#[derive(Debug, Default)]
pub(super) struct Excess {
    /// Targets beyond their budgets.
    targets: BTreeSet<ReplicaIndex>,
    /// Whether the index is beyond the bound over all targets.
    is_over_bytes: bool,
}

impl PrefixIndex {
    /// Evicts a few leaves of retired targets.
    pub(super) fn purge(&mut self) {
        for _ in 0..PURGED_PER_RECORD_MAX {
            let Some(slot) = self.order.retired() else {
                return;
            };
            self.evict_leaf_of(slot);
        }
    }

    /// Applies a target's budget and the bound over all targets.
    pub(super) fn enforce(&mut self, slot: ReplicaIndex) {
        self.enforce_budget(slot, EVICTED_PER_EVENT_MAX);
        self.enforce_bytes(EVICTED_PER_EVENT_MAX);
    }

    /// Evicts up to so many entries beyond a target's budget. Returns the number of evicted entries.
    fn enforce_budget(&mut self, slot: ReplicaIndex, entries_max: usize) -> usize {
        let mut total = 0;
        while self.order.over_budget(slot, 0) {
            if total >= entries_max {
                self.excess.targets.insert(slot);
                return total;
            }
            let evicted = self.evict_run_of(slot, BLOCKS_AHEAD, |index, run| {
                total + run.entries >= entries_max || !index.order.over_budget(slot, run.held)
            });
            if evicted == 0 {
                break;
            }
            self.evicted += evicted as u64;
            total += evicted;
        }
        self.excess.targets.remove(&slot);
        total
    }

    /// Evicts up to so many entries beyond the bound over all targets: of retired targets first, then the oldest leaf of all.
    pub(super) fn enforce_bytes(&mut self, entries_max: usize) {
        let bytes_max = self.limits.bytes_max;
        let mut total = 0;
        self.excess.is_over_bytes = false;
        while let Some(excess) = self.bytes().checked_sub(bytes_max).filter(|by| *by > 0) {
            if total >= entries_max {
                self.excess.is_over_bytes = true;
                return;
            }
            let victim = self
                .order
                .retired()
                .or_else(|| self.order.oldest_of_all(&self.nodes));
            let evicted = victim.map_or(0, |slot| {
                let about = excess.div_ceil(NODE_BYTES).min(BLOCKS_AHEAD);
                self.evict_run_of(slot, about, |index, run| {
                    total + run.entries >= entries_max || index.bytes() + RECORD_BYTES <= bytes_max
                })
            });
            if evicted == 0 {
                return;
            }
            self.evicted += evicted as u64;
            total += evicted;
        }
    }

    /// Whether the last event evicted as many entries as one event may, and has left some beyond a bound.
    pub(crate) fn has_excess(&self) -> bool {
        self.excess.is_over_bytes || !self.excess.targets.is_empty()
    }

    /// Goes on with the eviction that the last event has left.
    pub(crate) fn evict_excess(&mut self) {
        let first = self.excess.targets.first().copied();
        let evicted = first.map_or(0, |slot| self.enforce_budget(slot, EVICTED_PER_EVENT_MAX));
        if self.excess.is_over_bytes {
            self.enforce_bytes(EVICTED_PER_EVENT_MAX.saturating_sub(evicted));
        }
    }

    /// Evicts the oldest leaf of a target; returns whether there was one.
    pub(super) fn evict_leaf_of(&mut self, slot: ReplicaIndex) -> bool {
        self.evict_run_of(slot, 0, |_, _| true) > 0
    }

    /// Evicts the oldest leaf of a target, then its parent while that is the oldest leaf and `enough` is false. Returns the
    /// number of evicted entries.
    ///
    /// Eviction removes prompts block by block from their end, so the parent is nearly always next. Continuing there saves
    /// one insertion into the order and one removal per block. The leaf that is the oldest of all targets stays so, because
    /// the parent inherits its age.
    fn evict_run_of(
        &mut self,
        slot: ReplicaIndex,
        ahead: usize,
        enough: impl Fn(&Self, &EvictionRun) -> bool,
    ) -> usize {
        let Some((stamp, mut id, owner)) = self.order.pop(slot, &self.nodes) else {
            return 0;
        };
        let next = self.order.first_record(slot);
        let mut run = EvictionRun::default();
        let mut read = 0;
        loop {
            if run.entries == read {
                self.prefetch_ancestors(id, ahead);
                read += ahead;
            }
            let Some((new_leaf, new_stamp)) = self.detach_leaf(id, slot, stamp, &mut run) else {
                break;
            };
            let continues = new_stamp == stamp && (stamp, new_leaf) < next;
            if !continues || enough(self, &run) {
                self.order
                    .push(slot, (new_stamp, new_leaf, owner), &self.nodes);
                self.order.removed(slot, run.entries, run.held, false);
                return run.entries;
            }
            id = new_leaf;
        }
        self.order.removed(slot, run.entries, run.held, true);
        run.entries
    }

    /// Removes a leaf of a target and a tenant. Its parent becomes a leaf if this was its last child.
    pub(super) fn remove_leaf(&mut self, id: NodeId, slot: ReplicaIndex, owner: Owner) {
        let mut run = EvictionRun::default();
        let new_leaf = self.detach_leaf(id, slot, 0, &mut run);
        if run.entries == 0 {
            return;
        }
        if let Some((new_leaf, stamp)) = new_leaf {
            self.order.push(slot, (stamp, new_leaf, owner), &self.nodes);
        }
        self.order
            .removed(slot, run.entries, run.held, new_leaf.is_none());
    }

    /// Removes a leaf of a target without changing the order. Returns the parent and its stamp if it has become a leaf.
    #[inline]
    fn detach_leaf(
        &mut self,
        id: NodeId,
        slot: ReplicaIndex,
        stamp: u64,
        run: &mut EvictionRun,
    ) -> Option<(NodeId, u64)> {
        let removed = self.nodes.remove(id, slot)?;
        if removed.is_node_removed {
            self.table.remove(removed.hash, id);
        }
        run.entries += 1;
        run.held += u64::from(removed.span);
        let inherits = match self.limits.eviction {
            Eviction::Lru => stamp,
            Eviction::Fifo => 0,
        };
        let stamp = self.nodes.remove_child(removed.parent, slot, inherits)?;
        Some((removed.parent, stamp))
    }

    /// Prefetches the table's buckets of a node and its ancestors.
    fn prefetch_ancestors(&self, mut id: NodeId, ahead: usize) {
        for _ in 0..ahead {
            let Some(node) = self.nodes.get(id) else {
                return;
            };
            black_box(self.table.prefetch(self.table.key(node.hash)));
            id = node.parent;
        }
    }
}

#[derive(Debug, Default)]
struct EvictionRun {
    entries: usize,
    /// Prompt length, in units of a node's span.
    held: u64,
}

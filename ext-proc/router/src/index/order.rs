//! The order of eviction: the leaves of each target by age, and the oldest leaf of all targets.
//!
//! Each target has a heap of (age, node, tenant) records. A leaf that is used again gets a second record, and the first one becomes
//! stale (`docs/design/prefix-index.md`).

use core::cmp::Reverse;
use core::hint::black_box;
use std::collections::{BTreeSet, BinaryHeap};

use super::node::{NodeId, Nodes};
use crate::TenantId;
use crate::replica_index::{INDICES_MAX, ReplicaIndex};

/// Accounted memory of a record, in bytes.
pub(super) const RECORD_BYTES: usize = size_of::<Record>();
/// Stale records that every heap may have.
const STALE_MIN: usize = 32;

type Record = Reverse<(u64, NodeId, Owner)>;

/// Tenant whose requests use a leaf: a part of its hash. It fits into a record without more memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner(u32);

impl Owner {
    /// The common tenant.
    pub(crate) const COMMON: Self = Self(0);

    /// The hash of the tenant.
    pub(crate) const fn hash(self) -> u64 {
        // The upper half is 0, so that it is equal to no session but by chance.
        self.0 as u64
    }

    /// The owner of a tenant's entries.
    pub(crate) const fn of(tenant: TenantId) -> Self {
        let [a, b, c, d, ..] = tenant.0.to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }
}

#[derive(Debug, Default)]
struct Target {
    leaves: BinaryHeap<Record>,
    /// Number of leaves, each with one fresh record.
    live: usize,
    entries: usize,
    /// Prompt length of the entries, in units of a node's span.
    held: u64,
    /// Part of it that requests have claimed and the target has not computed yet.
    claimed: u64,
    budget: Option<u64>,
    /// Age of the target in the order of all targets; never newer than its oldest leaf.
    key: Option<u64>,
}

impl Target {
    /// Number of records at which stale ones are dropped.
    const fn records_max(&self) -> usize {
        2 * self.live + STALE_MIN
    }
}

#[derive(Debug, Default)]
pub(super) struct Order {
    targets: Vec<Target>,
    oldest: BTreeSet<(u64, ReplicaIndex)>,
    free: BTreeSet<ReplicaIndex>,
    retired: BTreeSet<ReplicaIndex>,
    entries: usize,
    records: usize,
}

impl Order {
    /// Number of (node, target) pairs.
    pub(super) const fn entries(&self) -> usize {
        self.entries
    }

    /// Accounted memory, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.records * RECORD_BYTES
    }

    pub(super) fn allocate(&mut self) -> Option<ReplicaIndex> {
        let slot = if let Some(slot) = self.free.pop_first() {
            slot
        } else {
            if self.targets.len() >= INDICES_MAX {
                return None;
            }
            let slot = ReplicaIndex(u16::try_from(self.targets.len()).ok()?);
            self.targets.push(Target::default());
            slot
        };
        let target = self.targets.get_mut(slot.index())?;
        (target.budget, target.claimed) = (None, 0);
        Some(slot)
    }

    pub(super) fn retire(&mut self, slot: ReplicaIndex) {
        if !self.free.contains(&slot) && self.retired.insert(slot) {
            self.free_if_empty(slot);
        }
    }

    /// A retired target that still has entries.
    pub(super) fn retired(&self) -> Option<ReplicaIndex> {
        self.retired.first().copied()
    }

    pub(super) fn set_budget(&mut self, slot: ReplicaIndex, units: Option<u64>) {
        if let Some(target) = self.targets.get_mut(slot.index()) {
            target.budget = units;
        }
    }

    /// Whether a target exceeds its budget after losing `lost` units. What is claimed takes nothing from the rest yet.
    pub(super) fn over_budget(&self, slot: ReplicaIndex, lost: u64) -> bool {
        let target = self.targets.get(slot.index());
        target.is_some_and(|t| {
            let computed = t.held.saturating_sub(t.claimed).saturating_sub(lost);
            t.budget.is_some_and(|budget| computed > budget)
        })
    }

    /// Counts new entries of a target as claimed.
    pub(super) fn claim(&mut self, slot: ReplicaIndex, units: u64) {
        if let Some(target) = self.targets.get_mut(slot.index()) {
            target.claimed = target.claimed.saturating_add(units);
        }
    }

    /// Counts entries of a target as claimed no longer.
    pub(super) fn settle(&mut self, slot: ReplicaIndex, units: u64) {
        if let Some(target) = self.targets.get_mut(slot.index()) {
            target.claimed = target.claimed.saturating_sub(units);
        }
    }

    pub(super) fn held(&self, slot: ReplicaIndex) -> u64 {
        self.targets.get(slot.index()).map_or(0, |t| t.held)
    }

    /// Accounts for new entries of a target; `more_leaves` unless they extend a leaf.
    pub(super) fn added(
        &mut self,
        slot: ReplicaIndex,
        entries: usize,
        held: u64,
        more_leaves: bool,
    ) {
        if let Some(target) = self.targets.get_mut(slot.index()) {
            target.entries += entries;
            target.held += held;
            target.live += usize::from(more_leaves);
            self.entries += entries;
        }
    }

    /// Accounts for removed entries of a target; `fewer_leaves` unless their parent became a leaf.
    pub(super) fn removed(
        &mut self,
        slot: ReplicaIndex,
        entries: usize,
        held: u64,
        fewer_leaves: bool,
    ) {
        if let Some(target) = self.targets.get_mut(slot.index()) {
            target.entries = target.entries.saturating_sub(entries);
            target.held = target.held.saturating_sub(held);
            if fewer_leaves {
                target.live = target.live.saturating_sub(1);
            }
            self.entries = self.entries.saturating_sub(entries);
        }
        self.free_if_empty(slot);
    }

    /// Adds the record of a leaf.
    pub(super) fn push(
        &mut self,
        slot: ReplicaIndex,
        (stamp, id, owner): (u64, NodeId, Owner),
        nodes: &Nodes,
    ) {
        let Some(target) = self.targets.get_mut(slot.index()) else {
            return;
        };
        target.leaves.push(Reverse((stamp, id, owner)));
        self.records += 1;
        if target.leaves.len() > target.records_max() {
            let before = target.leaves.len();
            target.leaves.retain(|record| is_fresh(record, slot, nodes));
            self.records -= before - target.leaves.len();
        }
        if target.key.is_none_or(|key| stamp < key) {
            self.set_key(slot, Some(stamp));
        }
    }

    /// Prefetches what [`Self::push`] reads.
    pub(super) fn prefetch(&self, slot: ReplicaIndex) {
        let leaves = self.targets.get(slot.index()).map(|t| t.leaves.as_slice());
        let leaves = leaves.unwrap_or_default();
        black_box(leaves.last().map(|record| record.0.0));
        black_box(leaves.get(leaves.len() / 2).map(|record| record.0.0));
    }

    /// Age of a target's oldest leaf.
    pub(super) fn oldest(&mut self, slot: ReplicaIndex, nodes: &Nodes) -> Option<u64> {
        let (stamp, _) = self.oldest_of(slot, nodes)?;
        Some(stamp)
    }

    /// Age and owner of a target's oldest leaf.
    #[inline]
    pub(super) fn oldest_of(&mut self, slot: ReplicaIndex, nodes: &Nodes) -> Option<(u64, Owner)> {
        let target = self.targets.get_mut(slot.index())?;
        while let Some(record) = target.leaves.peek() {
            if is_fresh(record, slot, nodes) {
                return Some((record.0.0, record.0.2));
            }
            target.leaves.pop();
            self.records -= 1;
        }
        None
    }

    /// Removes the record of a target's oldest leaf.
    pub(super) fn pop(
        &mut self,
        slot: ReplicaIndex,
        nodes: &Nodes,
    ) -> Option<(u64, NodeId, Owner)> {
        self.oldest_of(slot, nodes)?;
        let target = self.targets.get_mut(slot.index())?;
        let Reverse(record) = target.leaves.pop()?;
        self.records -= 1;
        Some(record)
    }

    /// The record that a new leaf of a target must precede to be the first; none can, where its push would drop stale ones.
    pub(super) fn first_record(&self, slot: ReplicaIndex) -> (u64, NodeId) {
        match self.targets.get(slot.index()) {
            Some(target) if target.leaves.len() < target.records_max() => {
                let first = target.leaves.peek();
                first.map_or((u64::MAX, NodeId::MAX), |Reverse((stamp, id, _))| {
                    (*stamp, *id)
                })
            }
            Some(_) | None => (0, 0),
        }
    }

    /// The target with the oldest leaf of all.
    pub(super) fn oldest_of_all(&mut self, nodes: &Nodes) -> Option<ReplicaIndex> {
        loop {
            let (key, slot) = *self.oldest.first()?;
            let age = self.oldest(slot, nodes);
            if age == Some(key) {
                return Some(slot);
            }
            self.set_key(slot, age);
        }
    }

    fn set_key(&mut self, slot: ReplicaIndex, key: Option<u64>) {
        let Some(target) = self.targets.get_mut(slot.index()) else {
            return;
        };
        if let Some(old) = core::mem::replace(&mut target.key, key) {
            self.oldest.remove(&(old, slot));
        }
        if let Some(key) = key {
            self.oldest.insert((key, slot));
        }
    }

    fn free_if_empty(&mut self, slot: ReplicaIndex) {
        let Some(target) = self.targets.get_mut(slot.index()) else {
            return;
        };
        if target.entries > 0 {
            return;
        }
        // Only stale records are left.
        self.records -= target.leaves.len();
        target.leaves = BinaryHeap::new();
        target.live = 0;
        if self.retired.remove(&slot) {
            self.free.insert(slot);
        }
        self.set_key(slot, None);
    }
}

/// Whether a record agrees with its node.
fn is_fresh(record: &Record, slot: ReplicaIndex, nodes: &Nodes) -> bool {
    let Reverse((stamp, id, _)) = *record;
    nodes
        .entry(id, slot)
        .is_some_and(|entry| entry.children == 0 && entry.stamp == stamp)
}

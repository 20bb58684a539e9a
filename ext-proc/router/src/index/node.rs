//! Nodes of the prefix index and their targets.
//!
//! Almost every node belongs to one conversation and has one target, which lies inside the node: 32 bytes, two nodes per
//! cache line. A node with several targets (a system prompt) keeps them in a sorted list elsewhere.

use super::slab::{NONE, Slab};
use crate::replica_index::{ReplicaIndex, ReplicaSet};

pub(super) type NodeId = u32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Time of insertion or last use, in ticks of the index; valid for leaves of the target only.
    pub(super) stamp: u64,
    /// Number of nodes directly below that the target holds too; zero for a leaf.
    pub(super) children: u32,
    pub(super) slot: ReplicaIndex,
    /// Prompt length between the parent and the node, in units of [`SPAN_BYTES`]; the same for all targets.
    pub(super) span: u16,
}

#[derive(Debug)]
pub(super) struct Node {
    /// Block hash, the node's key.
    pub(super) hash: u64,
    /// The entry of a single target.
    entry: Entry,
    /// Node of the prefix that is one block shorter, or [`NONE`].
    pub(super) parent: NodeId,
    /// With several targets, the number of their list. Otherwise, marked with [`SINGLE_TARGET`], a hint: the depth of the
    /// deepest prefix of this node that several targets held when the node was created.
    shared: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RemovedEntry {
    pub(super) hash: u64,
    pub(super) parent: NodeId,
    pub(super) span: u16,
    /// Whether the node was removed with its last entry.
    pub(super) is_node_removed: bool,
}

/// Unit of a node's span, in bytes.
pub(super) const SPAN_BYTES: u32 = 64;

/// Marks a node with one target.
const SINGLE_TARGET: u32 = 1 << 31;

/// The target of a number without a node.
const NO_TARGET: ReplicaIndex = ReplicaIndex(u16::MAX);

/// Ratio of a node's targets to the wanted ones above which each wanted one is looked up.
const LOOKUP_RATIO: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: Slab<Node>,
    shared: Slab<Vec<Entry>>,
    shared_entries: usize,
}

impl Nodes {
    pub(super) const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Number of entries outside of their nodes.
    pub(super) const fn shared_entries(&self) -> usize {
        self.shared_entries
    }

    /// Number above every node's number.
    pub(super) fn end(&self) -> NodeId {
        self.nodes.end()
    }

    /// The entry of a live node with one target.
    pub(super) fn single(&self, id: NodeId) -> Option<&Entry> {
        let node = self.nodes.get(id)?;
        (!node.is_shared() && node.entry.slot != NO_TARGET).then_some(&node.entry)
    }

    #[inline]
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// A new node with its first target.
    pub(super) fn create(
        &mut self,
        hash: u64,
        parent: NodeId,
        entry: Entry,
        fork: usize,
    ) -> Option<NodeId> {
        self.nodes.insert(Node {
            hash,
            entry,
            parent,
            shared: u32::try_from(fork).map_or(NONE, |fork| fork | SINGLE_TARGET),
        })
    }

    /// For a node with one target: the depth of its deepest prefix with several targets. A hint, which may be outdated.
    pub(super) fn fork(&self, id: NodeId) -> Option<usize> {
        let hint = self.nodes.get(id)?.shared;
        (hint & SINGLE_TARGET != 0 && hint != NONE).then_some((hint & !SINGLE_TARGET) as usize)
    }

    /// The hint of [`Self::fork`] for a new child of this node, which lies at `depth`.
    pub(super) fn fork_below(&self, id: NodeId, depth: usize) -> usize {
        match self.nodes.get(id) {
            Some(node) if node.is_shared() => depth,
            Some(_) => self.fork(id).unwrap_or_default(),
            None => 0,
        }
    }

    pub(super) fn entry(&self, id: NodeId, slot: ReplicaIndex) -> Option<&Entry> {
        let node = self.nodes.get(id)?;
        if !node.is_shared() {
            return Some(&node.entry).filter(|entry| entry.slot == slot);
        }
        let entries = self.shared.get(node.shared)?;
        entries.get(position_of(entries, slot).ok()?)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, id: NodeId, slot: ReplicaIndex) -> Option<&mut Entry> {
        let node = self.nodes.get_mut(id)?;
        if !node.is_shared() {
            return Some(&mut node.entry).filter(|entry| entry.slot == slot);
        }
        let entries = self.shared.get_mut(node.shared)?;
        let at = position_of(entries, slot).ok()?;
        entries.get_mut(at)
    }

    /// Adds an entry for a target; `None` if the node has one already.
    pub(super) fn add_entry(&mut self, id: NodeId, entry: Entry) -> Option<()> {
        let node = self.nodes.get_mut(id)?;
        if node.is_shared() {
            let entries = self.shared.get_mut(node.shared)?;
            let at = position_of(entries, entry.slot).err()?;
            entries.insert(at, entry);
            self.shared_entries += 1;
            return Some(());
        }
        if node.entry.slot == entry.slot {
            return None;
        }
        let mut both = vec![node.entry, entry];
        both.sort_unstable_by_key(|e| e.slot);
        let at = self.shared.insert(both);
        node.shared = at.filter(|at| at & SINGLE_TARGET == 0)?;
        self.shared_entries += 2;
        Some(())
    }

    /// Removes a target's entry, and the node with its last entry.
    pub(super) fn remove(&mut self, id: NodeId, slot: ReplicaIndex) -> Option<RemovedEntry> {
        let node = self.nodes.get_mut(id)?;
        let removed = RemovedEntry {
            hash: node.hash,
            parent: node.parent,
            span: node.entry.span,
            is_node_removed: !node.is_shared(),
        };
        if removed.is_node_removed {
            if node.entry.slot != slot {
                return None;
            }
            self.nodes.remove(id);
            return Some(removed);
        }
        let entries = self.shared.get_mut(node.shared)?;
        let at = position_of(entries, slot).ok()?;
        entries.remove(at);
        self.shared_entries -= 1;
        if let [last] = entries.as_slice() {
            node.entry = *last;
            let list = core::mem::replace(&mut node.shared, NONE);
            self.shared.remove(list);
            self.shared_entries -= 1;
        }
        Some(removed)
    }

    /// Removes one child of a target's entry. If that was the last child, the node becomes a leaf and takes over the stamp
    /// `inherits`, if that is later; returns the leaf's stamp.
    pub(super) fn remove_child(
        &mut self,
        id: NodeId,
        slot: ReplicaIndex,
        inherits: u64,
    ) -> Option<u64> {
        let entry = self.entry_mut(id, slot)?;
        entry.children = entry.children.saturating_sub(1);
        if entry.children > 0 {
            return None;
        }
        entry.stamp = inherits.max(entry.stamp);
        Some(entry.stamp)
    }

    #[inline]
    pub(super) fn has_any(&self, id: NodeId, among: &ReplicaSet) -> bool {
        let Some(node) = self.nodes.get(id) else {
            return false;
        };
        if !node.is_shared() {
            return among.contains(node.entry.slot);
        }
        let Some(entries) = self.shared.get(node.shared) else {
            return false;
        };
        if among.len() * LOOKUP_RATIO < entries.len() {
            return among.iter().any(|slot| position_of(entries, slot).is_ok());
        }
        entries.iter().any(|e| among.contains(e.slot))
    }

    pub(super) fn targets(&self, id: NodeId) -> impl Iterator<Item = ReplicaIndex> + '_ {
        self.entries(id).iter().map(|entry| entry.slot)
    }

    /// All targets of a node, from one that `start` names on, and around.
    pub(super) fn targets_from(
        &self,
        id: NodeId,
        start: u64,
    ) -> impl Iterator<Item = ReplicaIndex> + '_ {
        let entries = self.entries(id);
        let count = entries.len().max(1) as u64;
        let at = usize::try_from(start % count).unwrap_or_default();
        let (before, from) = entries.split_at_checked(at).unwrap_or_default();
        from.iter().chain(before).map(|entry| entry.slot)
    }

    fn entries(&self, id: NodeId) -> &[Entry] {
        match self.nodes.get(id) {
            Some(node) if node.is_shared() => {
                self.shared.get(node.shared).map_or(&[], Vec::as_slice)
            }
            Some(node) => core::slice::from_ref(&node.entry),
            None => &[],
        }
    }
}

/// Position of a target's entry in a sorted list, or where it would be. Targets are numbered densely, so the position is the
/// target's number less the missing ones below it: one step in the list of a system prompt that every target holds.
fn position_of(entries: &[Entry], slot: ReplicaIndex) -> Result<usize, usize> {
    let Some(last) = entries.last() else {
        return Err(0);
    };
    if last.slot < slot {
        return Err(entries.len());
    }
    let missing = (last.slot.index() + 1).saturating_sub(entries.len());
    let from = slot.index().saturating_sub(missing);
    let to = entries.len().min(slot.index() + 1);
    let near = entries.get(from..to).unwrap_or_default();
    near.binary_search_by_key(&slot, |entry| entry.slot)
        .map(|at| from + at)
        .map_err(|at| from + at)
}

impl Node {
    const fn is_shared(&self) -> bool {
        self.shared & SINGLE_TARGET == 0
    }

    pub(super) const fn span(&self) -> u16 {
        self.entry.span
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            hash: 0,
            entry: Entry {
                slot: NO_TARGET,
                ..Entry::default()
            },
            parent: NONE,
            shared: NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_half_a_cache_line() {
        assert_eq!(size_of::<Node>(), 32);
        assert_eq!(size_of::<Entry>(), 16);
    }

    #[test]
    fn a_place_in_a_list_is_found_wherever_some_are_missing() {
        for members in 0_u32..1 << 9 {
            let present = (0..9_u16).filter(|slot| members & (1 << slot) != 0);
            let entries: Vec<Entry> = present
                .map(|slot| Entry {
                    stamp: 1,
                    children: 0,
                    slot: ReplicaIndex(slot),
                    span: 4,
                })
                .collect();
            for slot in (0..10).map(ReplicaIndex) {
                let expected = entries.binary_search_by_key(&slot, |entry| entry.slot);
                assert_eq!(
                    position_of(&entries, slot),
                    expected,
                    "{slot:?} in {entries:?}"
                );
            }
        }
    }

    #[test]
    fn a_node_goes_with_its_last_target() {
        let entry = |slot| Entry {
            stamp: 1,
            children: 0,
            slot: ReplicaIndex(slot),
            span: 4,
        };
        let mut nodes = Nodes::default();
        let id = nodes.create(9, NONE, entry(3), 0).unwrap();
        nodes.add_entry(id, entry(1));
        nodes.add_entry(id, entry(2));
        assert_eq!(
            nodes.targets(id).collect::<Vec<_>>(),
            [ReplicaIndex(1), ReplicaIndex(2), ReplicaIndex(3)]
        );
        assert_eq!(nodes.shared_entries(), 3);
        assert!(!nodes.remove(id, ReplicaIndex(3)).unwrap().is_node_removed);
        assert!(!nodes.remove(id, ReplicaIndex(1)).unwrap().is_node_removed);
        assert!(nodes.remove(id, ReplicaIndex(1)).is_none());
        assert_eq!(nodes.shared_entries(), 0);
        assert_eq!(nodes.targets(id).collect::<Vec<_>>(), [ReplicaIndex(2)]);
        let last = nodes.remove(id, ReplicaIndex(2)).unwrap();
        assert_eq!((last.hash, last.is_node_removed), (9, true));
        assert_eq!(nodes.len(), 0);
    }
}

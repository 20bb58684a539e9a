//! Nodes of the prefix index and their targets.
//!
//! Almost every node belongs to one conversation and has one target, which lies inside the node: 32 bytes, two nodes per
//! cache line. A node with several targets (a system prompt) keeps them in a sorted list elsewhere.

use super::slab::{NONE, Slab};
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// Number of a node.
pub(super) type NodeId = u32;

/// One target's entry at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Time of insertion or last use, in ticks of the index; valid for leaves of the target only.
    pub(super) stamp: u64,
    /// Number of nodes directly below that the target holds too; zero for a leaf.
    pub(super) children: u32,
    /// The target.
    pub(super) slot: ReplicaIndex,
}

/// A prefix.
#[derive(Debug)]
pub(super) struct Node {
    /// Block hash, the node's key.
    pub(super) hash: u64,
    stamp: u64,
    /// Node of the prefix that is one block shorter, or [`NONE`].
    pub(super) parent: NodeId,
    children: u32,
    /// With several targets, the number of their list. Otherwise, marked with [`SINGLE_TARGET`], a hint: the depth of the
    /// deepest prefix of this node that several targets held when the node was created.
    shared: u32,
    slot: ReplicaIndex,
    /// Prompt length between the parent and this node, in units of [`SPAN_BYTES`].
    pub(super) span: u16,
}

/// The node of a removed entry.
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

/// Ratio of a node's targets to the wanted ones above which each wanted one is looked up.
const LOOKUP_RATIO: usize = 8;

/// All nodes.
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

    #[inline]
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// Whether this number is the live node of this hash.
    #[inline]
    pub(super) fn is_of(&self, id: NodeId, hash: u64) -> bool {
        let node = self.nodes.get(id);
        node.is_some_and(|node| node.hash == hash && node.slot != Node::BLANK.slot)
    }

    /// A new node with its first target.
    pub(super) fn create(
        &mut self,
        hash: u64,
        parent: NodeId,
        span: u16,
        entry: Entry,
        fork: usize,
    ) -> Option<NodeId> {
        self.nodes.insert(Node {
            hash,
            stamp: entry.stamp,
            parent,
            children: entry.children,
            shared: u32::try_from(fork).map_or(NONE, |fork| fork | SINGLE_TARGET),
            slot: entry.slot,
            span,
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

    /// The target's entry at a node.
    pub(super) fn entry(&self, id: NodeId, slot: ReplicaIndex) -> Option<Entry> {
        let node = self.nodes.get(id)?;
        if !node.is_shared() {
            return (node.slot == slot).then_some(node.only());
        }
        let entries = self.shared.get(node.shared)?;
        let at = position_of(entries, slot).ok()?;
        entries.get(at).copied()
    }

    /// Replaces an existing entry.
    pub(super) fn set_entry(&mut self, id: NodeId, entry: Entry) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        if !node.is_shared() {
            node.set_only(entry);
            return;
        }
        if let Some(entries) = self.shared.get_mut(node.shared)
            && let Ok(at) = position_of(entries, entry.slot)
            && let Some(place) = entries.get_mut(at)
        {
            *place = entry;
        }
    }

    /// Adds an entry for a target; `false` if the node has one already.
    pub(super) fn add_entry(&mut self, id: NodeId, entry: Entry) -> bool {
        let Some(node) = self.nodes.get_mut(id) else {
            return false;
        };
        if !node.is_shared() {
            if node.slot == entry.slot {
                return false;
            }
            let mut both = vec![node.only(), entry];
            both.sort_unstable_by_key(|e| e.slot);
            let Some(at) = self
                .shared
                .insert(both)
                .filter(|at| at & SINGLE_TARGET == 0)
            else {
                return false;
            };
            node.shared = at;
            self.shared_entries += 2;
            return true;
        }
        if let Some(entries) = self.shared.get_mut(node.shared)
            && let Err(at) = position_of(entries, entry.slot)
        {
            entries.insert(at, entry);
            self.shared_entries += 1;
            return true;
        }
        false
    }

    /// Removes a target's entry, and the node with its last entry.
    pub(super) fn remove(&mut self, id: NodeId, slot: ReplicaIndex) -> Option<RemovedEntry> {
        let node = self.nodes.get_mut(id)?;
        let mut removed = RemovedEntry {
            hash: node.hash,
            parent: node.parent,
            span: node.span,
            is_node_removed: false,
        };
        if !node.is_shared() {
            if node.slot != slot {
                return None;
            }
            self.nodes.remove(id, Node::BLANK);
            removed.is_node_removed = true;
            return Some(removed);
        }
        let entries = self.shared.get_mut(node.shared)?;
        let at = position_of(entries, slot).ok()?;
        entries.remove(at);
        self.shared_entries -= 1;
        if let [last] = entries.as_slice() {
            node.set_only(*last);
            let list = core::mem::replace(&mut node.shared, NONE);
            self.shared.remove(list, Vec::new());
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
        let node = self.nodes.get_mut(id)?;
        if !node.is_shared() {
            if node.slot != slot {
                return None;
            }
            return decrement_children(&mut node.children, &mut node.stamp, inherits);
        }
        let entries = self.shared.get_mut(node.shared)?;
        let at = position_of(entries, slot).ok()?;
        let entry = entries.get_mut(at)?;
        decrement_children(&mut entry.children, &mut entry.stamp, inherits)
    }

    /// Whether one of the node's targets is in the set.
    #[inline]
    pub(super) fn has_any(&self, id: NodeId, among: &ReplicaSet) -> bool {
        let Some(node) = self.nodes.get(id) else {
            return false;
        };
        if !node.is_shared() {
            return among.contains(node.slot);
        }
        let Some(entries) = self.shared.get(node.shared) else {
            return false;
        };
        if among.len() * LOOKUP_RATIO < entries.len() {
            return among.iter().any(|slot| position_of(entries, slot).is_ok());
        }
        entries.iter().any(|e| among.contains(e.slot))
    }

    /// Number of a node's targets.
    pub(super) fn target_count(&self, id: NodeId) -> usize {
        match self.nodes.get(id) {
            Some(node) if node.is_shared() => self.shared.get(node.shared).map_or(0, Vec::len),
            Some(_) => 1,
            None => 0,
        }
    }

    /// Targets of a node, in order.
    pub(super) fn targets(&self, id: NodeId) -> impl Iterator<Item = ReplicaIndex> + '_ {
        let node = self.nodes.get(id);
        let only = node.filter(|node| !node.is_shared()).map(|n| n.slot);
        let many = node
            .filter(|node| node.is_shared())
            .and_then(|node| self.shared.get(node.shared))
            .into_iter()
            .flatten()
            .map(|e| e.slot);
        only.into_iter().chain(many)
    }
}

#[inline]
fn decrement_children(children: &mut u32, stamp: &mut u64, inherits: u64) -> Option<u64> {
    *children = children.saturating_sub(1);
    if *children > 0 {
        return None;
    }
    *stamp = inherits.max(*stamp);
    Some(*stamp)
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
    match near.binary_search_by_key(&slot, |entry| entry.slot) {
        Ok(at) => Ok(from + at),
        Err(at) => Err(from + at),
    }
}

impl Node {
    const BLANK: Self = Self {
        hash: 0,
        stamp: 0,
        parent: NONE,
        children: 0,
        shared: NONE,
        slot: ReplicaIndex(u16::MAX),
        span: 0,
    };

    const fn is_shared(&self) -> bool {
        self.shared & SINGLE_TARGET == 0
    }

    const fn only(&self) -> Entry {
        Entry {
            stamp: self.stamp,
            children: self.children,
            slot: self.slot,
        }
    }

    const fn set_only(&mut self, entry: Entry) {
        self.stamp = entry.stamp;
        self.children = entry.children;
        self.slot = entry.slot;
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
        };
        let mut nodes = Nodes::default();
        let id = nodes.create(9, NONE, 4, entry(3), 0).unwrap();
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

//! Nodes of the prefix index, and the targets that each holds.
//!
//! Almost every node is one conversation's and has one target, which lies inside the node: 32 bytes in all, two
//! nodes to a cache line. A node that several targets share (a system prompt) keeps them in a sorted list aside.

use super::slab::{NONE, Slab};
use crate::slots::{Slot, SlotSet};

/// A node's number.
pub(super) type NodeId = u32;

/// What one target has to do with one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When it was inserted or used, in ticks of the index; for the leaves of a target only.
    pub(super) stamp: u64,
    /// How many nodes right below this one the target has too: it is a leaf of that target at zero.
    pub(super) children: u32,
    /// The target.
    pub(super) slot: Slot,
}

/// One prefix.
#[derive(Debug)]
pub(super) struct Node {
    /// Its hash, which is its key.
    pub(super) hash: u64,
    stamp: u64,
    /// The prefix one edge shorter, or [`NONE`].
    pub(super) parent: NodeId,
    children: u32,
    /// Where its targets are when it has several, or [`NONE`].
    shared: u32,
    slot: Slot,
    /// How much of the prompt lies between its parent and it, in units of [`SPAN_BYTES`].
    pub(super) span: u16,
}

/// Unit of a node's span.
pub(super) const SPAN_BYTES: u32 = 64;

/// Below this share of a node's targets it is cheaper to look each wanted one up than to read through them.
const LOOK_UP_BELOW: usize = 8;

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

    /// Entries that lie outside of their nodes.
    pub(super) const fn shared_entries(&self) -> usize {
        self.shared_entries
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
        span: u16,
        entry: Entry,
    ) -> Option<NodeId> {
        self.nodes.insert(Node {
            hash,
            stamp: entry.stamp,
            parent,
            children: entry.children,
            shared: NONE,
            slot: entry.slot,
            span,
        })
    }

    /// What this target has to do with this node.
    pub(super) fn entry(&self, id: NodeId, slot: Slot) -> Option<Entry> {
        let node = self.nodes.get(id)?;
        if node.shared == NONE {
            return (node.slot == slot).then_some(node.only());
        }
        let entries = self.shared.get(node.shared)?;
        let at = entries.binary_search_by_key(&slot, |e| e.slot).ok()?;
        entries.get(at).copied()
    }

    /// Replaces an entry that is there.
    pub(super) fn set_entry(&mut self, id: NodeId, entry: Entry) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        if node.shared == NONE {
            node.put_only(entry);
            return;
        }
        if let Some(entries) = self.shared.get_mut(node.shared)
            && let Ok(at) = entries.binary_search_by_key(&entry.slot, |e| e.slot)
            && let Some(place) = entries.get_mut(at)
        {
            *place = entry;
        }
    }

    /// Adds an entry for a target; `false` when the node has it already.
    pub(super) fn add_entry(&mut self, id: NodeId, entry: Entry) -> bool {
        let Some(node) = self.nodes.get_mut(id) else {
            return false;
        };
        if node.shared == NONE {
            if node.slot == entry.slot {
                return false;
            }
            let mut both = vec![node.only(), entry];
            both.sort_unstable_by_key(|e| e.slot);
            let Some(at) = self.shared.insert(both) else {
                return false;
            };
            node.shared = at;
            self.shared_entries += 2;
            return true;
        }
        if let Some(entries) = self.shared.get_mut(node.shared)
            && let Err(at) = entries.binary_search_by_key(&entry.slot, |e| e.slot)
        {
            entries.insert(at, entry);
            self.shared_entries += 1;
            return true;
        }
        false
    }

    /// Removes a target's entry; the node goes with its last one, and is then returned.
    pub(super) fn remove_entry(&mut self, id: NodeId, slot: Slot) -> Option<Node> {
        let node = self.nodes.get_mut(id)?;
        if node.shared == NONE {
            return if node.slot == slot {
                self.nodes.remove(id, Node::BLANK)
            } else {
                None
            };
        }
        let entries = self.shared.get_mut(node.shared)?;
        let at = entries.binary_search_by_key(&slot, |e| e.slot).ok()?;
        entries.remove(at);
        self.shared_entries -= 1;
        if let [last] = entries.as_slice() {
            node.put_only(*last);
            let list = core::mem::replace(&mut node.shared, NONE);
            self.shared.remove(list, Vec::new());
            self.shared_entries -= 1;
        }
        None
    }

    /// Whether one of the node's targets is among these.
    #[inline]
    pub(super) fn has_any(&self, id: NodeId, among: &SlotSet) -> bool {
        let Some(node) = self.nodes.get(id) else {
            return false;
        };
        if node.shared == NONE {
            return among.contains(node.slot);
        }
        let Some(entries) = self.shared.get(node.shared) else {
            return false;
        };
        if among.len() * LOOK_UP_BELOW < entries.len() {
            return among
                .iter()
                .any(|slot| entries.binary_search_by_key(&slot, |e| e.slot).is_ok());
        }
        entries.iter().any(|e| among.contains(e.slot))
    }

    /// All targets of a node, in order.
    pub(super) fn targets(&self, id: NodeId) -> impl Iterator<Item = Slot> + '_ {
        let node = self.nodes.get(id);
        let only = node.filter(|node| node.shared == NONE).map(|n| n.slot);
        let many = node
            .and_then(|node| self.shared.get(node.shared))
            .into_iter()
            .flatten()
            .map(|e| e.slot);
        only.into_iter().chain(many)
    }
}

impl Node {
    const BLANK: Self = Self {
        hash: 0,
        stamp: 0,
        parent: NONE,
        children: 0,
        shared: NONE,
        slot: Slot(u16::MAX),
        span: 0,
    };

    const fn only(&self) -> Entry {
        Entry {
            stamp: self.stamp,
            children: self.children,
            slot: self.slot,
        }
    }

    const fn put_only(&mut self, entry: Entry) {
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
    fn a_node_goes_with_its_last_target() {
        let entry = |slot| Entry {
            stamp: 1,
            children: 0,
            slot: Slot(slot),
        };
        let mut nodes = Nodes::default();
        let id = nodes.create(9, NONE, 4, entry(3)).unwrap();
        nodes.add_entry(id, entry(1));
        nodes.add_entry(id, entry(2));
        assert_eq!(
            nodes.targets(id).collect::<Vec<_>>(),
            [Slot(1), Slot(2), Slot(3)]
        );
        assert_eq!(nodes.shared_entries(), 3);
        assert!(nodes.remove_entry(id, Slot(3)).is_none());
        assert!(nodes.remove_entry(id, Slot(1)).is_none());
        assert_eq!(nodes.shared_entries(), 0);
        assert_eq!(nodes.targets(id).collect::<Vec<_>>(), [Slot(2)]);
        assert_eq!(nodes.remove_entry(id, Slot(2)).map(|n| n.hash), Some(9));
        assert_eq!(nodes.len(), 0);
    }
}

//! The longest prefix of a chain that *each* of many targets has.
//!
//! Most targets have nothing of a prompt, or just the system prompt that all share, and one or two have most of it. So
//! this goes from the deepest prefix that anybody has to the next deepest that anybody else has, each a binary search.
//! It costs as many searches as there are different depths, which are few, instead of one for each target; and never
//! more than there are edges.

use isotherm_fingerprint::Edge;

use super::{Match, PrefixIndex};
use crate::slots::{Slot, SlotSet};

impl PrefixIndex {
    /// Shows each of these targets once, with the longest prefix of the chain that it has: deepest first, and in order
    /// among those that have the same.
    pub(crate) fn each_deepest(
        &self,
        edges: &[Edge],
        among: &SlotSet,
        mut show: impl FnMut(Slot, &Match),
    ) {
        let mut left = among.clone();
        let mut shorter = edges;
        while !left.is_empty() {
            let found = self.deepest(shorter, &left);
            if found.node.is_none() {
                break;
            }
            for slot in found.node.into_iter().flat_map(|id| self.nodes.targets(id)) {
                if left.set(slot, false) {
                    show(slot, &found);
                }
            }
            shorter = shorter
                .get(..found.depth.saturating_sub(1))
                .unwrap_or_default();
        }
        for slot in left.iter() {
            show(slot, &Match::default());
        }
    }
}

//! Searches for the longest prefix of a chain that is known, or that a target holds (`docs/design/prefix-index.md`).
//!
//! The deepest known prefix comes first, from the table alone. Mostly a wanted target holds it, and the search ends. Otherwise
//! the node has a hint, the depth of the deepest prefix that several targets hold, or a binary search asks node by node.

use isotherm_fingerprint::BlockHash;

use super::node::NodeId;
use super::slab::NONE;
use super::{PrefixIndex, PrefixMatch};
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// Places that one round of a search probes.
pub(super) const PROBES_PER_ROUND: usize = 8;
/// Doublings of the distance from the end in the first round, at most.
const DOUBLINGS_MAX: u32 = 16;
/// Steps of a binary search that are prefetched together.
const STEPS_AHEAD: u32 = 3;
/// The landmark of a chain lies behind the first one of this many parts.
pub(super) const LANDMARK_FRACTION: usize = 4;

impl PrefixIndex {
    /// The longest known prefix of the chain; its targets may be retired.
    pub(crate) fn known(&self, blocks: &[BlockHash]) -> PrefixMatch {
        self.prefetch_known(blocks);
        self.find_known(blocks)
    }

    /// The prefix of about a quarter of the chain, if it is known. Its read overlaps those of [`Self::prefetch_known`].
    pub(crate) fn landmark(&self, blocks: &[BlockHash]) -> Option<PrefixMatch> {
        let at = blocks.len() / LANDMARK_FRACTION;
        self.holder_at(blocks, at, |_| true)
    }

    pub(crate) fn any_has(&self, matched: &PrefixMatch, among: &ReplicaSet) -> bool {
        matched.node.is_some_and(|id| self.nodes.has_any(id, among))
    }

    /// The longest known prefix of the chain, after [`Self::prefetch_known`].
    pub(crate) fn find_known(&self, blocks: &[BlockHash]) -> PrefixMatch {
        let mut bounds = Bounds {
            low: 0,
            high: blocks.len(),
            node: NONE,
        };
        self.narrow(blocks, &mut bounds, probes_near_end(blocks.len()));
        while bounds.low < bounds.high {
            let probes = probes_between(bounds.low, bounds.high);
            self.prefetch_unread(blocks, probes.clone());
            self.narrow(blocks, &mut bounds, probes);
        }
        let Bounds { low, node, .. } = bounds;
        let deepest = low.checked_sub(1).and_then(|at| blocks.get(at));
        match deepest {
            None => PrefixMatch::default(),
            Some(block) if self.nodes.get(node).is_some_and(|n| n.hash == block.hash) => {
                PrefixMatch::at(low, Some(node))
            }
            // Two prefixes with the same tag in the same shard: about one in 2^40.
            Some(_) => self.bisect(blocks, PrefixMatch::default(), blocks.len(), |_| true),
        }
    }

    /// Narrows the bounds by probes in ascending order: the last known one and the first unknown one are the new bounds.
    fn narrow(
        &self,
        blocks: &[BlockHash],
        bounds: &mut Bounds,
        probes: impl Iterator<Item = usize>,
    ) {
        for at in probes {
            let block = blocks.get(at);
            let id = block.map_or(NONE, |block| self.table.guess(block.hash));
            if id == NONE {
                bounds.high = at;
                return;
            }
            (bounds.low, bounds.node) = (at + 1, id);
        }
    }

    /// The longest prefix of the chain that a target of the set holds.
    pub(crate) fn deepest(&self, blocks: &[BlockHash], among: &ReplicaSet) -> PrefixMatch {
        if among.is_empty() {
            return PrefixMatch::default();
        }
        self.deepest_within(blocks, &self.known(blocks), among)
    }

    /// The longest prefix that a target of the set holds, no longer than `most`.
    pub(crate) fn deepest_within(
        &self,
        blocks: &[BlockHash],
        most: &PrefixMatch,
        among: &ReplicaSet,
    ) -> PrefixMatch {
        if among.is_empty() {
            return PrefixMatch::default();
        }
        self.search(blocks, most, |id| self.nodes.has_any(id, among))
    }

    /// The longest prefix of the chain that this target holds.
    pub(crate) fn deepest_of(&self, blocks: &[BlockHash], slot: ReplicaIndex) -> PrefixMatch {
        self.deepest_of_within(blocks, &self.known(blocks), slot)
    }

    /// The longest prefix that this target holds, no longer than `most`.
    pub(crate) fn deepest_of_within(
        &self,
        blocks: &[BlockHash],
        most: &PrefixMatch,
        slot: ReplicaIndex,
    ) -> PrefixMatch {
        self.search(blocks, most, |id| self.nodes.entry(id, slot).is_some())
    }

    fn search(
        &self,
        blocks: &[BlockHash],
        most: &PrefixMatch,
        holds: impl Fn(NodeId) -> bool,
    ) -> PrefixMatch {
        let Some(deepest) = most.node else {
            return PrefixMatch::default();
        };
        if holds(deepest) {
            return *most;
        }
        let shorter = most.depth.saturating_sub(1);
        match self.nodes.fork(deepest) {
            Some(fork) if fork < shorter => self.search_around(blocks, fork, shorter, holds),
            Some(_) | None => self.bisect(blocks, PrefixMatch::default(), shorter, holds),
        }
    }

    /// The longest prefix shorter than `high` that satisfies `holds`, presumably of length `presumed`.
    fn search_around(
        &self,
        blocks: &[BlockHash],
        presumed: usize,
        high: usize,
        holds: impl Fn(NodeId) -> bool,
    ) -> PrefixMatch {
        let around = presumed.saturating_sub(1)..=presumed;
        self.prefetch_nodes(around.filter_map(|at| blocks.get(at)));
        let known = match presumed.checked_sub(1) {
            None => PrefixMatch::default(),
            Some(at) => match self.holder_at(blocks, at, &holds) {
                None => return self.bisect(blocks, PrefixMatch::default(), at, holds),
                Some(matched) => matched,
            },
        };
        match self.holder_at(blocks, presumed, &holds) {
            None => known,
            Some(longer) => self.bisect(blocks, longer, high, holds),
        }
    }

    /// The longest prefix of at most `high` blocks that satisfies `holds`, by binary search from `known` on.
    fn bisect(
        &self,
        blocks: &[BlockHash],
        known: PrefixMatch,
        mut high: usize,
        holds: impl Fn(NodeId) -> bool,
    ) -> PrefixMatch {
        let mut matched = known;
        if matched.depth == 0 && high > STEPS_AHEAD as usize {
            // Most targets hold nothing of a prompt.
            match self.holder_at(blocks, 0, &holds) {
                Some(first) => matched = first,
                None => return matched,
            }
        }
        let mut step = 0_u32;
        while matched.depth < high {
            if step.is_multiple_of(STEPS_AHEAD) {
                self.prefetch_steps(blocks, matched.depth, high);
            }
            step += 1;
            let middle = usize::midpoint(matched.depth, high);
            match self.holder_at(blocks, middle, &holds) {
                Some(longer) => matched = longer,
                None => high = middle,
            }
        }
        matched
    }

    /// The prefix that ends with this block, if it is known and satisfies `holds`.
    #[inline]
    fn holder_at(
        &self,
        blocks: &[BlockHash],
        at: usize,
        holds: impl Fn(NodeId) -> bool,
    ) -> Option<PrefixMatch> {
        let block = blocks.get(at)?;
        let id = self.table.find(&self.nodes, block.hash)?;
        holds(id).then_some(PrefixMatch::at(at + 1, Some(id)))
    }
}

/// Bounds of the longest known prefix in blocks, and the node of the lower one.
struct Bounds {
    low: usize,
    high: usize,
    node: NodeId,
}

/// Probes from the middle of a chain to its end; each halves the distance to the end.
pub(super) fn probes_near_end(len: usize) -> impl Iterator<Item = usize> + Clone {
    let most = (len / 2 + 1).min(len);
    let doublings = most.checked_ilog2().map_or(0, |log| log + 1);
    (0..doublings.min(DOUBLINGS_MAX))
        .rev()
        .map(move |log| len - (1 << log))
}

/// Probes at even distances between two bounds, in ascending order.
fn probes_between(low: usize, high: usize) -> impl Iterator<Item = usize> + Clone {
    let left = high.saturating_sub(low);
    let probes = left.min(PROBES_PER_ROUND - 1);
    (1..=probes).map(move |nth| {
        if left < PROBES_PER_ROUND {
            low + nth - 1
        } else {
            low + left * nth / PROBES_PER_ROUND
        }
    })
}

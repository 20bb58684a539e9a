//! The longest prefix of a chain that somebody has.
//!
//! *Known at all* comes first, and from the table alone: whether a prefix is there takes one cache line, who has it takes
//! its node's besides. Mostly whoever has the longest known prefix is among those that are asked about, and that is the
//! answer. Else its node has a hint where others have the prefix too (behind the system prompt), which is mostly right; and
//! else a binary search among the shorter ones asks node by node.
//!
//! What costs is memory: a search step that waits for the one before waits for the memory each time. So several places are
//! read at once, a few rounds of them instead of many steps; the first round looks near the end of the chain, where a
//! conversation's next turn leaves what is known, and each halves what is left at least.

use core::hint::black_box;

use isotherm_fingerprint::{BlockHash, Fingerprint};
use smallvec::SmallVec;

use super::node::NodeId;
use super::slab::NONE;
use super::table::Key;
use super::{PrefixIndex, PrefixMatch};
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// How many places are read at once.
const PROBES_PER_ROUND: usize = 8;
/// How often the first round doubles its distance from the end.
const DOUBLINGS_MAX: u32 = 16;
/// How many steps of a binary search are read ahead.
const STEPS_AHEAD: u32 = 3;
/// One part in so many of a chain lies in front of its landmark.
const LANDMARK_FRACTION: usize = 4;
/// How many blocks that are about to be entered are read ahead.
pub(super) const BLOCKS_AHEAD: usize = 16;

impl PrefixIndex {
    /// The longest prefix of the chain that anybody has, be it one that left.
    pub(crate) fn known(&self, blocks: &[BlockHash]) -> PrefixMatch {
        self.prefetch_known(blocks);
        self.find_known(blocks)
    }

    /// Has the memory fetch what [`Self::find_known`] will read first.
    #[inline]
    pub(crate) fn prefetch_known(&self, blocks: &[BlockHash]) {
        // What a conversation's next turn adds is entered right afterwards, and the second round is mostly among these.
        let ahead = blocks.len().saturating_sub(BLOCKS_AHEAD);
        self.prefetch_buckets(blocks.iter().skip(ahead));
        self.prefetch_unread(blocks, probes_near_end(blocks.len()));
        self.prefetch_buckets(blocks.get(blocks.len() / LANDMARK_FRACTION).into_iter());
    }

    /// A prefix of about a quarter of the chain, where somebody has it, after [`Self::prefetch_known`]: who asks for it before
    /// anything else has its node read along with the others.
    pub(crate) fn landmark(&self, blocks: &[BlockHash]) -> Option<PrefixMatch> {
        let at = blocks.len() / LANDMARK_FRACTION;
        self.holder_at(blocks, at, |_| true)
    }

    /// Whether any of these targets has the matched prefix.
    pub(crate) fn any_has(&self, matched: &PrefixMatch, among: &ReplicaSet) -> bool {
        matched.node.is_some_and(|id| self.nodes.has_any(id, among))
    }

    /// The longest prefix of the chain that anybody has, after [`Self::prefetch_known`] and maybe something else meanwhile.
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
                PrefixMatch {
                    depth: low,
                    node: Some(node),
                }
            }
            // Two prefixes whose keys are half the same: one in 2^40 or so.
            Some(_) => self.bisect(blocks, PrefixMatch::default(), blocks.len(), |_| true),
        }
    }

    /// The same, where it was `hint` a while ago: mostly it still is, and two reads say so.
    pub(crate) fn known_from_hint(&self, blocks: &[BlockHash], hint: PrefixMatch) -> PrefixMatch {
        let last = hint.depth.checked_sub(1).and_then(|at| blocks.get(at));
        let is_there = match (last, hint.node) {
            (Some(block), Some(id)) => self.nodes.is_of(id, block.hash),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let next = blocks.get(hint.depth);
        if is_there && next.is_none_or(|block| self.table.guess(block.hash) == NONE) {
            return hint;
        }
        self.known(blocks)
    }

    /// Has the memory fetch what [`Self::known_from_hint`] will read for each of these: what comes first for all of them, then what
    /// that leads to.
    pub(crate) fn prefetch_hints<'a>(
        &self,
        hints: impl Iterator<Item = (&'a Fingerprint, PrefixMatch)> + Clone,
    ) {
        for (fingerprint, _) in hints.clone() {
            black_box(fingerprint.blocks().len());
        }
        for (fingerprint, hint) in hints.clone() {
            black_box(fingerprint.blocks().get(hint.depth));
            black_box(
                hint.node
                    .and_then(|id| self.nodes.get(id))
                    .map(|node| node.hash),
            );
        }
        for (fingerprint, hint) in hints {
            self.prefetch_buckets(fingerprint.blocks().get(hint.depth).into_iter());
        }
    }

    /// Reads these places, which are in order, at once; the last ones of the chain have been.
    fn prefetch_unread(&self, blocks: &[BlockHash], probes: impl Iterator<Item = usize>) {
        let ahead = blocks.len().saturating_sub(BLOCKS_AHEAD);
        let not_yet = probes.take_while(|at| *at < ahead);
        self.prefetch_buckets(not_yet.filter_map(|at| blocks.get(at)));
    }

    /// Asks at these places, which are in order and were read: the first one that is not known is a bound, and the last one
    /// that is.
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

    /// The prefix that is one block shorter.
    pub(crate) fn shorter(&self, matched: &PrefixMatch) -> PrefixMatch {
        let parent = matched
            .node
            .and_then(|id| self.nodes.get(id))
            .map(|n| n.parent);
        match parent.filter(|parent| *parent != NONE) {
            None => PrefixMatch::default(),
            node => PrefixMatch {
                depth: matched.depth.saturating_sub(1),
                node,
            },
        }
    }

    /// The longest prefix of the chain that one of these targets has.
    pub(crate) fn deepest(&self, blocks: &[BlockHash], among: &ReplicaSet) -> PrefixMatch {
        if among.is_empty() {
            return PrefixMatch::default();
        }
        self.deepest_within(blocks, &self.known(blocks), among)
    }

    /// The same, when it is known to be no longer than `most`.
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

    /// The longest prefix of the chain that this target has.
    pub(crate) fn deepest_of(&self, blocks: &[BlockHash], slot: ReplicaIndex) -> PrefixMatch {
        self.deepest_of_within(blocks, &self.known(blocks), slot)
    }

    /// The same, when it is known to be no longer than `most`.
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

    /// The longest prefix shorter than `high` that somebody has, presumed to be of this length.
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

    /// The longest prefix of at most `high` blocks that somebody has, who has the `known` one.
    fn bisect(
        &self,
        blocks: &[BlockHash],
        known: PrefixMatch,
        mut high: usize,
        holds: impl Fn(NodeId) -> bool,
    ) -> PrefixMatch {
        let mut matched = known;
        if matched.depth == 0 && high > STEPS_AHEAD as usize {
            // Mostly they have nothing of a prompt.
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

    /// The prefix that ends with this block, where somebody has it.
    #[inline]
    fn holder_at(
        &self,
        blocks: &[BlockHash],
        at: usize,
        holds: impl Fn(NodeId) -> bool,
    ) -> Option<PrefixMatch> {
        let block = blocks.get(at)?;
        let id = self.table.find(&self.nodes, block.hash)?;
        holds(id).then_some(PrefixMatch {
            depth: at + 1,
            node: Some(id),
        })
    }

    /// Has the memory fetch whatever the next steps of a binary search may read.
    fn prefetch_steps(&self, blocks: &[BlockHash], low: usize, high: usize) {
        let middle = usize::midpoint(low, high);
        let left = usize::midpoint(low, middle);
        let right = usize::midpoint(middle + 1, high);
        let next = [
            middle,
            left,
            right,
            usize::midpoint(low, left),
            usize::midpoint(left + 1, middle),
            usize::midpoint(middle + 1, right),
            usize::midpoint(right + 1, high),
        ];
        self.prefetch_nodes(next.iter().filter_map(|at| blocks.get(*at)));
    }

    /// Has the memory fetch these prefixes and their nodes, all at once.
    fn prefetch_nodes<'a>(&self, blocks: impl Iterator<Item = &'a BlockHash> + Clone) {
        self.prefetch_buckets(blocks.clone());
        let guesses: SmallVec<[NodeId; PROBES_PER_ROUND]> =
            blocks.map(|block| self.table.guess(block.hash)).collect();
        for id in guesses {
            black_box(self.nodes.get(id).map(|node| node.hash));
        }
    }

    /// The same of prefixes that are about to be entered, each longer than the one before: where the first one is not known,
    /// none is. Says where the places of these are.
    #[inline]
    pub(super) fn prefetch_new(&self, blocks: &[BlockHash]) -> SmallVec<[Key; BLOCKS_AHEAD]> {
        let keys: SmallVec<[Key; BLOCKS_AHEAD]> = blocks
            .iter()
            .map(|block| self.table.key(block.hash))
            .collect();
        for key in &keys {
            black_box(self.table.prefetch(*key));
        }
        let known = |block: &&BlockHash| self.table.guess(block.hash) != NONE;
        if blocks.first().filter(known).is_some() {
            self.prefetch_nodes(blocks.iter());
        }
        keys
    }

    /// Has the memory fetch where these prefixes stand in the table. Nothing here depends on what is read, so no read waits
    /// for another one: looking for each would, at a branch that is guessed wrong.
    fn prefetch_buckets<'a>(&self, blocks: impl Iterator<Item = &'a BlockHash>) {
        for block in blocks {
            black_box(self.table.prefetch(self.table.key(block.hash)));
        }
    }
}

/// Between which lengths the longest known prefix is, and the node of the shorter one.
struct Bounds {
    low: usize,
    high: usize,
    node: NodeId,
}

/// From the middle on, the last place but so many, each time half as many, to the last one.
fn probes_near_end(len: usize) -> impl Iterator<Item = usize> + Clone {
    let most = (len / 2 + 1).min(len);
    let doublings = most.checked_ilog2().map_or(0, |log| log + 1);
    (0..doublings.min(DOUBLINGS_MAX))
        .rev()
        .map(move |log| len - (1 << log))
}

/// So many places in between, in order.
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

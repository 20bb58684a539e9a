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

use isotherm_fingerprint::Edge;
use smallvec::SmallVec;

use super::node::NodeId;
use super::slab::NONE;
use super::{Match, PrefixIndex};
use crate::slots::{Slot, SlotSet};

/// How many places are read at once.
const AT_ONCE: usize = 8;
/// How many steps of a binary search are read ahead.
const STEPS_AHEAD: u32 = 3;
/// How many edges that are about to be entered are read ahead.
pub(super) const EDGES_AHEAD: usize = 16;

impl PrefixIndex {
    /// The longest prefix of the chain that anybody has, be it one that left.
    pub(crate) fn known(&self, edges: &[Edge]) -> Match {
        let (mut low, mut high) = (0, edges.len());
        let mut node = NONE;
        let mut probes = near_the_end(high);
        while low < high {
            for at in &probes {
                black_box(edges.get(*at).map(|edge| self.table.peek(edge.hash)));
            }
            for at in &probes {
                let id = edges
                    .get(*at)
                    .map_or(NONE, |edge| self.table.guess(edge.hash));
                if id == NONE {
                    high = *at;
                    break;
                }
                (low, node) = (at + 1, id);
            }
            probes = evenly(low, high);
        }
        let deepest = low.checked_sub(1).and_then(|at| edges.get(at));
        match deepest {
            None => Match::default(),
            Some(edge) if self.nodes.get(node).is_some_and(|n| n.hash == edge.hash) => Match {
                depth: low,
                node: Some(node),
            },
            // Two prefixes whose keys are half the same: one in 2^32 or so.
            Some(_) => self.bisect(edges, Match::default(), edges.len(), |_| true),
        }
    }

    /// The prefix that is one edge shorter.
    pub(crate) fn shorter(&self, found: &Match) -> Match {
        let parent = found
            .node
            .and_then(|id| self.nodes.get(id))
            .map(|n| n.parent);
        match parent.filter(|parent| *parent != NONE) {
            None => Match::default(),
            node => Match {
                depth: found.depth.saturating_sub(1),
                node,
            },
        }
    }

    /// The longest prefix of the chain that one of these targets has.
    pub(crate) fn deepest(&self, edges: &[Edge], among: &SlotSet) -> Match {
        if among.is_empty() {
            return Match::default();
        }
        self.deepest_within(edges, &self.known(edges), among)
    }

    /// The same, when it is known to be no longer than `most`.
    pub(crate) fn deepest_within(&self, edges: &[Edge], most: &Match, among: &SlotSet) -> Match {
        if among.is_empty() {
            return Match::default();
        }
        self.search(edges, most, |id| self.nodes.has_any(id, among))
    }

    /// The longest prefix of the chain that this target has.
    pub(crate) fn deepest_of(&self, edges: &[Edge], slot: Slot) -> Match {
        self.deepest_of_within(edges, &self.known(edges), slot)
    }

    /// The same, when it is known to be no longer than `most`.
    pub(crate) fn deepest_of_within(&self, edges: &[Edge], most: &Match, slot: Slot) -> Match {
        self.search(edges, most, |id| self.nodes.entry(id, slot).is_some())
    }

    fn search(&self, edges: &[Edge], most: &Match, holds: impl Fn(NodeId) -> bool) -> Match {
        let Some(deepest) = most.node else {
            return Match::default();
        };
        if holds(deepest) {
            return *most;
        }
        let shorter = most.depth.saturating_sub(1);
        match self.nodes.fork(deepest) {
            Some(fork) if fork < shorter => self.search_around(edges, fork, shorter, holds),
            Some(_) | None => self.bisect(edges, Match::default(), shorter, holds),
        }
    }

    /// The longest prefix shorter than `high` that somebody has, presumed to be of this length.
    fn search_around(
        &self,
        edges: &[Edge],
        presumed: usize,
        high: usize,
        holds: impl Fn(NodeId) -> bool,
    ) -> Match {
        let around = presumed.saturating_sub(1)..=presumed;
        self.read(around.filter_map(|at| edges.get(at)));
        let known = match presumed.checked_sub(1) {
            None => Match::default(),
            Some(at) => match self.held(edges, at, &holds) {
                None => return self.bisect(edges, Match::default(), at, holds),
                Some(found) => found,
            },
        };
        match self.held(edges, presumed, &holds) {
            None => known,
            Some(longer) => self.bisect(edges, longer, high, holds),
        }
    }

    /// The longest prefix of at most `high` edges that somebody has, who has the `known` one.
    fn bisect(
        &self,
        edges: &[Edge],
        known: Match,
        mut high: usize,
        holds: impl Fn(NodeId) -> bool,
    ) -> Match {
        let mut found = known;
        let mut step = 0_u32;
        while found.depth < high {
            if step.is_multiple_of(STEPS_AHEAD) {
                self.read_ahead(edges, found.depth, high);
            }
            step += 1;
            let middle = usize::midpoint(found.depth, high);
            match self.held(edges, middle, &holds) {
                Some(longer) => found = longer,
                None => high = middle,
            }
        }
        found
    }

    /// The prefix that ends with this edge, where somebody has it.
    #[inline]
    fn held(&self, edges: &[Edge], at: usize, holds: impl Fn(NodeId) -> bool) -> Option<Match> {
        let edge = edges.get(at)?;
        let id = self.table.find(&self.nodes, edge.hash)?;
        holds(id).then_some(Match {
            depth: at + 1,
            node: Some(id),
        })
    }

    /// Has the memory fetch whatever the next steps of a binary search may read.
    fn read_ahead(&self, edges: &[Edge], low: usize, high: usize) {
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
        self.read(next.iter().filter_map(|at| edges.get(*at)));
    }

    /// Has the memory fetch these prefixes and their nodes, all at once.
    pub(super) fn read<'a>(&self, edges: impl Iterator<Item = &'a Edge>) {
        let guesses: SmallVec<[NodeId; EDGES_AHEAD]> = edges
            .take(EDGES_AHEAD)
            .map(|edge| self.table.guess(edge.hash))
            .collect();
        for id in guesses {
            black_box(self.nodes.get(id).map(|node| node.hash));
        }
    }
}

/// The last place, the second last, the fourth last and so on to the middle, in order.
fn near_the_end(len: usize) -> SmallVec<[usize; AT_ONCE]> {
    let mut probes: SmallVec<[usize; AT_ONCE]> =
        core::iter::successors(Some(1), |back| Some(back * 2))
            .take_while(|back| *back <= len.max(1) / 2 + 1 && *back <= len)
            .take(16)
            .map(|back| len - back)
            .collect();
    probes.reverse();
    probes
}

/// So many places in between, in order.
fn evenly(low: usize, high: usize) -> SmallVec<[usize; AT_ONCE]> {
    let left = high.saturating_sub(low);
    if left < AT_ONCE {
        return (low..high).collect();
    }
    (1..AT_ONCE).map(|nth| low + left * nth / AT_ONCE).collect()
}

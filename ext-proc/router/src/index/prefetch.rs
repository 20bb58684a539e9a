//! Prefetching: reads memory that the next steps need, without using the values (`docs/design/prefix-index.md`).
//!
//! No result here decides anything: a branch on a value that is still on its way would stop the reads behind it. `black_box`
//! keeps the compiler from removing a read.

use core::hint::black_box;

use isotherm_fingerprint::BlockHash;
use smallvec::SmallVec;

use super::PrefixIndex;
use super::node::NodeId;
use super::search::{LANDMARK_FRACTION, PROBES_PER_ROUND, probes_near_end};
use super::slab::NONE;
use super::table::Key;

/// Blocks at the end of a chain that are prefetched before they are inserted.
pub(super) const BLOCKS_AHEAD: usize = 16;

impl PrefixIndex {
    /// Prefetches what [`Self::find_known`] reads first.
    #[inline]
    pub(crate) fn prefetch_known(&self, blocks: &[BlockHash]) {
        // The next turn of a conversation inserts these blocks, and the second round of a search mostly lies among them.
        let ahead = blocks.len().saturating_sub(BLOCKS_AHEAD);
        self.prefetch_buckets(blocks.iter().skip(ahead));
        self.prefetch_unread(blocks, probes_near_end(blocks.len()));
        self.prefetch_buckets(blocks.get(blocks.len() / LANDMARK_FRACTION).into_iter());
    }

    /// Prefetches the buckets of these probes, in order, except for the end of the chain, which is prefetched already.
    pub(super) fn prefetch_unread(
        &self,
        blocks: &[BlockHash],
        probes: impl Iterator<Item = usize>,
    ) {
        let ahead = blocks.len().saturating_sub(BLOCKS_AHEAD);
        let not_yet = probes.take_while(|at| *at < ahead);
        self.prefetch_buckets(not_yet.filter_map(|at| blocks.get(at)));
    }

    /// Prefetches what the next three steps of a binary search may read.
    pub(super) fn prefetch_steps(&self, blocks: &[BlockHash], low: usize, high: usize) {
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

    /// Prefetches the buckets and the nodes of these prefixes.
    pub(super) fn prefetch_nodes<'a>(&self, blocks: impl Iterator<Item = &'a BlockHash> + Clone) {
        self.prefetch_buckets(blocks.clone());
        let guesses: SmallVec<[NodeId; PROBES_PER_ROUND]> =
            blocks.map(|block| self.table.guess(block.hash)).collect();
        for id in guesses {
            black_box(self.nodes.get(id).map(|node| node.hash));
        }
    }

    /// Prefetches what the insertion of these blocks reads, each longer than the one before, and returns their keys. If the
    /// first block is unknown, all are.
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

    /// Prefetches the buckets of these prefixes. No read depends on another one, so all of them overlap.
    fn prefetch_buckets<'a>(&self, blocks: impl Iterator<Item = &'a BlockHash>) {
        for block in blocks {
            black_box(self.table.prefetch(self.table.key(block.hash)));
        }
    }
}

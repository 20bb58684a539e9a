//! Folding the blocks of all sections into one chain.
//!
//! A section that starts deep in the prompt brings its own fine blocks, so edges are thinned to what the grid would have
//! there. Whether an edge stays depends on where the one before lies and on nothing behind, so equal prefixes keep equal
//! edges. The hash goes through every block, thinned or not.

use alloc::vec::Vec;

use crate::Edge;
use crate::grid::{EDGES_BYTES_MAX, EDGES_MAX, width_at};
use crate::leaves::fold;

/// The chain in the making.
pub(super) struct Folding {
    hash: u64,
    /// How much of the prompt the hash stands for.
    end_bytes: u64,
    /// What follows the last whole block of the section before: its length and its digest.
    tail: Option<(u64, u64)>,
    edges: Vec<Edge>,
}

impl Folding {
    /// From a seed, with room for the edges of so many blocks.
    pub(super) fn new(seed: u64, blocks: usize) -> Self {
        Self {
            hash: seed,
            end_bytes: 0,
            tail: None,
            edges: Vec::with_capacity(blocks.min(EDGES_MAX)),
        }
    }

    /// The next section that is not empty: its number, its whole blocks, its length, and the digest of what follows them.
    pub(super) fn section(&mut self, number: u64, blocks: &[u64], bytes: u64, tail: u64) {
        self.end_section();
        // The number keeps a tool apart from a message of the same text.
        self.hash = fold(self.hash, number);
        let start = self.end_bytes;
        let mut offset = 0;
        for block in blocks {
            offset += width_at(offset);
            self.end_bytes = start + u64::from(offset);
            self.hash = fold(self.hash, *block);
            self.edge();
        }
        self.tail = Some((bytes.saturating_sub(u64::from(offset)), tail));
    }

    /// What follows the last whole block of a section counts as soon as another section follows: only then is it sure
    /// that no more of it comes.
    fn end_section(&mut self) {
        let Some((bytes, tail)) = self.tail.take() else {
            return;
        };
        self.hash = fold(self.hash, tail);
        if bytes > 0 {
            self.end_bytes += bytes;
            self.edge();
        }
    }

    /// Keeps the hash as an edge, unless that would lie closer to the one before than the grid has it.
    fn edge(&mut self) {
        let previous = self.edges.last().map_or(0, |edge| edge.end_bytes);
        let Ok(end_bytes) = u32::try_from(self.end_bytes) else {
            return;
        };
        let near = end_bytes.saturating_sub(previous) < width_at(previous);
        if near || end_bytes > EDGES_BYTES_MAX || self.edges.len() >= EDGES_MAX {
            return;
        }
        self.edges.push(Edge {
            hash: self.hash,
            end_bytes,
        });
    }

    /// The edges, shallowest first.
    pub(super) fn edges(self) -> Vec<Edge> {
        self.edges
    }
}

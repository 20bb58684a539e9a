//! Folding the blocks of all sections into one chain.
//!
//! A section that starts deep in the prompt brings its own fine blocks, so they are merged into blocks as long as the grid would
//! have there. Where a merged block ends depends on what lies in front of it only, so equal prefixes keep equal block hashes.
//! The hash goes through every block, merged or not.

use alloc::vec::Vec;

use crate::BlockHash;
use crate::grid::{BLOCKS_MAX, HASHED_BYTES_MAX, width_at};
use crate::leaves::fold;

/// The chain in the making.
pub(super) struct Folding {
    hash: u64,
    /// How much of the prompt the hash stands for.
    end_bytes: u64,
    /// What follows the last whole block of the section before: its length and its digest.
    tail: Option<(u64, u64)>,
    merged: Vec<BlockHash>,
}

impl Folding {
    /// From a seed, with room for the hashes of so many blocks.
    pub(super) fn new(seed: u64, blocks: usize) -> Self {
        Self {
            hash: seed,
            end_bytes: 0,
            tail: None,
            merged: Vec::with_capacity(blocks.min(BLOCKS_MAX)),
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
            self.end_block();
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
            self.end_block();
        }
    }

    /// Ends a block here, unless it would be shorter than the grid has it.
    fn end_block(&mut self) {
        let previous = self.merged.last().map_or(0, |block| block.end_bytes);
        let Ok(end_bytes) = u32::try_from(self.end_bytes) else {
            return;
        };
        let near = end_bytes.saturating_sub(previous) < width_at(previous);
        if near || end_bytes > HASHED_BYTES_MAX || self.merged.len() >= BLOCKS_MAX {
            return;
        }
        self.merged.push(BlockHash {
            hash: self.hash,
            end_bytes,
        });
    }

    /// The block hashes, shallowest first.
    pub(super) fn blocks(self) -> Vec<BlockHash> {
        self.merged
    }
}

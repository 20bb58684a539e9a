//! Folds the blocks of all sections into one chain of block hashes.
//!
//! A section that starts deep in the prompt has narrow blocks of its own, so the chain keeps only as many block ends as the
//! grid has there. Whether it keeps an end depends on the end kept before and on nothing after it, so equal prefixes keep
//! equal ends. The hash covers every block, kept or not.

use alloc::vec::Vec;

use crate::BlockHash;
use crate::grid::{BLOCKS_MAX, HASHED_BYTES_MAX, block_bytes_at};
use crate::leaves::fold;

pub(super) struct ChainBuilder {
    hash: u64,
    /// The bytes of the prompt that the hash covers.
    end_bytes: u64,
    /// The length and the digest of the bytes after the last whole block of the section before.
    tail: Option<(u64, u64)>,
    kept: Vec<BlockHash>,
}

impl ChainBuilder {
    pub(super) fn new(seed: u64, blocks: usize) -> Self {
        Self {
            hash: seed,
            end_bytes: 0,
            tail: None,
            kept: Vec::with_capacity(blocks.min(BLOCKS_MAX)),
        }
    }

    /// Adds the next section that is not empty: its number, its whole blocks, its length, and the digest of the bytes after
    /// the last whole block.
    pub(super) fn add_section(&mut self, number: u64, blocks: &[u64], bytes: u64, tail: u64) {
        self.add_tail();
        // The number distinguishes a tool from a message with the same text.
        self.hash = fold(self.hash, number);
        let start = self.end_bytes;
        let mut offset = 0;
        for block in blocks {
            offset += block_bytes_at(offset);
            self.end_bytes = start + u64::from(offset);
            self.hash = fold(self.hash, *block);
            self.keep_block();
        }
        self.tail = Some((bytes.saturating_sub(u64::from(offset)), tail));
    }

    /// Adds the bytes after the last whole block of a section. They count only once another section follows, because only
    /// then no later request can extend them.
    fn add_tail(&mut self) {
        let Some((bytes, tail)) = self.tail.take() else {
            return;
        };
        self.hash = fold(self.hash, tail);
        if bytes > 0 {
            self.end_bytes += bytes;
            self.keep_block();
        }
    }

    /// Keeps the hash of this block end, unless the grid has the next end further on.
    fn keep_block(&mut self) {
        let previous = self.kept.last().map_or(0, |block| block.end_bytes);
        let Ok(end_bytes) = u32::try_from(self.end_bytes) else {
            return;
        };
        let is_near = end_bytes.saturating_sub(previous) < block_bytes_at(previous);
        if is_near || end_bytes > HASHED_BYTES_MAX || self.kept.len() >= BLOCKS_MAX {
            return;
        }
        self.kept.push(BlockHash {
            hash: self.hash,
            end_bytes,
        });
    }

    /// The digest of the whole prompt.
    pub(super) fn digest(&self) -> u64 {
        self.tail
            .map_or(self.hash, |(_, tail)| fold(self.hash, tail))
    }

    /// The block hashes, shallowest first.
    pub(super) fn finish(self) -> Vec<BlockHash> {
        self.kept
    }
}

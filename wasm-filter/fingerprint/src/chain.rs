//! The fingerprint of a prompt: a chain of prefix hashes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// The hash of a prefix of the prompt that ends with a block, and the end of that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u32)", into = "(u64, u32)")]
pub struct BlockHash {
    /// Hash of the whole prefix up to the end of this block, including the cache key (model, adapter, salt).
    pub hash: u64,
    /// End of the block, in bytes of the rendered prompt.
    pub end_bytes: u32,
}

impl From<(u64, u32)> for BlockHash {
    fn from((hash, end_bytes): (u64, u32)) -> Self {
        Self { hash, end_bytes }
    }
}

impl From<BlockHash> for (u64, u32) {
    fn from(block: BlockHash) -> Self {
        (block.hash, block.end_bytes)
    }
}

/// A prompt as a chain of prefix hashes, shallowest first.
///
/// Two prompts share a prefix up to about the deepest block whose hash they share. Each hash covers the whole prefix, so
/// equality at one depth implies equality at every shallower one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    blocks: Box<[BlockHash]>,
    total_bytes: u32,
    digest: u64,
}

impl Fingerprint {
    /// A chain of blocks; `None` unless their `end_bytes` increase strictly and stay within `total_bytes`.
    pub fn new(blocks: Vec<BlockHash>, total_bytes: u32) -> Option<Self> {
        let mut previous = 0;
        for block in &blocks {
            if block.end_bytes <= previous || block.end_bytes > total_bytes {
                return None;
            }
            previous = block.end_bytes;
        }
        Some(Self {
            digest: blocks.last().map_or(0, |block| block.hash),
            blocks: blocks.into_boxed_slice(),
            total_bytes,
        })
    }

    /// A chain with the digest of the whole prompt. Without it, the hash of the last block stands for the prompt.
    #[must_use]
    pub fn with_digest(self, digest: u64) -> Self {
        Self { digest, ..self }
    }

    /// The blocks, shallowest first.
    pub fn blocks(&self) -> &[BlockHash] {
        &self.blocks
    }

    /// The digest of the whole prompt, past the last block too, including the cache key; 0 where it is unknown. It identifies
    /// a prompt, while the blocks identify its prefixes.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The length of the whole rendered prompt in bytes, past the last block too.
    pub fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// The bytes that the first `depth` blocks cover.
    pub fn bytes_at(&self, depth: usize) -> u32 {
        depth
            .checked_sub(1)
            .and_then(|last| self.blocks.get(last))
            .map_or(0, |block| block.end_bytes)
    }

    /// The share of the prompt that the first `depth` blocks cover, from 0 to 1.
    pub fn share_at(&self, depth: usize) -> f64 {
        if self.total_bytes == 0 {
            return 0.0;
        }
        f64::from(self.bytes_at(depth)) / f64::from(self.total_bytes)
    }
}

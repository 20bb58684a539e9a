//! The chain of prefix hashes that stands for one prompt.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The hash of a prompt's prefix that ends with one block, and where that block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHash {
    /// Hash of the whole prefix up to the end of this block, what selects the cache (model, adapter, salt) included.
    pub hash: u64,
    /// Where the block ends, in bytes of rendered prompt.
    pub end_bytes: u32,
}

/// A prompt as a chain of prefix hashes, shallowest first.
///
/// Two prompts share a prefix up to (about) the deepest block whose hash they share; since each hash stands
/// for the whole prefix, equality at one depth implies equality at every shallower one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    blocks: Box<[BlockHash]>,
    total_bytes: u32,
}

impl Fingerprint {
    /// A chain from its blocks, which must be in strictly increasing order of `end_bytes`, none past `total_bytes`.
    ///
    /// Returns `None` when they are not.
    #[must_use]
    pub fn new(blocks: Vec<BlockHash>, total_bytes: u32) -> Option<Self> {
        let mut previous = 0;
        for block in &blocks {
            if block.end_bytes <= previous || block.end_bytes > total_bytes {
                return None;
            }
            previous = block.end_bytes;
        }
        Some(Self {
            blocks: blocks.into_boxed_slice(),
            total_bytes,
        })
    }

    /// The blocks, shallowest first.
    #[must_use]
    pub fn blocks(&self) -> &[BlockHash] {
        &self.blocks
    }

    /// The length of the whole rendered prompt in bytes, what lies past the last block included.
    #[must_use]
    pub fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// How many bytes the first `depth` blocks cover.
    #[must_use]
    pub fn bytes_at(&self, depth: usize) -> u32 {
        depth
            .checked_sub(1)
            .and_then(|last| self.blocks.get(last))
            .map_or(0, |block| block.end_bytes)
    }

    /// Which share of the prompt the first `depth` blocks cover, from 0 to 1.
    #[must_use]
    pub fn share_at(&self, depth: usize) -> f64 {
        if self.total_bytes == 0 {
            return 0.0;
        }
        f64::from(self.bytes_at(depth)) / f64::from(self.total_bytes)
    }
}

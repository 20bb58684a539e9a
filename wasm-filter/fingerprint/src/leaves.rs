//! Hashing bytes that arrive in pieces, so that the pieces leave no trace.
//!
//! Bytes are cut into leaves of 256 and hashed leaf by leaf with one-shot XXH3; a digest is the fold of its leaves'
//! hashes. A leaf that lies whole in the caller's piece is hashed where it lies, any other is assembled in a buffer of
//! one leaf. Rejected: XXH3's own streaming state, which carries 450 bytes that would be set up anew for every role, image
//! and block; and a buffer of a whole block, which deep in a prompt would be megabytes.

use twox_hash::XxHash3_64;

use crate::grid::BLOCK_BYTES;

/// Bytes to a leaf.
const LEAF_BYTES: usize = BLOCK_BYTES as usize;

/// Adds one hash to a chain of hashes.
pub(crate) fn fold(chain: u64, hash: u64) -> u64 {
    let mut bytes = [0; 16];
    let (head, tail) = bytes.split_at_mut(8);
    head.copy_from_slice(&chain.to_le_bytes());
    tail.copy_from_slice(&hash.to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}

/// A digest in the making.
#[derive(Debug)]
pub(crate) struct Leaves {
    chain: u64,
    filled: usize,
    leaf: [u8; LEAF_BYTES],
}

impl Default for Leaves {
    fn default() -> Self {
        Self {
            chain: 0,
            filled: 0,
            leaf: [0; LEAF_BYTES],
        }
    }
}

impl Leaves {
    /// Adds bytes.
    #[inline]
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        if self.filled > 0 {
            bytes = self.fill(bytes);
        }
        if bytes.is_empty() {
            return;
        }
        let (whole, rest) = bytes.as_chunks::<LEAF_BYTES>();
        for leaf in whole {
            self.chain = fold(self.chain, XxHash3_64::oneshot(leaf));
        }
        self.fill(rest);
    }

    /// The digest of everything since the last one, and a fresh start.
    pub(crate) fn digest(&mut self) -> u64 {
        if let Some(rest) = self.leaf.get(..self.filled)
            && !rest.is_empty()
        {
            self.chain = fold(self.chain, XxHash3_64::oneshot(rest));
        }
        self.filled = 0;
        core::mem::take(&mut self.chain)
    }

    /// Fills the buffer, hashes it when it is full, and returns what did not fit.
    #[inline]
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let room = LEAF_BYTES.saturating_sub(self.filled);
        let (taken, rest) = bytes.split_at(room.min(bytes.len()));
        if let Some(free) = self.leaf.get_mut(self.filled..self.filled + taken.len()) {
            free.copy_from_slice(taken);
            self.filled += taken.len();
        }
        if self.filled == LEAF_BYTES {
            self.chain = fold(self.chain, XxHash3_64::oneshot(&self.leaf));
            self.filled = 0;
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_leave_no_trace() {
        let bytes: [u8; 1000] = core::array::from_fn(|index| (index % 251) as u8);
        let mut whole = Leaves::default();
        whole.push(&bytes);
        let expected = whole.digest();
        for size in [1, 3, 255, 256, 257, 999] {
            let mut pieces = Leaves::default();
            for piece in bytes.chunks(size) {
                pieces.push(piece);
            }
            assert_eq!(pieces.digest(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn length_counts() {
        let mut leaves = Leaves::default();
        let mut digests = [0, 1, 255, 256, 257].map(|length| {
            leaves.push(&[0; 300][..length]);
            leaves.digest()
        });
        digests.sort_unstable();
        assert!(digests.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

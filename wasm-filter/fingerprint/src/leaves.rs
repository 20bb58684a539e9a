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

/// Bytes that do not fill a leaf yet.
#[derive(Debug)]
pub(crate) struct Leaf {
    filled: usize,
    bytes: [u8; LEAF_BYTES],
}

impl Default for Leaf {
    fn default() -> Self {
        Self {
            filled: 0,
            bytes: [0; LEAF_BYTES],
        }
    }
}

impl Leaf {
    /// How many bytes there are.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Adds bytes, and tells the hash of each leaf that they fill.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], on_leaf: impl FnMut(u64)) {
        // A string with many escapes arrives in many small parts: this is the hot path.
        match (self.bytes.get_mut(self.filled..), bytes) {
            (Some([free, _, ..]), [byte]) => {
                *free = *byte;
                self.filled += 1;
            }
            (Some(free), bytes) if bytes.len() < free.len() => {
                let (free, _) = free.split_at_mut(bytes.len());
                free.copy_from_slice(bytes);
                self.filled += bytes.len();
            }
            _ => self.push_over(bytes, on_leaf),
        }
    }

    /// Adds bytes that fill at least one leaf.
    fn push_over(&mut self, bytes: &[u8], mut on_leaf: impl FnMut(u64)) {
        let mut rest = bytes;
        if self.filled > 0 {
            let (taken, behind) = bytes.split_at((LEAF_BYTES - self.filled).min(bytes.len()));
            if let Some(free) = self.bytes.get_mut(self.filled..self.filled + taken.len()) {
                free.copy_from_slice(taken);
            }
            on_leaf(XxHash3_64::oneshot(&self.bytes));
            rest = behind;
        }
        let (whole, rest) = rest.as_chunks::<LEAF_BYTES>();
        for leaf in whole {
            on_leaf(XxHash3_64::oneshot(leaf));
        }
        if let Some(free) = self.bytes.get_mut(..rest.len()) {
            free.copy_from_slice(rest);
        }
        self.filled = rest.len();
    }

    /// The hash of what does not fill a leaf, if there is any, and a fresh start.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let rest = self.bytes.get(..core::mem::take(&mut self.filled))?;
        (!rest.is_empty()).then(|| XxHash3_64::oneshot(rest))
    }
}

/// A digest in the making.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    chain: u64,
    leaf: Leaf,
}

impl Leaves {
    /// Adds bytes.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let chain = &mut self.chain;
        self.leaf.push(bytes, |hash| *chain = fold(*chain, hash));
    }

    /// The digest of everything since the last one, and a fresh start.
    pub(crate) fn digest(&mut self) -> u64 {
        let chain = core::mem::take(&mut self.chain);
        self.leaf.take().map_or(chain, |hash| fold(chain, hash))
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

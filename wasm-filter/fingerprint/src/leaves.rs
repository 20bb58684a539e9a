//! Hashing bytes that arrive in pieces, so that the pieces leave no trace.
//!
//! Bytes are cut into leaves of at most 1 KB and hashed leaf by leaf with one-shot XXH3; a digest is the fold of its leaves'
//! hashes. A leaf that lies whole in the caller's piece is hashed where it lies, any other is put together in a buffer of
//! one leaf. Rejected: XXH3's own streaming state, which carries 450 bytes that would be set up anew for every role, image
//! and block; a buffer of a whole block, which deep in a prompt would be megabytes; and leaves of 256 bytes, which XXH3
//! hashes at half the speed. Inside WebAssembly leaves are hashed with its SIMD (`xxh3`).

use crate::xxh3;

/// The most bytes of a leaf.
pub(crate) const LEAF_BYTES_MAX: usize = 1024;

/// Adds one hash to a chain of hashes.
pub(crate) fn fold(chain: u64, hash: u64) -> u64 {
    xxh3::hash_of_two(chain, hash)
}

/// Bytes that do not fill a leaf yet.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// What fills it, from 1 to [`LEAF_BYTES_MAX`].
    size: usize,
    filled: usize,
    bytes: [u8; LEAF_BYTES_MAX],
}

/// A leaf that was filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub(crate) hash: u64,
    pub(crate) bytes: usize,
}

impl Default for Leaf {
    fn default() -> Self {
        Self {
            size: LEAF_BYTES_MAX,
            filled: 0,
            bytes: [0; LEAF_BYTES_MAX],
        }
    }
}

impl Leaf {
    /// How many bytes there are.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Forgets what there is; the next leaf has this many bytes.
    pub(crate) fn restart(&mut self, size: usize) {
        self.filled = 0;
        self.size = size.clamp(1, LEAF_BYTES_MAX);
    }

    /// Adds bytes, and tells of each leaf that they fill; the answer is the size of the next.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], on_leaf: impl FnMut(Filled) -> usize) {
        // A string with many escapes arrives in many small parts: this is the hot path.
        match (self.bytes.get_mut(self.filled..self.size), bytes) {
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
    fn push_over(&mut self, mut bytes: &[u8], mut on_leaf: impl FnMut(Filled) -> usize) {
        if self.filled > 0 {
            let room = self.size.saturating_sub(self.filled).min(bytes.len());
            let (taken, rest) = bytes.split_at(room);
            if let Some(leaf) = self.bytes.get_mut(..self.size) {
                let (_, free) = leaf.split_at_mut(self.filled);
                free.copy_from_slice(taken);
                let next = on_leaf(Filled {
                    hash: xxh3::hash(leaf),
                    bytes: leaf.len(),
                });
                self.restart(next);
            }
            bytes = rest;
        }
        while let Some((leaf, rest)) = bytes.split_at_checked(self.size) {
            let next = on_leaf(Filled {
                hash: xxh3::hash(leaf),
                bytes: leaf.len(),
            });
            self.restart(next);
            bytes = rest;
        }
        if let Some(free) = self.bytes.get_mut(..bytes.len()) {
            free.copy_from_slice(bytes);
            self.filled = bytes.len();
        }
    }

    /// The hash of what does not fill a leaf, if there is any, and a fresh start.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let rest = self.bytes.get(..core::mem::take(&mut self.filled))?;
        (!rest.is_empty()).then(|| xxh3::hash(rest))
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
        self.leaf.push(bytes, |leaf| {
            *chain = fold(*chain, leaf.hash);
            LEAF_BYTES_MAX
        });
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
        let bytes: [u8; 5000] = core::array::from_fn(|index| (index % 251) as u8);
        let mut whole = Leaves::default();
        whole.push(&bytes);
        let expected = whole.digest();
        for size in [1, 3, 1023, 1024, 1025, 4999] {
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
        let mut digests = [0, 1, 1023, 1024, 1025].map(|length| {
            leaves.push(&[0; 1100][..length]);
            leaves.digest()
        });
        digests.sort_unstable();
        assert!(digests.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

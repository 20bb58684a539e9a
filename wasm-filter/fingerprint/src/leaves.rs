//! Hashes bytes that arrive in pieces; the result does not depend on the pieces.
//!
//! Bytes are cut into leaves of at most 1 KB, each hashed by one-shot XXH3. A [`Digest`] is the fold of the hashes of its
//! leaves. A leaf that lies whole in the caller's piece is hashed in place; any other is assembled in a buffer of one leaf.

use crate::xxh3;

/// The most bytes of a leaf.
pub(crate) const LEAF_BYTES_MAX: usize = 1024;

/// The digest of no bytes.
pub(crate) const NO_BYTES: u64 = 0;

/// Adds a hash to a chain of hashes.
pub(crate) fn fold(chain: u64, hash: u64) -> u64 {
    xxh3::hash_pair(chain, hash)
}

#[derive(Debug)]
pub(crate) struct LeafBuffer {
    /// The number of bytes of the complete leaf, from 1 to [`LEAF_BYTES_MAX`].
    size: usize,
    len: usize,
    bytes: [u8; LEAF_BYTES_MAX],
}

impl Default for LeafBuffer {
    fn default() -> Self {
        Self {
            size: LEAF_BYTES_MAX,
            len: 0,
            bytes: [0; LEAF_BYTES_MAX],
        }
    }
}

impl LeafBuffer {
    /// The number of bytes in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Removes the bytes and sets the size of the next leaf.
    pub(crate) fn restart(&mut self, size: usize) {
        self.len = 0;
        self.size = size.clamp(1, LEAF_BYTES_MAX);
    }

    /// Adds bytes. `on_leaf` receives the hash and the size of each complete leaf and returns the size of the next.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], on_leaf: impl FnMut(u64, usize) -> usize) {
        // A string with many escapes arrives in many small parts: this is the hot path.
        match (self.bytes.get_mut(self.len..self.size), bytes) {
            (Some([free, _, ..]), [byte]) => {
                *free = *byte;
                self.len += 1;
            }
            (Some(free), bytes) if bytes.len() < free.len() => {
                let (free, _) = free.split_at_mut(bytes.len());
                free.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            _ => self.push_complete(bytes, on_leaf),
        }
    }

    /// Adds bytes that complete at least one leaf.
    fn push_complete(&mut self, mut bytes: &[u8], mut on_leaf: impl FnMut(u64, usize) -> usize) {
        if self.len > 0 {
            let missing = self.size.saturating_sub(self.len).min(bytes.len());
            let (head, rest) = bytes.split_at(missing);
            if let Some(leaf) = self.bytes.get_mut(..self.size) {
                let (_, free) = leaf.split_at_mut(self.len);
                free.copy_from_slice(head);
                let next = on_leaf(xxh3::hash(leaf), leaf.len());
                self.restart(next);
            }
            bytes = rest;
        }
        while let Some((leaf, rest)) = bytes.split_at_checked(self.size) {
            let next = on_leaf(xxh3::hash(leaf), leaf.len());
            self.restart(next);
            bytes = rest;
        }
        if let Some(free) = self.bytes.get_mut(..bytes.len()) {
            free.copy_from_slice(bytes);
            self.len = bytes.len();
        }
    }

    /// Empties the buffer and returns the hash of its bytes, if it had any.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let rest = self.bytes.get(..core::mem::take(&mut self.len))?;
        (!rest.is_empty()).then(|| xxh3::hash(rest))
    }
}

/// The digest of bytes that arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    chain: u64,
    leaf: LeafBuffer,
}

impl Digest {
    /// The digest of bytes that are here at once.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let leaves = bytes.chunks(LEAF_BYTES_MAX);
        leaves.fold(0, |chain, leaf| fold(chain, xxh3::hash(leaf)))
    }

    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let chain = &mut self.chain;
        self.leaf.push(bytes, |hash, _| {
            *chain = fold(*chain, hash);
            LEAF_BYTES_MAX
        });
    }

    /// The digest of all bytes since the last call; the next digest starts empty.
    pub(crate) fn take(&mut self) -> u64 {
        let chain = core::mem::take(&mut self.chain);
        self.leaf.take().map_or(chain, |hash| fold(chain, hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_the_pieces() {
        let bytes: [u8; 5000] = core::array::from_fn(|index| (index % 251) as u8);
        for size in [1, 3, 1023, 1024, 1025, 4999, 5000] {
            let mut digest = Digest::default();
            for piece in bytes.chunks(size) {
                digest.push(piece);
            }
            assert_eq!(digest.take(), Digest::of(&bytes), "pieces of {size}");
        }
    }

    #[test]
    fn a_digest_depends_on_the_length() {
        let mut digests = [0, 1, 1023, 1024, 1025].map(|length| Digest::of(&[0; 1100][..length]));
        digests.sort_unstable();
        assert!(digests.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

//! Where names and literals are put together when a piece of the text ends inside one.

use crate::xxh3;

/// The longest member name that is kept as it is, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 128;
/// The longest number that is read, in bytes. No engine reads one of half that length.
pub(super) const LITERAL_BYTES_MAX: usize = 64;

/// What begins a digest in place of a name: a byte that UTF-8 does not have.
const DIGEST_MARK: u8 = 0xFF;
/// Bytes of a digest in place of a name.
const DIGEST_BYTES: usize = 9;

/// A few bytes, of which there may be too many.
#[derive(Debug)]
pub(super) struct Buffer<const SIZE: usize> {
    filled: usize,
    bytes: [u8; SIZE],
}

impl<const SIZE: usize> Default for Buffer<SIZE> {
    fn default() -> Self {
        Self {
            filled: 0,
            bytes: [0; SIZE],
        }
    }
}

impl<const SIZE: usize> Buffer<SIZE> {
    /// What was pushed.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// Starts over.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Adds bytes; those that do not fit are returned.
    pub(super) fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let room = SIZE.saturating_sub(self.filled);
        let (taken, rest) = bytes.split_at(room.min(bytes.len()));
        if let Some(free) = self.bytes.get_mut(self.filled..self.filled + taken.len()) {
            free.copy_from_slice(taken);
            self.filled += taken.len();
        }
        rest
    }
}

impl Buffer<KEY_BYTES_MAX> {
    /// Adds bytes of a name. When there is no room, what is there gives way to its digest, so that long names stay apart
    /// from each other and from every short one, in bounded memory.
    pub(super) fn push_name(&mut self, mut name: &[u8]) {
        loop {
            name = self.push(name);
            if name.is_empty() {
                return;
            }
            let digest = xxh3::hash(self.bytes());
            let mut stand_in = [DIGEST_MARK; DIGEST_BYTES];
            if let Some((_, hash)) = stand_in.split_first_chunk_mut::<1>() {
                hash.copy_from_slice(&digest.to_le_bytes());
            }
            self.clear();
            self.push(&stand_in);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay_apart_however_they_arrive() {
        let name: [u8; 1000] = core::array::from_fn(|index| b'a' + (index % 26) as u8);
        let mut whole = Buffer::default();
        whole.push_name(&name);
        for size in [1, 7, 128, 129, 500] {
            let mut pieces = Buffer::default();
            for piece in name.chunks(size) {
                pieces.push_name(piece);
            }
            assert_eq!(pieces.bytes(), whole.bytes());
        }
        let mut other = Buffer::default();
        other.push_name(&name[1..]);
        assert_ne!(other.bytes(), whole.bytes());
        let mut exact = Buffer::default();
        exact.push_name(&name[..KEY_BYTES_MAX]);
        assert_eq!(exact.bytes(), &name[..KEY_BYTES_MAX]);
    }
}

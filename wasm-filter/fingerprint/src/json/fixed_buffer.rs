//! A buffer of fixed size for names and literals that a piece of the text cuts in two.

use crate::xxh3;

/// The longest member name that is kept unchanged, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 128;
/// The longest number that is read, in bytes. No engine reads a number of half that length.
pub(super) const LITERAL_BYTES_MAX: usize = 64;

/// The first byte of a digest that replaces a name: a byte that UTF-8 does not contain.
const DIGEST_MARK: u8 = 0xFF;

/// At most `SIZE` bytes.
#[derive(Debug)]
pub(super) struct FixedBuffer<const SIZE: usize> {
    len: usize,
    bytes: [u8; SIZE],
}

impl<const SIZE: usize> FixedBuffer<SIZE> {
    pub(super) fn new() -> Self {
        Self {
            len: 0,
            bytes: [0; SIZE],
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends bytes and returns the rest that does not fit.
    pub(super) fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let (head, rest) = bytes.split_at(free.len().min(bytes.len()));
        if let Some(free) = free.get_mut(..head.len()) {
            free.copy_from_slice(head);
        }
        self.len += head.len();
        rest
    }
}

impl FixedBuffer<KEY_BYTES_MAX> {
    /// Appends bytes of a name. A full buffer is replaced by its digest, so that long names differ from each other and
    /// from every short name, in bounded memory.
    pub(super) fn push_name(&mut self, mut name: &[u8]) {
        loop {
            name = self.push(name);
            if name.is_empty() {
                return;
            }
            let digest = xxh3::hash(self.bytes());
            self.clear();
            self.push(&[DIGEST_MARK]);
            self.push(&digest.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_differ_and_do_not_depend_on_the_pieces() {
        let name: [u8; 1000] = core::array::from_fn(|index| b'a' + (index % 26) as u8);
        let mut whole = FixedBuffer::new();
        whole.push_name(&name);
        for size in [1, 7, 128, 129, 500] {
            let mut pieces = FixedBuffer::new();
            for piece in name.chunks(size) {
                pieces.push_name(piece);
            }
            assert_eq!(pieces.bytes(), whole.bytes());
        }
        let mut other = FixedBuffer::new();
        other.push_name(&name[1..]);
        assert_ne!(other.bytes(), whole.bytes());
        let mut exact = FixedBuffer::new();
        exact.push_name(&name[..KEY_BYTES_MAX]);
        assert_eq!(exact.bytes(), &name[..KEY_BYTES_MAX]);
    }
}

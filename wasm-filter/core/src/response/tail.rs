//! The last bytes of a stream that passes.

use std::ops::Range;

/// The size of the tail in bytes: more than the last chunks of any stream with `usage`.
pub(super) const TAIL_BYTES_MAX: usize = 8 * 1024;

/// At least the last [`TAIL_BYTES_MAX`] bytes of a body, and at most twice as many.
///
/// The tail moves its bytes only after as many again have arrived, so a stream of small chunks costs one copy of each.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyTail {
    bytes: Vec<u8>,
}

impl BodyTail {
    /// The range of a chunk of this size that can be part of the tail.
    pub(super) fn range_of(chunk_bytes: usize) -> Range<usize> {
        chunk_bytes.saturating_sub(TAIL_BYTES_MAX)..chunk_bytes
    }

    /// Whether a chunk of this size makes the tail drop bytes.
    pub(super) fn drops_for(&self, chunk_bytes: usize) -> bool {
        chunk_bytes >= TAIL_BYTES_MAX || self.bytes.len() + chunk_bytes > 2 * TAIL_BYTES_MAX
    }

    /// Appends the end of a chunk.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let chunk = chunk.get(Self::range_of(chunk.len())).unwrap_or_default();
        if chunk.len() == TAIL_BYTES_MAX {
            // The end of a large chunk does not adjoin the bytes before it.
            self.bytes.clear();
        } else if self.drops_for(chunk.len()) {
            let kept = TAIL_BYTES_MAX - chunk.len();
            self.bytes.drain(..self.bytes.len() - kept);
        }
        self.bytes.extend_from_slice(chunk);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_does_not_depend_on_the_chunks() {
        let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for chunk_bytes in [1, 7, 200, TAIL_BYTES_MAX - 1, TAIL_BYTES_MAX, 50_000] {
            let mut tail = BodyTail::default();
            for chunk in body.chunks(chunk_bytes) {
                tail.push(&chunk[BodyTail::range_of(chunk.len())]);
                assert!(tail.bytes().len() <= 2 * TAIL_BYTES_MAX);
            }
            let kept = tail.bytes();
            assert!(kept.len() >= TAIL_BYTES_MAX, "{chunk_bytes}");
            assert_eq!(kept, &body[body.len() - kept.len()..], "{chunk_bytes}");
        }
    }

    #[test]
    fn only_the_end_of_a_large_chunk_is_read() {
        assert_eq!(BodyTail::range_of(10), 0..10);
        assert_eq!(
            BodyTail::range_of(100_000),
            100_000 - TAIL_BYTES_MAX..100_000
        );
    }
}

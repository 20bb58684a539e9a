//! Bytes in several places, sent as if they were in one.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Pieces of a body, none of them empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    remaining: usize,
}

impl Pieces {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.remaining += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let slots = into.iter_mut().zip(&self.pieces);
        slots
            .map(|(slot, piece)| *slot = IoSlice::new(piece))
            .count()
    }

    fn advance(&mut self, mut bytes: usize) {
        self.remaining = self.remaining.saturating_sub(bytes);
        while let Some(first) = self.pieces.front_mut() {
            if bytes < first.len() {
                first.advance(bytes);
                return;
            }
            bytes -= first.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advancing_by_any_amount_leaves_the_rest() {
        let text = b"one, two and three";
        for bytes in 0..=text.len() {
            let mut pieces = Pieces::default();
            for piece in [&text[..3], &[], &text[3..8], &text[8..]] {
                pieces.push(Bytes::copy_from_slice(piece));
            }
            pieces.advance(bytes);
            assert_eq!(pieces.remaining(), text.len() - bytes);
            let mut slices = [IoSlice::new(&[]); 8];
            let count = pieces.chunks_vectored(&mut slices);
            let rest: Vec<u8> = slices[..count]
                .iter()
                .flat_map(|slice| slice.to_vec())
                .collect();
            assert_eq!(rest, &text[bytes..]);
            assert_eq!(pieces.copy_to_bytes(text.len() - bytes), &text[bytes..]);
        }
    }
}

//! Prompts without text: a sequence of pieces, each with an identity and a length.
//!
//! Two prompts share a prefix exactly as far as their pieces are equal; of two pieces with one identity, the shorter one
//! is the beginning of the longer one. Nothing in a simulation reads text, so a prompt needs none: the router sees a chain
//! of prefix hashes, the engine a chain of block hashes, both derived from the pieces ([`crate::chain`]).
//!
//! An answer is a piece as well: the next turn of a conversation repeats it, and finds it in the cache of the engine that
//! generated it.

use std::sync::Arc;

/// A stretch of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Identity of the text.
    pub id: u64,
    /// Length in tokens.
    pub tokens: u32,
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    pieces: Arc<[Piece]>,
}

impl Prompt {
    /// A prompt of these pieces, in order; empty ones are left out.
    #[must_use]
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self {
            pieces: pieces
                .into_iter()
                .filter(|piece| piece.tokens > 0)
                .collect(),
        }
    }

    /// This prompt with more behind it, as the next turn of a conversation has.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = Piece>) -> Self {
        Self::new(self.pieces.iter().copied().chain(more))
    }

    /// Pieces of the prompt, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Length of the prompt in tokens.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.pieces
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.tokens))
    }
}

/// Adds a number to a hash (the finaliser of splitmix64).
#[must_use]
pub(crate) const fn mix(hash: u64, number: u64) -> u64 {
    let mut word = hash.rotate_left(23) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

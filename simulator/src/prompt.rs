//! Prompts without text: a sequence of pieces, each with an identity and a length.
//!
//! Two prompts share a prefix exactly as far as their pieces are equal; of two pieces with one identity, the shorter one
//! is the beginning of the longer one. Nothing in a simulation reads text, so a prompt needs none: the router sees a chain
//! of prefix hashes, the engine a chain of block hashes, both derived from the pieces ([`crate::chain`]).
//!
//! An answer is a piece as well: the next turn of a conversation repeats it, and finds it in the cache of the engine that
//! generated it.
//!
//! The router counts bytes and the engine counts tokens. The [`Content`] of a piece says how many bytes a token has: languages
//! differ by a factor of two, and an image is thousands of tokens behind the few bytes of its digest.

use std::sync::Arc;

/// Bytes of an image in a fingerprint: a mark and the digest of its data.
const IMAGE_BYTES: u32 = 9;
/// Bytes of text in a token, as the filter presumes.
const PRESUMED_TOKEN_BYTES: u32 = 4;
/// Tokens of an image, as the filter presumes: the 24 by 24 patches of LLaVA-1.5.
const PRESUMED_IMAGE_TOKENS: u32 = 576;

/// A stretch of text, or an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Identity of the text.
    pub id: u64,
    /// Length in tokens.
    pub tokens: u32,
    /// Kind of the text, which decides its bytes.
    pub content: Content,
}

/// Content of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Text with this many hundredths of a byte in a token.
    Text(u16),
    /// An image: as many tokens as its piece says, and a digest of nine bytes.
    Image,
}

impl Content {
    /// Text of four bytes a token, which the filter presumes everywhere.
    pub const PLAIN: Self = Self::Text(400);
    /// English prose.
    pub const ENGLISH: Self = Self::Text(450);
    /// Source code.
    pub const CODE: Self = Self::Text(300);
    /// JSON, as tools return it.
    pub const JSON: Self = Self::Text(250);
    /// Range of Chinese text, in hundredths of a byte: tokenizers differ in how much Chinese they know.
    pub const CHINESE: (u16, u16) = (220, 300);
}

impl Piece {
    /// A plain text.
    pub const fn new(id: u64, tokens: u32) -> Self {
        Self {
            id,
            tokens,
            content: Content::PLAIN,
        }
    }

    /// Length in bytes, as the filter counts it.
    pub fn bytes(&self) -> u32 {
        match self.content {
            Content::Text(hundredths) => {
                let bytes = u64::from(self.tokens) * u64::from(hundredths) / 100;
                u32::try_from(bytes).unwrap_or(u32::MAX)
            }
            Content::Image => IMAGE_BYTES,
        }
    }
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    pieces: Arc<[Piece]>,
}

impl Prompt {
    /// A prompt of these pieces, in order; empty ones are left out.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self {
            pieces: pieces
                .into_iter()
                .filter(|piece| piece.tokens > 0)
                .collect(),
        }
    }

    /// This prompt with more behind it, as the next turn of a conversation has.
    pub fn with(&self, more: impl IntoIterator<Item = Piece>) -> Self {
        Self::new(self.pieces.iter().copied().chain(more))
    }

    /// Pieces of the prompt, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Length of the prompt in tokens.
    pub fn tokens(&self) -> u32 {
        self.pieces
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.tokens))
    }

    /// Length of the prompt in bytes, as the filter counts it.
    pub fn bytes(&self) -> u32 {
        self.pieces
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.bytes()))
    }

    /// Length in tokens that the filter tells the service: it presumes four bytes a token, and 576 tokens an image.
    pub fn presumed_tokens(&self) -> u32 {
        let is_image = |piece: &&Piece| piece.content == Content::Image;
        let images = self.pieces.iter().filter(is_image).count();
        let images = u32::try_from(images).unwrap_or(u32::MAX);
        let text_bytes = self.bytes() - images.saturating_mul(IMAGE_BYTES).min(self.bytes());
        let of_images = images.saturating_mul(PRESUMED_IMAGE_TOKENS);
        text_bytes
            .div_ceil(PRESUMED_TOKEN_BYTES)
            .saturating_add(of_images)
    }
}

/// Adds a number to a hash (the finaliser of splitmix64).
pub(crate) const fn mix(hash: u64, number: u64) -> u64 {
    let mut word = hash.rotate_left(23) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(tokens: u32, content: Content) -> Piece {
        Piece {
            content,
            ..Piece::new(1, tokens)
        }
    }

    #[test]
    fn languages_differ_in_bytes_and_the_filter_presumes_four_a_token() {
        for (content, bytes, presumed) in [
            (Content::PLAIN, 4_000, 1_000),
            (Content::ENGLISH, 4_500, 1_125),
            (Content::CODE, 3_000, 750),
            (Content::JSON, 2_500, 625),
            (Content::Image, 9, 576),
        ] {
            let prompt = Prompt::new([piece(1_000, content)]);
            assert_eq!(
                (prompt.tokens(), prompt.bytes(), prompt.presumed_tokens()),
                (1_000, bytes, presumed),
                "{content:?}"
            );
        }
    }

    #[test]
    fn an_image_and_its_question_are_presumed_apart() {
        let prompt = Prompt::new([piece(2_400, Content::Image), Piece::new(2, 100)]);
        assert_eq!((prompt.tokens(), prompt.presumed_tokens()), (2_500, 676));
    }
}

//! Chains of hashes of a prompt: the fingerprint for the router, the block hashes for the engine.
//!
//! The router gets the fingerprint that the filter would have made: blocks where the real extractor puts them, at four
//! bytes a token. The engine gets a hash for each full block of the prompt and of the answer that follows. Both are folded
//! from the pieces when a request is sent: kept for a whole run, they would take gigabytes.

use std::sync::Arc;

use isotherm_engine::model::BlockHash;
use isotherm_fingerprint::{Fingerprint, grid_block_ends};

use crate::prompt::{Piece, Prompt, mix};

/// Bytes of text in a token: what the router assumes before it has measured any.
pub const TOKEN_BYTES: u32 = 4;

/// Keeps the two kinds of chains apart.
const PROMPT_CHAIN: u64 = 0x6564_6765_7300_0001;
const ENGINE_CHAIN: u64 = 0x626c_6f63_6b73_0001;

/// Fingerprint that the filter would send of this prompt.
#[must_use]
pub fn fingerprint(prompt: &Prompt) -> Fingerprint {
    let total_bytes = prompt.tokens().saturating_mul(TOKEN_BYTES);
    let mut chain_hash = HashChain::new(PROMPT_CHAIN, prompt.pieces().iter().copied());
    let mut blocks = Vec::with_capacity(usize::try_from(total_bytes / 1_024).unwrap_or(0).min(320));
    let mut before = 0;
    for end_bytes in grid_block_ends(total_bytes) {
        // The grid is in multiples of 256 bytes, so every block ends between two tokens.
        let end = end_bytes / TOKEN_BYTES;
        let Some(hash) = chain_hash.take(end - before) else {
            break;
        };
        before = end;
        blocks.push(isotherm_fingerprint::BlockHash { hash, end_bytes });
    }
    // A grid's blocks increase and lie within the prompt, so this is always a chain.
    Fingerprint::new(blocks, total_bytes).unwrap_or_default()
}

/// The hash of each full block of the prompt and of its answer, as the engine would name them.
#[must_use]
pub fn blocks(prompt: &Prompt, answer: Piece, block_tokens: u32) -> Arc<[BlockHash]> {
    let block_tokens = block_tokens.max(1);
    let tokens = prompt.tokens().saturating_add(answer.tokens);
    let pieces = prompt.pieces().iter().copied().chain([answer]);
    let mut chain_hash = HashChain::new(ENGINE_CHAIN, pieces);
    (0..tokens / block_tokens)
        .map_while(|_| chain_hash.take(block_tokens).map(BlockHash))
        .collect()
}

/// A chain in the making.
struct HashChain<P> {
    hash: u64,
    pieces: P,
    piece: Piece,
    /// Tokens of the piece that are in the hash already.
    offset: u32,
}

impl<P: Iterator<Item = Piece>> HashChain<P> {
    fn new(seed: u64, pieces: P) -> Self {
        Self {
            hash: seed,
            pieces,
            piece: Piece { id: 0, tokens: 0 },
            offset: 0,
        }
    }

    /// The hash of everything up to so many tokens further on; none when there are fewer.
    fn take(&mut self, mut tokens: u32) -> Option<u64> {
        while tokens > 0 {
            let left = self.piece.tokens - self.offset;
            if left == 0 {
                self.piece = self.pieces.next()?;
                self.offset = 0;
                continue;
            }
            let part = left.min(tokens);
            self.hash = mix(
                mix(self.hash, self.piece.id),
                u64::from(self.offset) << 32 | u64::from(part),
            );
            self.offset += part;
            tokens -= part;
        }
        Some(self.hash)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_fingerprint::{Api, Extractor, MemberPaths};

    use super::*;

    const NOTHING: Piece = Piece { id: 0, tokens: 0 };

    fn prompt(pieces: &[(u64, u32)]) -> Prompt {
        Prompt::new(pieces.iter().map(|&(id, tokens)| Piece { id, tokens }))
    }

    fn common<T: PartialEq>(a: &[T], b: &[T]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn block_ends_lie_where_the_filter_puts_them() {
        let mut filter = Extractor::new(Api::Completions, &MemberPaths::default());
        let text = "x".repeat(400_000);
        filter.feed(format!(r#"{{"model":"m","prompt":"{text}"}}"#).as_bytes());
        let real = filter.finish().fingerprint;
        let tokens = real.total_bytes() / TOKEN_BYTES;
        assert!(tokens >= 100_000);
        let made = fingerprint(&prompt(&[(1, 50_000), (2, tokens - 50_000)]));
        let ends = |of: &Fingerprint| -> Vec<u32> {
            of.blocks().iter().map(|block| block.end_bytes).collect()
        };
        assert_eq!(ends(&made), ends(&real));
    }

    #[test]
    fn prompts_share_hashes_as_far_as_their_pieces_are_equal() {
        let a = prompt(&[(1, 1_000), (2, 3_000)]);
        let b = prompt(&[(1, 1_000), (3, 3_000)]);
        let (fa, fb) = (fingerprint(&a), fingerprint(&b));
        let depth = common(fa.blocks(), fb.blocks());
        assert!(fa.bytes_at(depth) <= 4_000 && fa.bytes_at(depth + 1) > 4_000);
        let (ba, bb) = (blocks(&a, NOTHING, 16), blocks(&b, NOTHING, 16));
        assert_eq!(common(&ba, &bb), 1_000 / 16);
    }

    #[test]
    fn a_cut_piece_is_the_beginning_of_the_whole_one() {
        let whole = blocks(&prompt(&[(1, 1_000)]), NOTHING, 16);
        let cut = blocks(&prompt(&[(1, 500)]), NOTHING, 16);
        assert_eq!(common(&whole, &cut), 500 / 16);
    }

    #[test]
    fn the_next_turn_finds_the_answer() {
        let first = prompt(&[(1, 1_000)]);
        let answer = Piece { id: 7, tokens: 200 };
        let next = first.with([answer, Piece { id: 2, tokens: 50 }]);
        let (a, b) = (blocks(&first, answer, 16), blocks(&next, NOTHING, 16));
        assert_eq!(common(&a, &b), 1_200 / 16);
    }
}

//! Chains of hashes of a prompt: the fingerprint for the router, the block hashes for the engine.
//!
//! The router gets the fingerprint that the filter would have made: blocks where the real extractor puts them, over the bytes
//! of the pieces. The engine gets a hash for each full block of the prompt and of the answer that follows, over their
//! tokens. Both are folded from the pieces when a request is sent: kept for a whole run, they would take gigabytes.

use std::sync::Arc;

use isotherm_engine::model::BlockHash;
use isotherm_fingerprint::{Fingerprint, grid_block_ends};

use crate::prompt::{Piece, Prompt, mix};

/// Keeps the two kinds of chains apart.
const PROMPT_CHAIN: u64 = 0x6564_6765_7300_0001;
const ENGINE_CHAIN: u64 = 0x626c_6f63_6b73_0001;

/// Fingerprint that the filter would send of this prompt.
pub fn fingerprint(prompt: &Prompt) -> Fingerprint {
    let total_bytes = prompt.bytes();
    let pieces = prompt.pieces().iter();
    let pieces = pieces.map(|piece| (piece.id, piece.bytes()));
    let mut chain_hash = HashChain::new(PROMPT_CHAIN, pieces);
    let mut blocks = Vec::with_capacity(usize::try_from(total_bytes / 1_024).unwrap_or(0).min(320));
    let mut before = 0;
    for end_bytes in grid_block_ends(total_bytes) {
        let Some(hash) = chain_hash.take(end_bytes - before) else {
            break;
        };
        before = end_bytes;
        blocks.push(isotherm_fingerprint::BlockHash { hash, end_bytes });
    }
    // A grid's blocks increase and lie within the prompt, so this is always a chain.
    Fingerprint::new(blocks, total_bytes).unwrap_or_default()
}

/// The hash of each full block of the prompt and of its answer, as the engine would name them.
pub fn blocks(prompt: &Prompt, answer: Piece, block_tokens: u32) -> Arc<[BlockHash]> {
    let block_tokens = block_tokens.max(1);
    let tokens = prompt.tokens().saturating_add(answer.tokens);
    let pieces = prompt.pieces().iter().copied().chain([answer]);
    let pieces = pieces.map(|piece| (piece.id, piece.tokens));
    let mut chain_hash = HashChain::new(ENGINE_CHAIN, pieces);
    (0..tokens / block_tokens)
        .map_while(|_| chain_hash.take(block_tokens).map(BlockHash))
        .collect()
}

/// A chain in the making, over the identities of pieces and their lengths in bytes or in tokens.
struct HashChain<P> {
    hash: u64,
    pieces: P,
    id: u64,
    length: u32,
    /// The part of the piece that is in the hash already.
    offset: u32,
}

impl<P: Iterator<Item = (u64, u32)>> HashChain<P> {
    fn new(seed: u64, pieces: P) -> Self {
        Self {
            hash: seed,
            pieces,
            id: 0,
            length: 0,
            offset: 0,
        }
    }

    /// The hash of everything up to this much further on; none when there is less.
    fn take(&mut self, mut length: u32) -> Option<u64> {
        while length > 0 {
            let left = self.length - self.offset;
            if left == 0 {
                (self.id, self.length) = self.pieces.next()?;
                self.offset = 0;
                continue;
            }
            let part = left.min(length);
            self.hash = mix(
                mix(self.hash, self.id),
                u64::from(self.offset) << 32 | u64::from(part),
            );
            self.offset += part;
            length -= part;
        }
        Some(self.hash)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_fingerprint::{Api, Extractor, MemberPaths};

    use super::*;
    use crate::prompt::Content;

    const NOTHING: Piece = Piece::new(0, 0);

    fn prompt(pieces: &[(u64, u32)]) -> Prompt {
        Prompt::new(pieces.iter().map(|&(id, tokens)| Piece::new(id, tokens)))
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
        let tokens = real.total_bytes() / 4;
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
    fn the_next_turn_finds_the_answer() {
        let first = prompt(&[(1, 1_000)]);
        let answer = Piece::new(7, 200);
        let next = first.with([answer, Piece::new(2, 50)]);
        let (a, b) = (blocks(&first, answer, 16), blocks(&next, NOTHING, 16));
        assert_eq!(common(&a, &b), 1_200 / 16);
    }

    #[test]
    fn the_router_matches_bytes_and_the_engine_tokens() {
        let image = Piece {
            content: Content::Image,
            ..Piece::new(1, 2_000)
        };
        let of = |question| Prompt::new([image, Piece::new(question, 1_000)]);
        let (a, b) = (of(2), of(3));
        assert_eq!(
            common(&blocks(&a, NOTHING, 16), &blocks(&b, NOTHING, 16)),
            125
        );
        let (fa, fb) = (fingerprint(&a), fingerprint(&b));
        assert_eq!(fa.total_bytes(), 9 + 4_000);
        assert_eq!(
            common(fa.blocks(), fb.blocks()),
            0,
            "an image is far shorter than a block of the fingerprint"
        );
    }
}

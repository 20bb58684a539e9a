//! A prompt as the engine's model wants it: a number of tokens and a chain of block hashes.

use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::{RenderedPrompt, Reply, TOKEN_BYTES};
use crate::model::BlockHash;

/// Key of a cache: two prompts with different keys share nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// The model, or the adapter on top of it.
    pub model: String,
    /// The tenant's salt.
    pub cache_salt: String,
}

impl Selector {
    fn seed(&self) -> u64 {
        let model = XxHash3_64::oneshot_with_seed(0, self.model.as_bytes());
        XxHash3_64::oneshot_with_seed(model, self.cache_salt.as_bytes())
    }
}

/// A tokenized prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    seed: u64,
    cells: Vec<u8>,
    tokens: u32,
}

impl Prompt {
    /// Tokenizes rendered text.
    pub fn new(selector: &Selector, rendered: RenderedPrompt) -> Self {
        let cells = rendered.into_bytes();
        let tokens = u32::try_from(cells.len().div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX);
        Self {
            seed: selector.seed(),
            cells,
            tokens,
        }
    }

    /// A prompt of token ids, which count as given.
    pub fn from_ids(selector: &Selector, ids: &[u64]) -> Self {
        let cells = ids.iter().flat_map(|id| {
            XxHash3_64::oneshot(&id.to_le_bytes())
                .to_le_bytes()
                .into_iter()
                .take(TOKEN_BYTES)
        });
        Self {
            seed: selector.seed(),
            cells: cells.collect(),
            tokens: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        }
    }

    /// Tokens in the prompt.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// A hash of the whole prompt: what its reply is drawn from.
    pub fn digest(&self) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed, &self.cells)
    }

    /// The chain over the prompt and the first `output_tokens` tokens of its reply: one hash for each full block.
    pub fn blocks(
        mut self,
        reply: &Reply,
        output_tokens: u32,
        block_tokens: u32,
    ) -> Arc<[BlockHash]> {
        // A prompt whose text does not fill its last cell leaves the rest of it empty.
        self.cells.resize(self.tokens as usize * TOKEN_BYTES, 0);
        self.cells
            .extend_from_slice(reply.text(0, output_tokens).as_bytes());
        let mut hash = self.seed;
        self.cells
            .chunks_exact((block_tokens.max(1) as usize) * TOKEN_BYTES)
            .map(|block| {
                hash = XxHash3_64::oneshot_with_seed(hash, block);
                BlockHash(hash)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(salt: &str, text: &str) -> Arc<[BlockHash]> {
        let selector = Selector {
            model: "m".to_owned(),
            cache_salt: salt.to_owned(),
        };
        let mut rendered = RenderedPrompt::default();
        rendered.text(text);
        Prompt::new(&selector, rendered).blocks(&Reply::new(1), 0, 16)
    }

    #[test]
    fn appended_text_keeps_the_blocks_before_it() {
        let short = "x".repeat(256);
        let long = format!("{short}{}", "y".repeat(100));
        assert_eq!(chain("", &short).len(), 4);
        assert_eq!(chain("", &long)[..4], chain("", &short)[..]);
    }

    #[test]
    fn another_salt_shares_nothing() {
        let text = "x".repeat(256);
        let (plain, salted) = (chain("", &text), chain("s", &text));
        assert!(plain.iter().zip(salted.iter()).all(|(a, b)| a != b));
    }

    #[test]
    fn token_ids_count_as_given() {
        let selector = Selector::default();
        assert_eq!(Prompt::from_ids(&selector, &[1, 2, 3]).tokens(), 3);
    }
}

//! The reply: as long and as repeatable as it must be, and a word a token so that a person can watch it stream.

use twox_hash::XxHash3_64;

/// Three letters and a space: one cell of text, so one token.
const WORDS: [&str; 64] = [
    "the", "and", "one", "sun", "sea", "sky", "air", "ice", "map", "red", "old", "new", "day",
    "way", "man", "boy", "cat", "dog", "fox", "owl", "bee", "ant", "oak", "elm", "ivy", "hay",
    "egg", "pie", "tea", "cup", "pot", "jar", "box", "bag", "bed", "pan", "hat", "cap", "tie",
    "toe", "arm", "leg", "eye", "ear", "lip", "run", "sit", "eat", "sip", "see", "hum", "fly",
    "dig", "hop", "row", "sew", "try", "ask", "say", "hot", "dry", "wet", "big", "far",
];

/// Half of all replies are shorter than this, tokens: the median of real chat traffic (Azure LLM inference trace 2023).
const MEDIAN_TOKENS: f64 = 129.0;
/// Spread of the logarithm of the length, about that of the same trace.
const LOG_SPREAD: f64 = 0.9;
/// The longest reply that is drawn, tokens.
const TOKENS_MAX: f64 = 1_500.0;

/// Reply of the model to a prompt. Everything follows from the prompt's digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    seed: u64,
    natural_tokens: u32,
}

impl Reply {
    /// The reply to a prompt with this digest.
    pub fn new(digest: u64) -> Self {
        let seed = XxHash3_64::oneshot_with_seed(digest, b"reply");
        Self {
            seed,
            natural_tokens: natural_tokens(seed),
        }
    }

    /// Tokens after which the reply ends by itself.
    pub fn natural_tokens(&self) -> u32 {
        self.natural_tokens
    }

    /// The text of the tokens `from..to`: four bytes each.
    pub fn text(&self, from: u32, to: u32) -> String {
        let mut text =
            String::with_capacity((to.saturating_sub(from) as usize) * super::TOKEN_BYTES);
        for index in from..to {
            let draw = XxHash3_64::oneshot_with_seed(self.seed, &index.to_le_bytes());
            let word = WORDS
                .get((draw % WORDS.len() as u64) as usize)
                .copied()
                .unwrap_or("and");
            text.push_str(word);
            text.push(if index % 12 == 11 { '.' } else { ' ' });
        }
        text
    }
}

/// A length from a log-logistic distribution (which needs no more than a logarithm, and has a chat's long tail).
fn natural_tokens(seed: u64) -> u32 {
    let fraction = ((seed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    let logit = (fraction / (1.0 - fraction)).ln() / 1.702;
    (MEDIAN_TOKENS * (LOG_SPREAD * logit).exp()).clamp(1.0, TOKENS_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_one_cell_of_text() {
        let reply = Reply::new(7);
        assert_eq!(reply.text(0, 100).len(), 400);
        assert_eq!(
            format!("{}{}", reply.text(0, 33), reply.text(33, 100)),
            reply.text(0, 100)
        );
    }

    #[test]
    fn reply_lengths_are_typical_of_chats() {
        let mut lengths: Vec<u32> = (0..1_000)
            .map(|digest| Reply::new(digest).natural_tokens())
            .collect();
        lengths.sort_unstable();
        assert!(
            (100..160).contains(&lengths[500]),
            "median {}",
            lengths[500]
        );
        assert!(lengths[950] > 400, "a long tail");
    }
}

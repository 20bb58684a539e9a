//! English-like text from a seed: equal seeds give equal text.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Bytes of English text per token, roughly; the simulated engine counts exactly so.
pub const TOKEN_BYTES: usize = 4;

const WORDS: [&str; 48] = [
    "account", "answer", "because", "before", "build", "change", "cluster", "customer", "deploy",
    "during", "every", "example", "explain", "failure", "first", "from", "handle", "house",
    "improve", "inside", "letter", "little", "market", "measure", "message", "method", "never",
    "number", "order", "paper", "people", "please", "policy", "question", "reason", "region",
    "report", "result", "school", "second", "service", "should", "simple", "through", "travel",
    "water", "window", "without",
];

/// Text of `tokens` tokens: exactly `tokens * TOKEN_BYTES` bytes.
pub fn tokens(seed: u64, tokens: u32) -> String {
    bytes(seed, tokens as usize * TOKEN_BYTES)
}

/// Text of `length` bytes. With one seed, a shorter text is the beginning of a longer one.
pub fn bytes(seed: u64, length: usize) -> String {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        let word = WORDS
            .get(random.random_range(0..WORDS.len()))
            .copied()
            .unwrap_or("and");
        text.push_str(word);
        text.push_str(if random.random_ratio(1, 12) {
            ". "
        } else {
            " "
        });
    }
    text.truncate(length); // every character is one byte
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_text_of_the_requested_length() {
        assert_eq!(tokens(1, 512).len(), 2048);
        assert_eq!(tokens(1, 512), tokens(1, 512));
        assert_ne!(tokens(1, 512), tokens(2, 512));
        assert!(bytes(1, 100).starts_with(&bytes(1, 37)));
    }
}

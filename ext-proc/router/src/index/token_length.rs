//! Length of a token: how many of an engine's tokens a prompt has, for each token that the filter estimates.
//!
//! The filter counts a token for four bytes of text and a constant for each image. Text in another script, code or base64
//! are off by up to two. Usage of answers and the engines' counters correct the estimate for the whole pool.

use crate::constant::constants;

constants! {
    /// Bytes in a token. Source: the filter's estimate.
    ESTIMATED_BYTES: f64 = 4.0;
    /// Factor by which the weight of earlier prompts shrinks with each prompt.
    DECAY: f64 = 0.98;
    /// Weight of the filter's estimate, in prompts. Guards: one odd prompt does not set the length of a token.
    PRESUMED_PROMPTS: f64 = 2.0;
}
/// Bounds of the ratio of tokens to estimated ones, whatever an engine counts (images).
const RATIO: core::ops::RangeInclusive<f64> = 0.25..=4.0;

/// Learned number of tokens for each estimated one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenLength {
    /// Decaying sums of tokens and of estimated tokens.
    sums: [f64; 2],
    ratio: f64,
}

impl Default for TokenLength {
    fn default() -> Self {
        Self {
            sums: [0.0; 2],
            ratio: 1.0,
        }
    }
}

impl TokenLength {
    /// Learns the tokens of a prompt.
    pub(crate) fn learn(&mut self, tokens: f64, estimated: f64) {
        if estimated < 1.0 {
            return;
        }
        let ratio = (tokens / estimated).clamp(*RATIO.start(), *RATIO.end());
        let [_, known] = self.sums;
        if known <= 0.0 {
            self.sums = [
                PRESUMED_PROMPTS.get() * estimated * self.ratio,
                PRESUMED_PROMPTS.get() * estimated,
            ];
        }
        let [sum, of] = self.sums.map(|sum| sum * DECAY.get());
        self.sums = [sum + ratio * estimated, of + estimated];
        let [sum, of] = self.sums;
        self.ratio = sum / of;
    }

    /// Takes over the ratio that counters show.
    pub(crate) const fn learn_counted(&mut self, ratio: f64) {
        self.ratio = ratio.clamp(*RATIO.start(), *RATIO.end());
    }

    /// Tokens of a prompt.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of tokens; saturates"
    )]
    pub(crate) fn tokens(&self, estimated: u32) -> u32 {
        (f64::from(estimated) * self.ratio).round() as u32
    }

    /// Prompt bytes in a token.
    pub(crate) fn bytes(&self) -> f64 {
        ESTIMATED_BYTES.get() / self.ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_token_follows_the_tokens_of_prompts() {
        let mut length = TokenLength::default();
        assert_eq!(length.tokens(1_000), 1_000);
        length.learn(2_000.0, 1_000.0);
        assert!(length.tokens(1_000) < 1_500, "one prompt does not tell");
        for i in 1..200 {
            let estimated = f64::from(100 * (i % 9) + 50);
            length.learn(1.6 * estimated, estimated);
        }
        assert!(length.tokens(1_000).abs_diff(1_600) <= 16);
        assert!((length.bytes() - 2.5).abs() < 0.05);
    }

    #[test]
    fn an_image_does_not_shrink_a_token_without_bound() {
        let mut length = TokenLength::default();
        for _ in 0..300 {
            length.learn(16_000.0, 576.0);
        }
        assert!(length.bytes() >= 1.0);
    }
}

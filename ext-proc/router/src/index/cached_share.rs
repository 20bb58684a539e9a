//! Share of the answered prompts that was cached where they were sent, by the index.

use crate::constant::constants;

constants! {
    /// Decay of all earlier prompts with each one.
    DECAY: f64 = 0.998;
    /// Tokens of the presumed prompts.
    PRESUMED_TOKENS: f64 = 100_000.0;
    /// Cached part of the presumed prompts.
    PRESUMED_SHARE: f64 = 0.9;
    /// Least cached share that counts.
    SHARE_MIN: f64 = 0.01;
}

/// Decaying sums of prompt tokens, and of those among them that the index found cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedShare {
    tokens: f64,
    cached: f64,
}

impl CachedShare {
    /// Adds an answered prompt of so many tokens.
    pub(crate) fn add(&mut self, tokens: f64, uncached: f64) {
        self.tokens = self.tokens * DECAY.get() + tokens;
        self.cached = self.cached * DECAY.get() + (tokens - uncached).max(0.0);
    }

    /// Tokens that replicas compute for each one that they find cached.
    pub(crate) fn computed_per_cached(&self) -> f64 {
        let cached = self.cached.max(SHARE_MIN.get() * self.tokens);
        (self.tokens - cached).max(0.0) / cached
    }
}

impl Default for CachedShare {
    fn default() -> Self {
        Self {
            tokens: PRESUMED_TOKENS.get(),
            cached: PRESUMED_SHARE.get() * PRESUMED_TOKENS.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_prompts_and_begins_as_presumed() {
        let mut share = CachedShare::default();
        assert!((share.computed_per_cached() - 1.0 / 9.0).abs() < 1e-9);
        for _ in 0..4_000 {
            share.add(1_000.0, 800.0);
        }
        assert!((share.computed_per_cached() - 4.0).abs() < 0.1, "{share:?}");
    }

    #[test]
    fn prompts_without_a_cached_token_leave_it_finite() {
        let mut share = CachedShare::default();
        for _ in 0..100_000 {
            share.add(1_000.0, 1_000.0);
        }
        assert!(
            (share.computed_per_cached() - 99.0).abs() < 1e-9,
            "{share:?}"
        );
    }
}

//! Usage of a response, and usage that cannot be of the prompt that the router knows.
//!
//! A client can make an engine compute another prompt than the fingerprint says: by `truncate_prompt_tokens`, or by a member
//! that the engine ignores. Such a response would teach a wrong length of a token, wrong speeds and wrong cache hits, for
//! all clients. Its usage is dropped and counted. The bounds are wide: no tokenizer and no text that a person writes reaches
//! them.

use core::time::Duration;

use isotherm_fingerprint::Fingerprint;

use crate::Time;
use crate::constant::constants;
use crate::in_flight::InFlightRequest;
use crate::replica::Replicas;

constants! {
    /// Lower bound on the time in which an engine writes a token, in seconds. Guards: no claim of a long answer changes the pool's estimates
    /// (20,000 tokens per second are beyond any engine).
    TOKEN_S_MIN: f64 = 0.000_05;
}

/// The most bytes of a prompt in a token, as a mean over the prompt. English has four to five, a run of spaces has more.
const TOKEN_BYTES_MAX: u32 = 16;
/// Bytes in a token by the filter's estimate, and tokens of a medium.
const ESTIMATED_TOKEN_BYTES: u32 = 4;
const ESTIMATED_MEDIUM_TOKENS: u32 = 576;
/// The most tokens of an image, a video or audio.
const MEDIUM_TOKENS_MAX: u64 = 1 << 16;
/// The most tokens that a template adds to a prompt of any length: a template may hold a long system prompt.
const TEMPLATE_TOKENS_MAX: u64 = 1 << 14;

/// Tokens and times of a response, as far as it reports them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseUsage {
    /// Time to first token; unknown for a response that is not streamed.
    pub(super) ttft: Option<Duration>,
    pub(super) prompt_tokens: Option<u32>,
    pub(super) cached_tokens: Option<u32>,
    pub(super) completion: Option<u32>,
}

impl ResponseUsage {
    /// Usage of a response: time to first token in microseconds; tokens of the prompt, cached ones, and tokens of the answer.
    pub(super) fn new(ttft_us: Option<u64>, tokens: [Option<u32>; 3]) -> Self {
        let [prompt_tokens, cached_tokens, completion] = tokens;
        Self {
            ttft: ttft_us.map(Duration::from_micros),
            prompt_tokens: prompt_tokens.filter(|tokens| *tokens > 0),
            cached_tokens,
            completion,
        }
    }

    /// Judges the usage by the known prompt, of which the filter estimates so many tokens.
    pub(super) fn plausibility(&self, known: &Fingerprint, estimated: u32) -> Plausibility {
        Plausibility::of(self.prompt_tokens, self.cached_tokens, known, estimated)
    }

    /// Usage without a length of the answer that the replica cannot have written: it had no time, or has no memory for it.
    pub(super) fn possible(
        &self,
        replicas: &Replicas,
        flight: &InFlightRequest,
        now: Time,
    ) -> Self {
        let took_s = now.since(flight.dispatched_at).as_secs_f64();
        let capacity = replicas.kv_capacity_tokens(flight.claim.replica);
        let fits = |tokens: u32| capacity.is_none_or(|most| u64::from(tokens) <= most);
        let is_possible = |tokens: &u32| can_write(*tokens, took_s) && fits(*tokens);
        Self {
            completion: self.completion.filter(is_possible),
            ..*self
        }
    }
}

/// The verdict on the usage of a response, by the prompt that the router knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plausibility {
    /// The usage may be of this prompt.
    Plausible,
    /// The engine computed less than this prompt has.
    TooShort,
    /// The engine computed more than this prompt has.
    TooLong,
    /// The engine names more cached tokens than prompt tokens.
    Contradictory,
}

impl Plausibility {
    /// Judges measured prompt tokens and cached ones by the known prompt, of which the filter estimates so many tokens.
    pub(super) fn of(
        tokens: Option<u32>,
        cached: Option<u32>,
        known: &Fingerprint,
        estimated: u32,
    ) -> Self {
        let Some(tokens) = tokens else {
            return Self::Plausible;
        };
        let bytes = known.total_bytes();
        let media = estimated.saturating_sub(bytes.div_ceil(ESTIMATED_TOKEN_BYTES));
        let media = u64::from(media.div_ceil(ESTIMATED_MEDIUM_TOKENS));
        let tokens_max = u64::from(bytes) + media * MEDIUM_TOKENS_MAX + TEMPLATE_TOKENS_MAX;
        if tokens < bytes / TOKEN_BYTES_MAX {
            Self::TooShort
        } else if cached.is_some_and(|cached| cached > tokens) {
            Self::Contradictory
        } else if bytes > 0 && u64::from(tokens) > tokens_max {
            Self::TooLong
        } else {
            Self::Plausible
        }
    }
}

/// Whether an engine can have written so many tokens of one answer in this time.
pub(super) fn can_write(tokens: u32, seconds: f64) -> bool {
    seconds >= f64::from(tokens) * TOKEN_S_MIN.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(bytes: u32, estimated: u32, tokens: u32, cached: Option<u32>) -> Plausibility {
        let known = Fingerprint::new(Vec::new(), bytes).unwrap();
        Plausibility::of(Some(tokens), cached, &known, estimated)
    }

    #[test]
    fn prompts_of_any_language_and_medium_are_plausible() {
        for (bytes, estimated, tokens) in [
            (4_000, 1_000, 1_000),
            (4_000, 1_000, 3_900),
            (4_000, 1_000, 260),
            (20, 5, 60),
            (9, 579, 16_384),
            (0, 0, 5_000),
            (1_200, 300, 2_000),
        ] {
            let verdict = judge(bytes, estimated, tokens, Some(tokens));
            assert_eq!(verdict, Plausibility::Plausible, "{bytes} {tokens}");
        }
    }

    #[test]
    fn another_prompt_is_not() {
        assert_eq!(judge(1_000, 250, 12, None), Plausibility::TooShort);
        assert_eq!(judge(4_000, 1_000, 64, Some(0)), Plausibility::TooShort);
        assert_eq!(judge(400, 100, 20_000, None), Plausibility::TooLong);
        assert_eq!(
            judge(4_000, 1_000, 900, Some(901)),
            Plausibility::Contradictory
        );
    }
}

//! Learning from answers: cache hits, token lengths, the replica's speed.
//!
//! Engines differ in what they report, and clients in what they ask for, so each quantity is learned from whatever tells it.
//! `docs/design/learning.md` has the table.

use isotherm_fingerprint::Fingerprint;

use super::plausibility::{ResponseUsage, can_write};
use super::prefill::share_of;
use crate::constant::constants;
use crate::in_flight::{InFlightRequest, PrefillClaim};
use crate::index::{AnswerKey, Caches, TokenLength};
use crate::replica::latency::{Measurement, RequestMeasurement};
use crate::replica::{Replicas, ServedPrompt};
use crate::replica_index::ReplicaIndex;
use crate::{Source, Time};

constants! {
    /// Bound on the bytes per token of a prefix, in multiples of those of its prompt or of the pool's prompts: English precedes JSON.
    DENSITY_MAX: f64 = 1.5;
    /// Tokens of the shortest answer that measures the time per token: in shorter ones, other delays dominate.
    OUTPUT_TOKENS_MIN: u32 = 8;
}

/// A prompt whose cached tokens the engine reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheHit {
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
    /// The most bytes of the prompt that the cached tokens can have.
    pub(super) cached_bytes: f64,
    /// The predicted part of the prompt, in the engine's tokens.
    pub(super) predicted_tokens: u32,
}

impl CacheHit {
    /// Tokens of the prompt that the engine had to compute.
    pub(super) const fn uncached_tokens(&self) -> u32 {
        self.prompt_tokens.saturating_sub(self.cached_tokens)
    }

    /// Bytes of the prompt that the engine had to compute.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a u32 that is between 0 and 1 is a u32"
    )]
    pub(super) fn computed_bytes(&self, prompt: &Fingerprint) -> u32 {
        let uncached = f64::from(self.uncached_tokens());
        let share = uncached / f64::from(self.prompt_tokens.max(1));
        (f64::from(prompt.total_bytes()) * share).ceil() as u32
    }
}

/// Learns the length of a token.
pub(super) fn learn_token_length(
    replicas: &mut Replicas,
    length: &mut TokenLength,
    flight: &InFlightRequest,
    usage: &ResponseUsage,
    now: Time,
) {
    if let Some(tokens) = usage.prompt_tokens
        && flight.request.fingerprint.total_bytes() > 0
    {
        replicas.signals.token_length.teach(Source::Usage, now);
        let estimated = f64::from(flight.predicted.estimated_tokens);
        length.learn(f64::from(tokens), estimated);
    }
}

/// An answer of the selected replica.
pub(super) struct Answer<'a> {
    pub(super) flight: &'a InFlightRequest,
    pub(super) usage: &'a ResponseUsage,
    /// The replica, if it is still in the pool.
    pub(super) slot: Option<ReplicaIndex>,
    pub(super) now: Time,
}

impl Answer<'_> {
    /// Measures how much of a prompt was cached; `None` without usage that tells it.
    pub(super) fn measure_hit(&self, replicas: &mut Replicas, caches: &Caches) -> Option<CacheHit> {
        let names_cached = replicas.names_cached_tokens(
            self.slot,
            self.flight.request.api,
            self.usage.cached_tokens,
        );
        let prompt_tokens = self.usage.prompt_tokens?;
        let cached_tokens = self.usage.cached_tokens.or(names_cached.then_some(0))?;
        let total = f64::from(self.flight.request.fingerprint.total_bytes());
        if total <= 0.0 {
            return None;
        }
        // The beginning of a prompt may be denser than the rest: what is left of an English prompt with an image is nearly all tokens and
        // no bytes.
        let of_prompt = total / f64::from(prompt_tokens.max(1));
        let density = DENSITY_MAX.get() * of_prompt.max(caches.token_length.bytes());
        replicas.signals.cache_hits.teach(Source::Usage, self.now);
        let predicted = f64::from(self.flight.predicted.matched_bytes) / total;
        Some(CacheHit {
            prompt_tokens,
            cached_tokens,
            cached_bytes: total.min(density * f64::from(cached_tokens)),
            predicted_tokens: share_of(prompt_tokens, predicted),
        })
    }

    /// Learns how much of a prompt is cached that the index cannot see: earlier answers, and what sessions have in common.
    pub(super) fn learn_hidden_hits(&self, caches: &mut Caches, hit: CacheHit) {
        let predicted = &self.flight.predicted;
        let beyond = hit.cached_tokens.saturating_sub(hit.predicted_tokens);
        caches
            .answers
            .learn(predicted.answer_tokens, f64::from(beyond));
        if let Some(was_there) = predicted.followed_session
            && predicted.uncached_tokens >= 1.0
        {
            let share = 1.0 - f64::from(hit.uncached_tokens()) / predicted.uncached_tokens;
            caches.sessions.learn(was_there, share);
        }
    }

    /// Counts a prompt beside the counters of its engine.
    pub(super) fn count_prompt(&self, replicas: &mut Replicas) {
        let (predicted, share) = (&self.flight.predicted, self.flight.matched_share());
        let prompt = ServedPrompt {
            prompts: 1.0,
            estimated_tokens: f64::from(predicted.estimated_tokens),
            predicted_tokens: f64::from(share_of(self.flight.request.prompt_tokens, share)),
            answer_tokens: predicted.answer_tokens,
            ahead_tokens: self.flight.claim.ahead_tokens,
            outstanding: f64::from(predicted.outstanding),
        };
        replicas.served(self.slot, &prompt, self.now);
    }

    /// Remembers that the replica holds the answer, behind the prompt.
    pub(super) fn remember(&self, replicas: &Replicas, caches: &mut Caches) {
        let presumed = || self.presumed_tokens(replicas);
        let fingerprint = &self.flight.request.fingerprint;
        if let Some(completion) = self.usage.completion.or_else(presumed)
            && let Some(key) = AnswerKey::whole(fingerprint, self.flight.request.session)
        {
            let covered = fingerprint.share_at(fingerprint.blocks().len());
            let known = self.flight.request.prompt_tokens;
            let rest = share_of(self.usage.prompt_tokens.unwrap_or(known), 1.0 - covered);
            let tokens = rest.saturating_add(completion);
            caches
                .answers
                .record(key, self.flight.claim.replica, tokens);
        }
    }

    /// Tokens of a streamed answer without usage, by the time that it took.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of tokens; saturates"
    )]
    fn presumed_tokens(&self, replicas: &Replicas) -> Option<u32> {
        let is_known = replicas.signals.decode_speed.is_taught();
        let ttft = self.usage.ttft.filter(|_| is_known)?;
        let took = self.now.since(self.flight.dispatched_at);
        let writing_s = took.saturating_sub(ttft).as_secs_f64();
        let outstanding = f64::from(self.flight.predicted.outstanding);
        let token_s = replicas.latency().decode.at(outstanding);
        Some((writing_s / token_s).round() as u32)
    }

    /// Learns how fast the replica computes prompts and writes answers. Returns the prefill replica, if its speed was measured, too.
    pub(super) fn learn_latency(
        &self,
        replicas: &mut Replicas,
        hit: Option<CacheHit>,
    ) -> Option<ReplicaIndex> {
        if self.flight.predicted.is_behind_load {
            return None;
        }
        let took = self.now.since(self.flight.dispatched_at);
        let prompt = self.computed_before(hit);
        let (writing_s, source) = match (self.usage.ttft, prompt) {
            (Some(ttft), _) => (took.saturating_sub(ttft).as_secs_f64(), Source::Usage),
            (None, Some((tokens, _))) => {
                let pool = replicas.latency().prefill;
                let own = self.slot.map(|slot| replicas.prefill_of(slot));
                let line = own.unwrap_or(pool);
                // The time to first token of an answer that was not streamed is presumed.
                (took.as_secs_f64() - line.at(tokens), Source::Answers)
            }
            (None, None) => return None,
        };
        if is_in_one_piece(self.usage.completion, writing_s) {
            return None;
        }
        let ttft_s = self.usage.ttft.map(|ttft| ttft.as_secs_f64());
        let mut prefiller = None;
        if let (Some(prefill), Some(ttft_s)) = (&self.flight.prefill, ttft_s) {
            let tokens = self
                .usage
                .prompt_tokens
                .unwrap_or(self.flight.request.prompt_tokens);
            prefiller = replicas.slot_of(prefill.claim.replica);
            learn_prefill(replicas, prefiller, prefill, tokens, ttft_s, self.now);
        }
        let own_ttft_s = ttft_s.filter(|_| self.flight.prefill.is_none());
        let measured = RequestMeasurement {
            prompt: prompt
                .zip(own_ttft_s)
                .map(|((number, source), seconds)| Measurement {
                    number,
                    seconds,
                    source,
                }),
            output: self.time_of_token(replicas, (writing_s, source)),
        };
        replicas.learn(self.slot, measured, self.now);
        prefiller
    }

    /// The tokens that were computed before the first one of an answer, and the source of their number. `None` for a prompt that was not
    /// read: nothing tells its uncached part.
    fn computed_before(&self, hit: Option<CacheHit>) -> Option<(f64, Source)> {
        if self.flight.request.fingerprint.total_bytes() == 0 {
            return None;
        }
        let (uncached, source) = match hit {
            Some(hit) => (f64::from(hit.uncached_tokens()), Source::Usage),
            None => {
                let presumed = f64::from(self.flight.request.prompt_tokens.max(1));
                let tokens = self.usage.prompt_tokens.map_or(presumed, f64::from);
                let uncached = self.flight.predicted.uncached_tokens * tokens / presumed;
                (uncached, Source::FirstTokens)
            }
        };
        Some((self.flight.claim.ahead_tokens + uncached, source))
    }

    /// The time to write a token of an answer that is long enough to measure that. While nothing tells tokens, a streamed answer is taken
    /// to be as long as the pool's answers are.
    fn time_of_token(
        &self,
        replicas: &Replicas,
        (writing_s, source): (f64, Source),
    ) -> Option<Measurement> {
        let (tokens, source) = match self.usage.completion {
            Some(tokens) if tokens >= OUTPUT_TOKENS_MIN.get() => (f64::from(tokens), source),
            Some(_) => return None,
            None => {
                let sources = &replicas.signals.decode_speed;
                let is_told = |source| sources.is_recent(source, self.now);
                if self.usage.ttft.is_none() || is_told(Source::Usage) || is_told(Source::Counters)
                {
                    return None;
                }
                (replicas.output_tokens(), Source::Answers)
            }
        };
        Some(Measurement {
            number: f64::from(self.flight.predicted.outstanding),
            seconds: writing_s / tokens,
            source,
        })
    }
}

/// Learns how fast a prefill replica computes. Its decode replica counts the whole prompt as cached, so what the prefill
/// replica had to compute is taken from the index.
fn learn_prefill(
    replicas: &mut Replicas,
    slot: Option<ReplicaIndex>,
    prefill: &PrefillClaim,
    prompt_tokens: u32,
    ttft_s: f64,
    now: Time,
) {
    let uncached = f64::from(prompt_tokens) * prefill.uncached_share;
    let measured = RequestMeasurement {
        prompt: Some(Measurement {
            number: prefill.claim.ahead_tokens + uncached,
            seconds: ttft_s,
            source: Source::Usage,
        }),
        output: None,
    };
    replicas.learn(slot, measured, now);
}

/// Whether an answer came in one piece: no engine writes so fast. The first byte of a stream then came with its last token.
fn is_in_one_piece(completion: Option<u32>, writing_s: f64) -> bool {
    let tokens = completion.filter(|tokens| *tokens >= OUTPUT_TOKENS_MIN.get());
    tokens.is_some_and(|tokens| !can_write(tokens, writing_s))
}

//! Learning from answers: cache hits, token lengths, the replica's speed.
//!
//! Engines differ in what they report, and clients in what they ask for, so each quantity is learned from whatever tells it.
//! `docs/design/learning.md` has the table.

use isotherm_fingerprint::Fingerprint;

use super::Router;
use super::dispatch::share_of;
use super::feedback::ResponseUsage;
use super::plausibility::can_write;
use crate::Source;
use crate::constant::constants;
use crate::index::AnswerKey;
use crate::pool_state::InFlightRequest;
use crate::replica::ServedPrompt;
use crate::replica::latency::{Measurement, RequestMeasurement};
use crate::replica_index::ReplicaIndex;

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
    /// Bytes of the prompt that the engine had to compute.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a u32 that is between 0 and 1 is a u32"
    )]
    pub(super) fn computed_bytes(&self, prompt: &Fingerprint) -> u32 {
        let uncached = f64::from(self.prompt_tokens.saturating_sub(self.cached_tokens));
        let share = uncached / f64::from(self.prompt_tokens.max(1));
        (f64::from(prompt.total_bytes()) * share).ceil() as u32
    }
}

impl Router {
    /// Learns from an answer. `is_elsewhere` says that another replica than the selected one gave it.
    pub(super) fn learn(
        &mut self,
        request: &InFlightRequest,
        usage: &ResponseUsage,
        is_elsewhere: bool,
    ) {
        self.learn_lengths(request, usage);
        if is_elsewhere {
            return;
        }
        let slot = self.pool.replicas.slot_of(request.replica);
        if let Some(replica) = slot
            && !self.claims.is_empty()
        {
            self.claims.confirm(replica, &request.fingerprint);
        }
        // A prompt that was not read is not known to be cold.
        if request.fingerprint.total_bytes() > 0 {
            let share = &mut self.pool.cached_share;
            share.add(f64::from(request.prompt_tokens), request.uncached_tokens);
        }
        let hit = self.measure_hit(request, slot, usage);
        if request.prefill.is_none() {
            // With a prefill replica, the engine counts what that one computed as cached, too.
            if let Some(hit) = hit {
                self.learn_hidden_hits(request, hit);
                self.compare_prediction(request, hit);
                self.forget_more();
            }
            self.count_prompt(request, slot);
        }
        self.remember_answer(request, usage);
        self.learn_latency(request, slot, hit, usage);
    }

    /// Learns the length of a token and of an answer.
    fn learn_lengths(&mut self, request: &InFlightRequest, usage: &ResponseUsage) {
        let (now, replicas) = (self.pool.now, &mut self.pool.replicas);
        if let Some(tokens) = usage.prompt_tokens
            && request.fingerprint.total_bytes() > 0
        {
            replicas.signals.token_length.teach(Source::Usage, now);
            let estimated = f64::from(request.estimated_tokens);
            self.token_length.learn(f64::from(tokens), estimated);
        }
        self.learn_answer_length(usage);
    }

    /// Learns the length of an answer.
    pub(super) fn learn_answer_length(&mut self, usage: &ResponseUsage) {
        let (now, replicas) = (self.pool.now, &mut self.pool.replicas);
        if let Some(tokens) = usage.completion {
            replicas.learn_answer_length(f64::from(tokens), now);
        }
    }

    /// Measures how much of a prompt was cached; `None` without usage that tells it.
    fn measure_hit(
        &mut self,
        request: &InFlightRequest,
        slot: Option<ReplicaIndex>,
        usage: &ResponseUsage,
    ) -> Option<CacheHit> {
        let (now, replicas) = (self.pool.now, &mut self.pool.replicas);
        let names_cached = replicas.names_cached_tokens(slot, request.api, usage.cached_tokens);
        let prompt_tokens = usage.prompt_tokens?;
        let cached_tokens = usage.cached_tokens.or(names_cached.then_some(0))?;
        let cached_bytes =
            self.measured_bytes(&request.fingerprint, prompt_tokens, cached_tokens)?;
        let signals = &mut self.pool.replicas.signals;
        signals.cache_hits.teach(Source::Usage, now);
        let total = f64::from(request.fingerprint.total_bytes());
        let predicted = f64::from(request.matched_bytes) / total;
        Some(CacheHit {
            prompt_tokens,
            cached_tokens,
            cached_bytes,
            predicted_tokens: share_of(prompt_tokens, predicted),
        })
    }

    /// Learns how much of a prompt is cached that the index cannot see: earlier answers, and what sessions have in common.
    fn learn_hidden_hits(&mut self, request: &InFlightRequest, hit: CacheHit) {
        let pool = &mut self.pool;
        let beyond = hit.cached_tokens.saturating_sub(hit.predicted_tokens);
        pool.answers.learn(request.answer_tokens, f64::from(beyond));
        if let Some(was_there) = request.followed_session
            && request.uncached_tokens >= 1.0
        {
            let uncached = f64::from(hit.prompt_tokens.saturating_sub(hit.cached_tokens));
            let share = 1.0 - uncached / request.uncached_tokens;
            pool.sessions.learn(was_there, share);
        }
    }

    /// Counts a prompt beside the counters of its engine.
    fn count_prompt(&mut self, request: &InFlightRequest, slot: Option<ReplicaIndex>) {
        let share = request.matched_share();
        let prompt = ServedPrompt {
            prompts: 1.0,
            estimated_tokens: f64::from(request.estimated_tokens),
            predicted_tokens: f64::from(share_of(request.prompt_tokens, share)),
            answer_tokens: request.answer_tokens,
            ahead_tokens: request.ahead_tokens,
            outstanding: f64::from(request.outstanding),
        };
        let (now, replicas) = (self.pool.now, &mut self.pool.replicas);
        replicas.served(slot, &prompt, now);
    }

    /// Remembers that the replica holds the answer, behind the prompt.
    fn remember_answer(&mut self, request: &InFlightRequest, usage: &ResponseUsage) {
        let Some(completion) = usage
            .completion
            .or_else(|| self.presumed_tokens(request, usage))
        else {
            return;
        };
        let fingerprint = &request.fingerprint;
        if let Some(key) = AnswerKey::whole(fingerprint, request.session) {
            let covered = fingerprint.share_at(fingerprint.blocks().len());
            let prompt_tokens = usage.prompt_tokens.unwrap_or(request.prompt_tokens);
            let rest = share_of(prompt_tokens, 1.0 - covered);
            let tokens = rest.saturating_add(completion);
            self.pool.answers.record(key, request.replica, tokens);
        }
    }

    /// Tokens of a streamed answer without usage, by the time that it took.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of tokens; saturates"
    )]
    fn presumed_tokens(&self, request: &InFlightRequest, usage: &ResponseUsage) -> Option<u32> {
        let replicas = &self.pool.replicas;
        let is_known = replicas.signals.decode_speed.is_taught();
        let ttft = usage.ttft.filter(|_| is_known)?;
        let took = self.pool.now.since(request.dispatched_at);
        let writing_s = took.saturating_sub(ttft).as_secs_f64();
        let token_s = replicas.latency().decode.at(f64::from(request.outstanding));
        Some((writing_s / token_s).round() as u32)
    }

    /// Learns how fast the replica computes prompts and writes answers.
    fn learn_latency(
        &mut self,
        request: &InFlightRequest,
        slot: Option<ReplicaIndex>,
        hit: Option<CacheHit>,
        usage: &ResponseUsage,
    ) {
        let (sent, now) = (request.dispatched_at, self.pool.now);
        // An answer without a stream has its first token by now.
        let first_token = usage.ttft.map_or(now, |ttft| sent.after(ttft));
        self.on_first_token(slot, first_token);
        if request.is_behind_load {
            return;
        }
        let took = now.since(sent);
        let prompt = self.computed_before(request, hit, usage);
        let (writing_s, source) = match (usage.ttft, prompt) {
            (Some(ttft), _) => (took.saturating_sub(ttft).as_secs_f64(), Source::Usage),
            (None, Some((tokens, _))) => {
                let replicas = &self.pool.replicas;
                let pool = replicas.latency().prefill;
                let line = slot.map_or(pool, |slot| replicas.prefill_of(slot));
                // The time to first token of an answer that was not streamed is presumed.
                (took.as_secs_f64() - line.at(tokens), Source::Answers)
            }
            (None, None) => return,
        };
        if is_in_one_piece(usage.completion, writing_s) {
            return;
        }
        let ttft_s = usage.ttft.map(|ttft| ttft.as_secs_f64());
        if let (Some(prefill), Some(ttft_s)) = (&request.prefill, ttft_s) {
            let tokens = usage.prompt_tokens.unwrap_or(request.prompt_tokens);
            self.learn_prefill(prefill, tokens, ttft_s, first_token);
        }
        let own_ttft_s = ttft_s.filter(|_| request.prefill.is_none());
        let measured = RequestMeasurement {
            prompt: prompt
                .zip(own_ttft_s)
                .map(|((number, source), seconds)| Measurement {
                    number,
                    seconds,
                    source,
                }),
            output: self.time_of_token(request, usage, writing_s, source),
        };
        self.pool.replicas.learn(slot, measured, now);
    }

    /// The tokens that were computed before the first one of an answer, and the source of their number. `None` for a prompt that was not
    /// read: nothing tells its uncached part.
    fn computed_before(
        &self,
        request: &InFlightRequest,
        hit: Option<CacheHit>,
        usage: &ResponseUsage,
    ) -> Option<(f64, Source)> {
        if request.fingerprint.total_bytes() == 0 {
            return None;
        }
        let (uncached, source) = match hit {
            Some(hit) => {
                let uncached = hit.prompt_tokens.saturating_sub(hit.cached_tokens);
                (f64::from(uncached), Source::Usage)
            }
            None => {
                let presumed = f64::from(request.prompt_tokens.max(1));
                let tokens = usage.prompt_tokens.map_or(presumed, f64::from);
                let uncached = request.uncached_tokens * tokens / presumed;
                (uncached, Source::FirstTokens)
            }
        };
        Some((request.ahead_tokens + uncached, source))
    }

    /// The time to write a token of an answer that is long enough to measure that. While nothing tells tokens, a streamed answer is taken
    /// to be as long as the pool's answers are.
    fn time_of_token(
        &self,
        request: &InFlightRequest,
        usage: &ResponseUsage,
        writing_s: f64,
        source: Source,
    ) -> Option<Measurement> {
        let (tokens, source) = match usage.completion {
            Some(tokens) if tokens >= OUTPUT_TOKENS_MIN.get() => (f64::from(tokens), source),
            Some(_) => return None,
            None => {
                let replicas = &self.pool.replicas;
                let sources = &replicas.signals.decode_speed;
                let is_told = |source| sources.is_recent(source, self.pool.now);
                if usage.ttft.is_none() || is_told(Source::Usage) || is_told(Source::Counters) {
                    return None;
                }
                (replicas.output_tokens(), Source::Answers)
            }
        };
        Some(Measurement {
            number: f64::from(request.outstanding),
            seconds: writing_s / tokens,
            source,
        })
    }

    /// The most bytes of a measured prompt that its cached tokens can have. The beginning of a prompt may be denser than the
    /// rest: what is left of an English prompt with an image is nearly all tokens and no bytes.
    fn measured_bytes(&self, fingerprint: &Fingerprint, prompt: u32, cached: u32) -> Option<f64> {
        let total = f64::from(fingerprint.total_bytes());
        if total <= 0.0 {
            return None;
        }
        let of_prompt = total / f64::from(prompt.max(1));
        let density = DENSITY_MAX.get() * of_prompt.max(self.token_length.bytes());
        Some(total.min(density * f64::from(cached)))
    }
}

/// Whether an answer came in one piece: no engine writes so fast. The first byte of a stream then came with its last token.
fn is_in_one_piece(completion: Option<u32>, writing_s: f64) -> bool {
    let tokens = completion.filter(|tokens| *tokens >= OUTPUT_TOKENS_MIN.get());
    tokens.is_some_and(|tokens| !can_write(tokens, writing_s))
}

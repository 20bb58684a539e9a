//! Feedback: what a finished request teaches about the prediction of its cache hit, the replica's speed, and token lengths.

use core::time::Duration;

use isotherm_fingerprint::Fingerprint;

use super::Router;
use super::dispatch::share_of;
use crate::index::AnswerKey;
use crate::pool_state::InFlightRequest;
use crate::replica::{AnswerMeasurement, Evidence, PromptMeasurement, RequestMeasurement};
use crate::{End, ReplicaId, RequestId, ServedBy};

/// Bytes in a token before any measurement: about four bytes of English.
pub(super) const BYTES_PER_TOKEN: f64 = 4.0;
/// Bounds of that length, whatever an engine counts (images).
const BYTES_PER_TOKEN_RANGE: core::ops::RangeInclusive<f64> = 1.0..=16.0;
/// Weight of a finished request in the learned length of a token.
const LEARNING_RATE: f64 = 0.02;
/// A prediction is wrong when the engine found less than this share of it. Engines' blocks and bytes per token do not
/// align with the blocks of a fingerprint,
const CONFIRMED_SHARE_MIN: f64 = 0.9;
/// so at least this many bytes must be missing, too: one block.
const MISSING_BYTES_MIN: f64 = 256.0;
/// After so many wrong predictions in a row, a replica is taken to keep no cache, until a prediction is right.
const FALSE_HITS_MAX: u32 = 3;
/// Shorter answers measure other delays more than the time for a token.
const OUTPUT_TOKENS_MIN: u32 = 8;
/// Lower bound on the time in which an engine writes a token, in seconds.
const TOKEN_S_MIN: f64 = 0.000_05;

#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseUsage {
    /// Time to first token.
    pub(super) ttft: Option<Duration>,
    /// Prompt tokens, and how many of them were cached.
    pub(super) prompt: Option<(u32, u32)>,
    pub(super) completion: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct CacheHit {
    prompt_tokens: u32,
    cached_tokens: u32,
    cached_bytes: f64,
    /// The predicted part of the prompt, in the engine's tokens.
    predicted_tokens: u32,
}

impl Router {
    pub(super) fn finished(
        &mut self,
        id: RequestId,
        served_by: ServedBy,
        end: End,
        usage: &ResponseUsage,
    ) {
        if let Some(forwarded) = self.pool.forwarded.remove(id) {
            self.finish_forwarded(&forwarded, served_by, end, usage.prompt);
            return;
        }
        let Some(request) = self.pool.in_flight.remove(&id) else {
            return;
        };
        let (is_elsewhere, other) = match served_by {
            ServedBy::Unreported => (false, None),
            ServedBy::Replica(id) if id == request.replica => (false, None),
            ServedBy::Replica(id) => (true, Some(id)),
            ServedBy::UnknownHost => (true, None),
        };
        self.release_adapter(&request);
        self.release(&request, end, is_elsewhere, other);
        self.count_end(&request, end, is_elsewhere);
        self.correct_index(&request, end, is_elsewhere, other);
        self.retract_prefill(&request, end);
        if end != End::Answered {
            return;
        }
        let Some(hit) = self.measure_hit(&request, usage) else {
            return;
        };
        if is_elsewhere {
            return;
        }
        if request.prefill.is_none() {
            // With a prefill replica, the engine counts what that one computed as cached, too.
            self.learn_hidden_hits(&request, hit);
            self.compare_prediction(&request, hit);
        }
        self.remember_answer(&request, hit, usage.completion);
        self.learn_latency(&request, hit, usage);
    }

    /// Tells the replicas how a request ended: the chosen one, which failed if Envoy retried, and the one that served.
    fn release(
        &mut self,
        request: &InFlightRequest,
        end: End,
        is_elsewhere: bool,
        other: Option<ReplicaId>,
    ) {
        let evidence = evidence_of(end);
        let of_chosen = if is_elsewhere {
            Evidence::Failure
        } else {
            evidence
        };
        let (replicas, now) = (&mut self.pool.replicas, self.pool.now);
        replicas.released(request, of_chosen, now);
        if let Some(other) = other {
            replicas.served_retry(other, evidence, now);
        }
        if let Some(prefill) = &request.prefill {
            self.end_prefill(prefill, evidence);
        }
    }

    fn count_end(&mut self, request: &InFlightRequest, end: End, is_elsewhere: bool) {
        if end == End::Answered {
            self.learn_service_time(request);
            self.counters.finished_ok += 1;
        } else {
            self.counters.finished_failed += 1;
        }
        if is_elsewhere {
            self.counters.retried_elsewhere += 1;
        }
    }

    /// Moves the prompt in the index from the chosen replica to the one that computed it, if that is another one.
    fn correct_index(
        &mut self,
        request: &InFlightRequest,
        end: End,
        is_elsewhere: bool,
        other: Option<ReplicaId>,
    ) {
        let blocks = request.fingerprint.blocks();
        let pool = &mut self.pool;
        let is_answered = end == End::Answered;
        if (is_elsewhere || !is_answered)
            && let Some(chosen) = pool.replicas.slot_of(request.replica)
        {
            pool.index.retract(blocks, chosen, &request.recorded);
        }
        if is_answered && let Some(other) = other.and_then(|id| pool.replicas.slot_of(id)) {
            let matched = pool.index.deepest_of(blocks, other);
            pool.index.record(blocks, other, &matched);
        }
    }

    fn measure_hit(
        &mut self,
        request: &InFlightRequest,
        usage: &ResponseUsage,
    ) -> Option<CacheHit> {
        let (prompt_tokens, cached_tokens) = usage.prompt.filter(|(prompt, _)| *prompt > 0)?;
        let cached_bytes =
            self.measured_bytes(&request.fingerprint, prompt_tokens, cached_tokens)?;
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

    /// Remembers that the replica holds the answer, behind the prompt.
    fn remember_answer(
        &mut self,
        request: &InFlightRequest,
        hit: CacheHit,
        completion: Option<u32>,
    ) {
        let pool = &mut self.pool;
        let fingerprint = &request.fingerprint;
        let key = AnswerKey::whole(fingerprint, request.session);
        if let (Some(key), Some(completion)) = (key, completion) {
            let covered = fingerprint.share_at(fingerprint.blocks().len());
            let rest = share_of(hit.prompt_tokens, 1.0 - covered);
            let tokens = rest.saturating_add(completion);
            pool.answers.record(key, request.replica, tokens);
        }
    }

    /// Learns how fast the replica computes prompts and writes answers.
    fn learn_latency(&mut self, request: &InFlightRequest, hit: CacheHit, usage: &ResponseUsage) {
        let (sent, now) = (request.dispatched_at, self.pool.now);
        // An answer without a stream has its first token by now.
        let first_token = usage.ttft.map_or(now, |ttft| sent.after(ttft));
        self.pool.replicas.computed(request.replica, first_token);
        let Some(ttft) = usage.ttft.filter(|_| !request.is_behind_load) else {
            return;
        };
        let writing_s = now.since(sent).saturating_sub(ttft).as_secs_f64();
        let output = usage
            .completion
            .filter(|tokens| *tokens >= OUTPUT_TOKENS_MIN);
        if output.is_some_and(|tokens| writing_s < f64::from(tokens) * TOKEN_S_MIN) {
            // The stream came in one piece, so its first byte came with its last token.
            return;
        }
        let uncached = hit.prompt_tokens.saturating_sub(hit.cached_tokens);
        let ttft_s = ttft.as_secs_f64();
        if let Some(prefill) = &request.prefill {
            self.learn_prefill(prefill, hit.prompt_tokens, ttft_s, first_token);
        }
        let measured = RequestMeasurement {
            prompt: request.prefill.is_none().then(|| PromptMeasurement {
                tokens: request.ahead_tokens + f64::from(uncached),
                ttft_s,
            }),
            output: output.map(|tokens| AnswerMeasurement {
                outstanding: f64::from(request.outstanding),
                tokens: f64::from(tokens),
                seconds: writing_s,
            }),
        };
        self.pool.replicas.learn(request.replica, measured);
    }

    /// Compares the measured cache hit with the prediction, and corrects the index where the engine had less.
    fn compare_prediction(&mut self, request: &InFlightRequest, hit: CacheHit) {
        let counters = &mut self.counters;
        counters.predicted_cached_tokens += u64::from(hit.predicted_tokens);
        counters.measured_cached_tokens += u64::from(hit.cached_tokens);
        counters.prediction_error_tokens +=
            u64::from(hit.predicted_tokens.abs_diff(hit.cached_tokens));
        counters.measured_prompt_tokens += u64::from(hit.prompt_tokens);
        let pool = &mut self.pool;
        let Some(replica) = pool.replicas.slot_of(request.replica) else {
            return;
        };
        if request.matched_bytes == 0 {
            return;
        }
        if !is_false_hit(request.matched_bytes, hit.cached_bytes) {
            pool.replicas.count_false_hit(replica, false);
            return;
        }
        counters.false_hits += 1;
        pool.index.missed(replica, &request.recorded);
        if pool.replicas.count_false_hit(replica, true) >= FALSE_HITS_MAX {
            let blocks = request.fingerprint.blocks();
            let kept =
                blocks.partition_point(|block| f64::from(block.end_bytes) <= hit.cached_bytes);
            pool.index.forget_past(blocks, replica, kept);
        }
    }

    pub(super) fn aborted(&mut self, id: RequestId) {
        if let Some(seq) = self.pool.queue.seq_of(id) {
            self.dequeue(seq);
            self.counters.aborted_waiting += 1;
        } else if self.pool.forwarded.contains(id) {
            self.abort_forwarded(id);
        } else if let Some(request) = self.pool.in_flight.remove(&id) {
            self.release_adapter(&request);
            // The index keeps the prompt, since the engine has computed a part of it.
            let now = self.pool.now;
            let replicas = &mut self.pool.replicas;
            replicas.released(&request, Evidence::None, now);
            if let Some(prefill) = &request.prefill {
                self.end_prefill(prefill, Evidence::None);
            }
            self.learn_service_time(&request);
            self.counters.aborted_in_flight += 1;
        }
    }

    /// Cached prompt bytes of a measured prompt, from which the length of a token is learned, too.
    pub(super) fn measured_bytes(
        &mut self,
        fingerprint: &Fingerprint,
        prompt: u32,
        cached: u32,
    ) -> Option<f64> {
        let total = f64::from(fingerprint.total_bytes());
        if total <= 0.0 {
            return None;
        }
        let (low, high) = BYTES_PER_TOKEN_RANGE.into_inner();
        let bytes = (total / f64::from(prompt)).clamp(low, high);
        self.bytes_per_token += LEARNING_RATE * (bytes - self.bytes_per_token);
        Some(total * f64::from(cached.min(prompt)) / f64::from(prompt))
    }

    /// Limits a replica's part of the index to the size of its cache.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of a positive size; saturates"
    )]
    pub(super) fn budget(&mut self, id: ReplicaId, kv_capacity_tokens: u64) {
        let bytes = (kv_capacity_tokens as f64 * self.bytes_per_token) as u64;
        if let Some(replica) = self.pool.replicas.slot_of(id) {
            self.pool.index.set_budget(replica, Some(bytes));
        }
    }
}

/// Verdict of a finished response on its replica.
pub(super) const fn evidence_of(end: End) -> Evidence {
    match end {
        End::Answered => Evidence::Success,
        End::Refused => Evidence::None,
        End::Failed => Evidence::Failure,
    }
}

/// Whether an engine found less of a prompt in its cache than predicted, both in bytes.
pub(super) fn is_false_hit(predicted: u32, measured: f64) -> bool {
    let predicted = f64::from(predicted);
    measured < predicted * CONFIRMED_SHARE_MIN && predicted - measured >= MISSING_BYTES_MIN
}

//! What a finished request teaches: whether the prediction was right, and how long a token is.

use isotherm_fingerprint::Fingerprint;

use core::time::Duration;

use super::dispatch::share_of;
use super::{InFlightRequest, Router};
use crate::index::AnswerKey;
use crate::replica::{AnswerMeasurement, Evidence, RequestMeasurement};
use crate::{End, ReplicaId, RequestId, ServedBy};

/// Length of a token before anything is known: about four bytes of English.
pub(super) const BYTES_PER_TOKEN: f64 = 4.0;
/// No text is denser or thinner than this, whatever an engine counts (images).
const BYTES_PER_TOKEN_RANGE: core::ops::RangeInclusive<f64> = 1.0..=16.0;
/// How much a finished request moves the learned length of a token.
const LEARNING_RATE: f64 = 0.02;
/// A prediction is wrong when the engine found less than this share of it: engines' blocks and bytes per token
/// do not fall on our blocks.
const FOUND_MIN: f64 = 0.9;
/// And when at least this much is missing, in bytes: one block.
const MISSING_BYTES_MIN: f64 = 256.0;
/// After so many wrong predictions in a row a replica is taken to keep no cache worth predicting, until one
/// is right.
const FALSE_HITS_MAX: u32 = 3;

/// Shorter answers say more of everything else than of the time for a token.
const OUTPUT_TOKENS_MIN: u32 = 8;

/// No engine writes a token faster, in seconds.
const TOKEN_S_MIN: f64 = 0.000_05;

/// What a response said at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseUsage {
    /// Time to first token.
    pub(super) ttft: Option<Duration>,
    /// Tokens of the prompt, and those of them that were cached.
    pub(super) prompt: Option<(u32, u32)>,
    /// Tokens of the answer.
    pub(super) completion: Option<u32>,
}

impl Router {
    pub(super) fn finished(
        &mut self,
        id: RequestId,
        served_by: ServedBy,
        end: End,
        told: &ResponseUsage,
    ) {
        if let Some(forwarded) = self.forwarded.remove(id) {
            self.finish_forwarded(&forwarded, served_by, end, told.prompt);
            return;
        }
        let Some(flight) = self.in_flight.remove(&id) else {
            return;
        };
        let (elsewhere, other) = match served_by {
            ServedBy::Unreported => (false, None),
            ServedBy::Replica(id) if id == flight.replica => (false, None),
            ServedBy::Replica(id) => (true, Some(id)),
            ServedBy::UnknownHost => (true, None),
        };
        let evidence = match end {
            End::Answered => Evidence::Success,
            End::Refused => Evidence::None,
            End::Failed => Evidence::Failure,
        };
        // Somebody else serves only what the chosen one failed to.
        let of_chosen = if elsewhere {
            Evidence::Failure
        } else {
            evidence
        };
        self.replicas
            .released(flight.replica, flight.sent, of_chosen, self.now);
        if let Some(other) = other {
            self.replicas.served_retry(other, evidence, self.now);
        }
        let ok = end == End::Answered;
        if ok {
            self.learn_service_time(&flight);
            self.counters.finished_ok += 1;
        } else {
            self.counters.finished_failed += 1;
        }
        let blocks = flight.fingerprint.blocks();
        let chosen = self.replicas.slot_of(flight.replica);
        if elsewhere {
            self.counters.retried_elsewhere += 1;
        }
        if let Some(slot) = chosen.filter(|_| elsewhere || !ok) {
            self.index.retract(blocks, slot, &flight.recorded);
        }
        if !ok {
            return;
        }
        if let Some(slot) = other.and_then(|id| self.replicas.slot_of(id)) {
            let matched = self.index.deepest_of(blocks, slot);
            self.index.record(blocks, slot, &matched);
        }
        let Some((prompt, cached)) = told.prompt.filter(|(prompt, _)| *prompt > 0) else {
            return;
        };
        let Some(measured) = self.measured_bytes(&flight.fingerprint, prompt, cached) else {
            return;
        };
        if elsewhere {
            return;
        }
        let matched = share_of(
            prompt,
            f64::from(flight.matched_bytes) / f64::from(flight.fingerprint.total_bytes()),
        );
        self.answers.learn(
            flight.behind_tokens,
            f64::from(cached.saturating_sub(matched)),
        );
        if let Some(was_there) = flight.followed
            && flight.uncached_tokens >= 1.0
        {
            let uncached = f64::from(prompt.saturating_sub(cached));
            let share = 1.0 - uncached / flight.uncached_tokens;
            self.sessions.learn(was_there, share);
        }
        let key = AnswerKey::whole(&flight.fingerprint, flight.session);
        if let (Some(key), Some(completion)) = (key, told.completion) {
            let rest = share_of(prompt, 1.0 - flight.fingerprint.share_at(blocks.len()));
            let tokens = rest.saturating_add(completion);
            self.answers.record(key, flight.replica, tokens);
        }
        // Of a whole answer it had come by now.
        let first_token = told.ttft.map_or(self.now, |ttft| flight.at.after(ttft));
        self.replicas.computed(flight.replica, first_token);
        if let Some(ttft) = told.ttft {
            self.learn_pace(
                &flight,
                ttft,
                prompt.saturating_sub(cached),
                told.completion,
            );
        }
        let total = f64::from(flight.fingerprint.total_bytes());
        let predicted = share_of(prompt, f64::from(flight.matched_bytes) / total);
        let counters = &mut self.counters;
        counters.predicted_cached_tokens += u64::from(predicted);
        counters.measured_cached_tokens += u64::from(cached);
        counters.prediction_error_tokens += u64::from(predicted.abs_diff(cached));
        counters.measured_prompt_tokens += u64::from(prompt);
        if flight.matched_bytes == 0 {
            return;
        }
        let Some(slot) = chosen else {
            return;
        };
        if !is_false_hit(flight.matched_bytes, measured) {
            self.replicas.count_false_hit(slot, false);
            return;
        }
        self.counters.false_hits += 1;
        self.index.missed(slot, &flight.recorded);
        if self.replicas.count_false_hit(slot, true) >= FALSE_HITS_MAX {
            let kept = blocks.partition_point(|block| f64::from(block.end_bytes) <= measured);
            self.index.forget_past(blocks, slot, kept);
        }
    }

    /// How fast the replica is.
    fn learn_pace(
        &mut self,
        flight: &InFlightRequest,
        ttft: Duration,
        uncached: u32,
        output: Option<u32>,
    ) {
        let writing_s = (self.now.since(flight.at).saturating_sub(ttft)).as_secs_f64();
        let output = output.filter(|tokens| *tokens >= OUTPUT_TOKENS_MIN);
        if output.is_some_and(|tokens| writing_s < f64::from(tokens) * TOKEN_S_MIN) {
            // A stream in one piece: its first byte came with its last token, and tells neither.
            return;
        }
        let measured = RequestMeasurement {
            tokens: flight.ahead_tokens + f64::from(uncached),
            ttft_s: ttft.as_secs_f64(),
            output: output.map(|tokens| AnswerMeasurement {
                outstanding: f64::from(flight.outstanding),
                tokens: f64::from(tokens),
                seconds: writing_s,
            }),
        };
        self.replicas.learn(flight.replica, measured);
    }

    pub(super) fn aborted(&mut self, id: RequestId) {
        if let Some(seq) = self.queue.seq_of(id) {
            self.dequeue(seq);
            self.counters.aborted_waiting += 1;
        } else if self.forwarded.contains(id) {
            self.abort_forwarded(id);
        } else if let Some(flight) = self.in_flight.remove(&id) {
            // What the engine computed until then is in its cache.
            self.replicas
                .released(flight.replica, flight.sent, Evidence::None, self.now);
            self.learn_service_time(&flight);
            self.counters.aborted_in_flight += 1;
        }
    }

    /// How much of a prompt an engine found in its cache, in bytes; and learns from it how long a token is.
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
        self.learn_token_length(total / f64::from(prompt));
        Some(total * f64::from(cached.min(prompt)) / f64::from(prompt))
    }

    /// A replica's part of the index is as large as its cache.
    pub(super) fn budget(&mut self, id: ReplicaId, kv_capacity_tokens: u64) {
        if let Some(slot) = self.replicas.slot_of(id) {
            self.index
                .set_budget(slot, Some(self.prompt_bytes(kv_capacity_tokens)));
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of a positive size; saturates"
    )]
    fn prompt_bytes(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.bytes_per_token) as u64
    }

    fn learn_token_length(&mut self, bytes: f64) {
        let (low, high) = BYTES_PER_TOKEN_RANGE.into_inner();
        self.bytes_per_token += LEARNING_RATE * (bytes.clamp(low, high) - self.bytes_per_token);
    }
}

/// Whether an engine found less of a prompt in its cache than was predicted, both in bytes.
pub(super) fn is_false_hit(predicted: u32, measured: f64) -> bool {
    let predicted = f64::from(predicted);
    measured < predicted * FOUND_MIN && predicted - measured >= MISSING_BYTES_MIN
}

//! Queued prefill and speed of a replica: how long a new prompt waits, how fast it is computed, how fast answers are written.
//!
//! Each replica is modelled as one server that computes prompts in order. A prompt that is dispatched now is computed from
//! `ready` on, and moves `ready` by its uncached tokens times the seconds per token. The last requests that a probe finds
//! waiting count as uncomputed: an engine whose memory is full computes nothing.
//!
//! Finished requests fit two lines: *prefill*, the time to first token by the tokens computed before it, and *decode*, the
//! time per output token by the requests outstanding.

use core::time::Duration;
use std::collections::VecDeque;

use super::least_squares::{DecayingLeastSquares, LinearModel};
use crate::Time;

/// Presumed prefill line, by uncached tokens.
const PREFILL: LinearModel = LinearModel {
    fixed_s: 0.03,
    each_s: 0.000_1,
};
/// Presumed decode line, by outstanding requests.
const DECODE: LinearModel = LinearModel {
    fixed_s: 0.02,
    each_s: 0.000_5,
};
/// Bounds of the time per prompt token, in seconds: noise can push a fitted line beyond them.
const TOKEN_S: core::ops::RangeInclusive<f64> = 2e-6..=2e-2;
/// Second presumed point of the prefill line, in tokens.
const PREFILL_AT: f64 = 4_000.0;
/// Second presumed point of the decode line, in requests.
const DECODE_AT: f64 = 20.0;

/// Requests after which a replica uses its own lines. Fewer cannot tell a slow replica from long prompts.
const MEASURED_MIN: u32 = 8;

/// Requests per replica, not known to have begun, that are remembered at most.
const SENT_MAX: usize = 1_024;

/// Prefill and decode lines of a replica or a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatencyModel {
    /// Time to first token, by the tokens computed before it.
    pub(crate) prefill: LinearModel,
    /// Time per output token, by the requests outstanding.
    pub(crate) decode: LinearModel,
}

impl LatencyModel {
    /// The lower bound of two models.
    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            prefill: self.prefill.least(other.prefill),
            decode: self.decode.least(other.decode),
        }
    }
}

impl Default for LatencyModel {
    fn default() -> Self {
        Self {
            prefill: PREFILL,
            decode: DECODE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestMeasurement {
    /// Measurements of the prompt, if the replica computed it.
    pub(crate) prompt: Option<PromptMeasurement>,
    /// Measurements of the answer, if known.
    pub(crate) output: Option<AnswerMeasurement>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptMeasurement {
    /// Tokens computed before its first output token, those of earlier requests included.
    pub(crate) tokens: f64,
    /// Time to first token, in seconds.
    pub(crate) ttft_s: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerMeasurement {
    /// Requests outstanding at the same time.
    pub(crate) outstanding: f64,
    pub(crate) tokens: f64,
    /// Time from first to last token, in seconds.
    pub(crate) seconds: f64,
}

/// Fits of both lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatencyFit {
    prefill: DecayingLeastSquares,
    decode: DecayingLeastSquares,
}

impl LatencyFit {
    pub(crate) fn is_measured(&self) -> bool {
        self.prefill.is_measured()
    }

    /// Learns a measurement and returns the new model.
    pub(crate) fn learn(
        &mut self,
        measured: RequestMeasurement,
        presumed: LatencyModel,
    ) -> LatencyModel {
        if let Some(prompt) = measured.prompt {
            self.prefill.learn(prompt.tokens, prompt.ttft_s);
        }
        if let Some(output) = measured.output {
            self.decode
                .learn(output.outstanding, output.seconds / output.tokens);
        }
        let prefill = self.prefill.line(presumed.prefill, PREFILL_AT);
        LatencyModel {
            prefill: LinearModel {
                each_s: prefill.each_s.clamp(*TOKEN_S.start(), *TOKEN_S.end()),
                ..prefill
            },
            decode: self.decode.line(presumed.decode, DECODE_AT),
        }
    }
}

/// Queued prefill of one replica, and its speed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// When all dispatched prompts will be computed.
    ready: Time,
    /// Recent prompts that have not begun, as far as probes tell: dispatch time, and tokens to compute.
    sent: VecDeque<(Time, f64)>,
    speed: LatencyFit,
    latency: LatencyModel,
    measured: u32,
}

impl Backlog {
    pub(crate) fn new(pool: LatencyModel) -> Self {
        Self {
            latency: pool,
            ..Self::default()
        }
    }

    /// The replica's own model, once it has measured enough.
    pub(crate) fn latency(&self) -> Option<&LatencyModel> {
        (self.measured >= MEASURED_MIN).then_some(&self.latency)
    }

    /// Takes over the pool's model until the replica has measured enough.
    pub(crate) fn presume(&mut self, pool: LatencyModel) {
        if self.measured < MEASURED_MIN {
            self.latency = pool;
        }
    }

    /// When all dispatched prompts will be computed.
    pub(crate) const fn ready(&self) -> Time {
        self.ready
    }

    /// Time until all dispatched prompts are computed, in seconds.
    pub(crate) fn wait_s(&self, now: Time) -> f64 {
        self.ready.since(now).as_secs_f64()
    }

    /// Queued prefill in tokens.
    pub(crate) fn tokens(&self, now: Time) -> f64 {
        self.wait_s(now) / self.latency.prefill.each_s
    }

    /// When the last prompt was dispatched.
    pub(crate) fn last_push(&self) -> Option<Time> {
        self.sent.back().map(|(at, _)| *at)
    }

    /// Accounts for a dispatched prompt with `tokens` to compute.
    pub(crate) fn pushed(&mut self, tokens: f64, now: Time) {
        self.ready = self.ready.max(now).after(self.takes(tokens));
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((now, tokens));
    }

    /// Applies a probe, sent at `at`, that found `pending` requests waiting: the last ones that the replica can have seen.
    pub(crate) fn probed(&mut self, pending: u32, at: Time) {
        let seen = self.sent.partition_point(|(sent, _)| *sent <= at);
        let pending = usize::try_from(pending).unwrap_or(usize::MAX);
        self.sent.drain(..seen.saturating_sub(pending));
        let waiting = self.sent.iter().take(seen.min(pending));
        let tokens: f64 = waiting.map(|(_, tokens)| tokens).sum();
        self.ready = self.ready.max(at.after(self.takes(tokens)));
    }

    fn takes(&self, tokens: f64) -> Duration {
        let takes_s = tokens * self.latency.prefill.each_s;
        Duration::try_from_secs_f64(takes_s).unwrap_or_default()
    }

    /// Clears the backlog of a replica with nothing outstanding.
    pub(crate) fn emptied(&mut self) {
        self.ready = Time::ZERO;
        self.sent.clear();
    }

    pub(crate) fn learn(&mut self, measured: RequestMeasurement, pool: LatencyModel) {
        self.latency = self.speed.learn(measured, pool);
        self.measured = self.measured.saturating_add(1);
        self.presume(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_empties_as_time_passes() {
        let mut backlog = Backlog::new(LatencyModel::default());
        let start = Time::ZERO.after(Duration::from_secs(5));
        backlog.pushed(1_000.0, start);
        backlog.pushed(1_000.0, start);
        let near = |a: f64, b: f64| (a - b).abs() < 1.0;
        assert!(near(backlog.tokens(start), 2_000.0));
        let later = start.after(Duration::from_secs_f64(1_000.0 * PREFILL.each_s));
        assert!(near(backlog.tokens(later), 1_000.0));
        backlog.emptied();
        assert!(backlog.wait_s(later) <= 0.0);
    }

    #[test]
    fn what_a_probe_finds_waiting_is_not_computed_however_much_time_has_passed() {
        let mut backlog = Backlog::new(LatencyModel::default());
        let at = |s| Time::ZERO.after(Duration::from_secs(s));
        for tokens in [4_000.0, 3_000.0, 2_000.0] {
            backlog.pushed(tokens, at(1));
        }
        let near = |a: f64, b: f64| (a - b).abs() < 1.0;
        assert!(near(backlog.tokens(at(59)), 0.0));
        backlog.probed(2, at(59));
        let whole = backlog.tokens(at(59));
        assert!(near(whole, 5_000.0), "{whole}");
        backlog.emptied();
        backlog.pushed(500.0, at(70));
        backlog.probed(7, at(71));
        let others = backlog.tokens(at(71));
        assert!(
            near(others, 500.0),
            "what others sent is not known: {others}"
        );
    }

    #[test]
    fn a_replica_of_its_own_speed_is_told_apart_from_its_pool() {
        let mut backlog = Backlog::new(LatencyModel::default());
        for i in 0..20_u32 {
            let tokens = f64::from(i * 700 % 3_000);
            let measured = RequestMeasurement {
                prompt: Some(PromptMeasurement {
                    tokens,
                    ttft_s: 0.05 + tokens * 0.000_3,
                }),
                output: None,
            };
            backlog.learn(measured, LatencyModel::default());
        }
        let learned = backlog.latency().unwrap().prefill.each_s;
        assert!((learned / 0.000_3 - 1.0).abs() < 0.2, "{learned}");
    }
}

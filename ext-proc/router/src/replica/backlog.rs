//! How long a replica's prompts take: what is in front of a new one, and how fast it is computed; and how fast it
//! writes answers.
//!
//! Nobody tells the router when a prompt has been computed: probes count requests, and a response's time to first token
//! is only told at its end. So each replica is seen as one server that computes prompts in order: a prompt that is sent
//! now is computed from `ready` on, and moves `ready` by its uncached tokens times the seconds that a token takes. Time
//! passing empties the backlog; a replica with nothing outstanding has none, whatever was estimated. And an engine whose
//! memory is full computes nothing for a while, whatever time passes: so the last requests that a probe finds waiting are
//! taken to be uncomputed. Without that an overloaded engine looks idle, and whoever goes by the least work sends it all.
//!
//! Two lines are fitted to what finished requests have measured:
//!
//! - *prefill*: time to first token against the tokens that had to be computed before it, those in front included. A
//!   ratio alone would put the engine's fixed costs (a step, the network) on the tokens: where nearly everything is
//!   cached, prompts would look ten times as expensive as they are;
//! - *decode*: time for one output token against the requests that were outstanding, since each sequence of a batch
//!   makes its steps longer.
//!
//! Before there is anything to learn from, the pool presumes a mid-sized model on one GPU, and a replica presumes the
//! pool's lines until it has measured eight requests of its own, which is how replicas of different speed are told apart.

use core::time::Duration;
use std::collections::VecDeque;

use super::least_squares::{DecayingLeastSquares, LinearModel};
use crate::Time;

/// What is presumed before anything was measured, by uncached tokens,
const PREFILL: LinearModel = LinearModel {
    fixed_s: 0.03,
    each_s: 0.000_1,
};
/// and by outstanding requests.
const DECODE: LinearModel = LinearModel {
    fixed_s: 0.02,
    each_s: 0.000_5,
};
/// No engine computes a prompt token faster, or slower, in seconds; a line through noise may say so.
const TOKEN_S: core::ops::RangeInclusive<f64> = 2e-6..=2e-2;
/// Where the second presumed point lies, in tokens,
const PREFILL_AT: f64 = 4_000.0;
/// and in requests.
const DECODE_AT: f64 = 20.0;

/// So many requests of its own say how fast a replica is. Of a few it cannot be told whether the replica is slow or the
/// prompts are long, and one that somebody has tried looks slower than one that nobody has.
const MEASURED_MIN: u32 = 8;

/// How many requests of one replica are remembered that may not have begun.
const SENT_MAX: usize = 1_024;

/// Both lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatencyModel {
    /// Time to first token by the tokens that have to be computed before it.
    pub(crate) prefill: LinearModel,
    /// Time for an output token by the requests that are outstanding.
    pub(crate) decode: LinearModel,
}

impl LatencyModel {
    /// At least as fast as both.
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

/// What a finished request has measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Tokens that had to be computed before its first one, those of others included.
    pub(crate) tokens: f64,
    /// How long that took, seconds.
    pub(crate) ttft_s: f64,
    /// Its answer, where that is known.
    pub(crate) output: Option<Output>,
}

/// What an answer has measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Requests that were outstanding with it.
    pub(crate) outstanding: f64,
    /// Its length.
    pub(crate) tokens: f64,
    /// How long it took to write, seconds.
    pub(crate) seconds: f64,
}

/// How fast something is, as measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatencyFit {
    prefill: DecayingLeastSquares,
    decode: DecayingLeastSquares,
}

impl LatencyFit {
    /// Whether it is known at all how long prompts take.
    pub(crate) fn is_measured(&self) -> bool {
        self.prefill.is_measured()
    }

    /// Learns, and says how fast it is now.
    pub(crate) fn learn(&mut self, measured: Measured, presumed: LatencyModel) -> LatencyModel {
        self.prefill.learn(measured.tokens, measured.ttft_s);
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

/// What one replica has to compute, as far as can be known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// When the prompts that were sent are computed.
    ready: Time,
    /// The last ones that were sent: when, and how many tokens each has to compute. Not those that have begun, as far as
    /// probes tell.
    sent: VecDeque<(Time, f64)>,
    speed: LatencyFit,
    latency: LatencyModel,
    /// How many of its requests have been measured.
    measured: u32,
}

impl Backlog {
    pub(crate) fn new(pool: LatencyModel) -> Self {
        Self {
            latency: pool,
            ..Self::default()
        }
    }

    /// How fast it is, as far as it has measured that itself.
    pub(crate) const fn latency(&self) -> Option<&LatencyModel> {
        if self.measured >= MEASURED_MIN {
            Some(&self.latency)
        } else {
            None
        }
    }

    /// The pool's pace as it is now, for a replica that has not measured enough of its own.
    pub(crate) fn presume(&mut self, pool: LatencyModel) {
        if self.measured < MEASURED_MIN {
            self.latency = pool;
        }
    }

    /// When what was sent is computed.
    pub(crate) const fn ready(&self) -> Time {
        self.ready
    }

    /// How long until then, in seconds.
    pub(crate) fn wait_s(&self, now: Time) -> f64 {
        self.ready.since(now).as_secs_f64()
    }

    /// The same in tokens.
    pub(crate) fn tokens(&self, now: Time) -> f64 {
        self.wait_s(now) / self.latency.prefill.each_s
    }

    /// When the last prompt was sent.
    pub(crate) fn last_push(&self) -> Option<Time> {
        self.sent.back().map(|(at, _)| *at)
    }

    /// A prompt was sent, of which so many tokens are to be computed.
    pub(crate) fn pushed(&mut self, tokens: f64, now: Time) {
        let takes = tokens * self.latency.prefill.each_s;
        let takes = Duration::try_from_secs_f64(takes).unwrap_or_default();
        self.ready = self.ready.max(now).after(takes);
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((now, tokens));
    }

    /// A probe, sent at `at`, found so many requests that have not begun: the last ones that it can have seen.
    pub(crate) fn probed(&mut self, pending: u32, at: Time) {
        let seen = self.sent.partition_point(|(sent, _)| *sent <= at);
        let pending = usize::try_from(pending).unwrap_or(usize::MAX);
        self.sent.drain(..seen.saturating_sub(pending));
        let waiting = self.sent.iter().take(seen.min(pending));
        let tokens: f64 = waiting.map(|(_, tokens)| tokens).sum();
        let takes = tokens * self.latency.prefill.each_s;
        let takes = Duration::try_from_secs_f64(takes).unwrap_or_default();
        self.ready = self.ready.max(at.after(takes));
    }

    /// Nothing is outstanding.
    pub(crate) fn emptied(&mut self) {
        self.ready = Time::ZERO;
        self.sent.clear();
    }

    pub(crate) fn learn(&mut self, measured: Measured, pool: LatencyModel) {
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
            let measured = Measured {
                tokens,
                ttft_s: 0.05 + tokens * 0.000_3,
                output: None,
            };
            backlog.learn(measured, LatencyModel::default());
        }
        let learned = backlog.latency().unwrap().prefill.each_s;
        assert!((learned / 0.000_3 - 1.0).abs() < 0.2, "{learned}");
    }
}

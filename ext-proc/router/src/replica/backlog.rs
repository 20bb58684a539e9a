//! How long a replica's prompts take: what is in front of a new one, and how fast it is computed.
//!
//! Nobody tells the router when a prompt has been computed: probes count requests, and a response's time to first token
//! is only told at its end. So each replica is seen as one server that computes prompts in order: a prompt that is sent
//! now is computed from `ready` on, and moves `ready` by its uncached tokens times the seconds that a token takes. Time
//! passing empties the backlog; a replica with nothing outstanding has none, whatever was estimated.
//!
//! The speed is a line, `first_token_s = fixed_s + token_s x tokens`, through what finished requests have measured: their
//! time to first token against the tokens that had to be computed before it, those in front included. Least squares that
//! forget. A ratio alone would put the engine's fixed costs (a step, the network) on the tokens: where nearly everything
//! is cached, prompts would look ten times as expensive as they are.
//!
//! Before there is anything to learn from, a line is drawn through two points that are presumed: for the pool those of a
//! mid-sized model on one GPU, for a replica what the pool's line says. So a new replica begins with the pool's figures and
//! moves to its own within a few requests, which is how replicas of different speed are told apart.

use core::time::Duration;

use crate::Time;

/// How much of what was learned remains when the next request has ended.
const MEMORY: f64 = 0.97;
/// What is presumed before anything was measured: of each request, seconds,
const FIXED_S: f64 = 0.03;
/// and of each token, seconds.
const TOKEN_S: f64 = 0.000_1;
/// Where the second presumed point lies, in tokens.
const PRESUMED_TOKENS: f64 = 4_000.0;
/// How many requests each presumed point counts for.
const PRESUMED_WEIGHT: f64 = 0.2;
/// No engine is faster than this, seconds for a token.
const TOKEN_S_MIN: f64 = 1e-7;

/// A line: how long the first token takes by the tokens that have to be computed before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    /// Whatever its length, seconds.
    pub(crate) fixed_s: f64,
    /// For each token, seconds.
    pub(crate) token_s: f64,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            fixed_s: FIXED_S,
            token_s: TOKEN_S,
        }
    }
}

/// Sums for least squares that forget.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    count: f64,
    tokens: f64,
    seconds: f64,
    tokens_squared: f64,
    tokens_seconds: f64,
}

impl Speed {
    /// A first token took so long, with so many tokens to compute before it.
    pub(crate) fn learn(&mut self, tokens: f64, seconds: f64) {
        let kept = Self {
            count: self.count * MEMORY,
            tokens: self.tokens * MEMORY,
            seconds: self.seconds * MEMORY,
            tokens_squared: self.tokens_squared * MEMORY,
            tokens_seconds: self.tokens_seconds * MEMORY,
        };
        *self = kept.with(1.0, tokens, seconds);
    }

    /// The line through what was learned, and through what is presumed as far as that is little.
    pub(crate) fn line(&self, presumed: Line) -> Line {
        let there = presumed.fixed_s + presumed.token_s * PRESUMED_TOKENS;
        let all = self.with(PRESUMED_WEIGHT, 0.0, presumed.fixed_s).with(
            PRESUMED_WEIGHT,
            PRESUMED_TOKENS,
            there,
        );
        let spread = all.count * all.tokens_squared - all.tokens * all.tokens;
        let slope = (all.count * all.tokens_seconds - all.tokens * all.seconds) / spread;
        let token_s = slope.max(TOKEN_S_MIN);
        let fixed_s = ((all.seconds - token_s * all.tokens) / all.count).max(0.0);
        Line { fixed_s, token_s }
    }

    fn with(self, weight: f64, tokens: f64, seconds: f64) -> Self {
        Self {
            count: self.count + weight,
            tokens: self.tokens + weight * tokens,
            seconds: self.seconds + weight * seconds,
            tokens_squared: self.tokens_squared + weight * tokens * tokens,
            tokens_seconds: self.tokens_seconds + weight * tokens * seconds,
        }
    }
}

/// What one replica has to compute, as far as can be known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    /// When the prompts that were sent are computed.
    ready: Time,
    speed: Speed,
    /// The line through `speed`, kept ready.
    line: Line,
}

impl Backlog {
    pub(crate) fn new(pool: Line) -> Self {
        Self {
            line: pool,
            ..Self::default()
        }
    }

    pub(crate) const fn line(&self) -> Line {
        self.line
    }

    /// How long until what was sent is computed, in seconds.
    pub(crate) fn wait_s(&self, now: Time) -> f64 {
        self.ready.since(now).as_secs_f64()
    }

    /// The same in tokens.
    pub(crate) fn tokens(&self, now: Time) -> f64 {
        self.wait_s(now) / self.line.token_s
    }

    /// A prompt was sent, of which so many tokens are to be computed.
    pub(crate) fn pushed(&mut self, tokens: f64, now: Time) {
        let takes = Duration::try_from_secs_f64(tokens * self.line.token_s).unwrap_or_default();
        self.ready = self.ready.max(now).after(takes);
    }

    /// Nothing is outstanding.
    pub(crate) const fn emptied(&mut self) {
        self.ready = Time::ZERO;
    }

    pub(crate) fn learn(&mut self, tokens: f64, seconds: f64, pool: Line) {
        self.speed.learn(tokens, seconds);
        self.line = self.speed.line(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.05 * b
    }

    #[test]
    fn a_line_is_found_under_noise_and_from_any_start() {
        let mut speed = Speed::default();
        for i in 0..200_u32 {
            let tokens = f64::from(i * 1_237 % 5_000);
            let noise = f64::from(i % 7) * 0.002 - 0.006;
            speed.learn(tokens, 0.1 + 0.000_4 * tokens + noise);
        }
        let line = speed.line(Line::default());
        assert!(near(line.token_s, 0.000_4), "{line:?}");
        assert!((line.fixed_s - 0.1).abs() < 0.01, "{line:?}");
    }

    #[test]
    fn prompts_of_one_length_do_not_break_it() {
        let mut speed = Speed::default();
        for _ in 0..100 {
            speed.learn(1_000.0, 0.5);
        }
        let line = speed.line(Line::default());
        assert!(near(line.fixed_s + 1_000.0 * line.token_s, 0.5), "{line:?}");
    }

    #[test]
    fn a_backlog_empties_as_time_passes() {
        let mut backlog = Backlog::new(Line::default());
        let start = Time::ZERO.after(Duration::from_secs(5));
        backlog.pushed(1_000.0, start);
        backlog.pushed(1_000.0, start);
        assert!(near(backlog.tokens(start), 2_000.0));
        let later = start.after(Duration::from_secs_f64(1_000.0 * TOKEN_S));
        assert!(near(backlog.tokens(later), 1_000.0));
        backlog.emptied();
        assert!(backlog.wait_s(later) <= 0.0);
    }
}

//! The number of requests that a worker has at the gateway at once.
//!
//! A request needs a place in two windows: that of its model and priority, which follows what the gateway takes, and that of
//! its owner and model, which follows failures. So lines of one owner that fail stop no line of another.
//!
//! Additive increase, multiplicative decrease, as TCP's. The gateway says with a 429 that it holds enough, so a 429 halves
//! the window, at most once for all requests that were sent before the cut; a success widens the window by one request
//! per window of successes. Before the first cut, each success widens it by one (slow start).
//!
//! Latency is no signal. The time of a response follows the length of its answer, and a held request waits by design: a
//! window that shrinks with latency would leave the spare capacity unused which the gate is about to give. The gate's
//! own bounds turn a long wait into a 429.
//!
//! One failure among successes is a replica's, or the request's own, and says nothing about the gateway. From the third
//! failure on without a success between, the gateway is broken, or it fails all requests of this owner: the window halves and
//! pauses, twice as long each time up to [`PAUSE_MS_MAX`]. An outage then costs few attempts of each owner.

use super::SteadyMs;

/// The window at the start.
const SIZE_START: f64 = 4.0;
/// Longest pause after failures or by `Retry-After`, in milliseconds.
const PAUSE_MS_MAX: i64 = 60_000;
/// First pause after failures, in milliseconds.
const PAUSE_MS: i64 = 500;
/// Failures without a success between them that say that the gateway is broken.
const FAILURES_MIN: u32 = 3;
/// Time for which one success proves that the gateway serves, in milliseconds.
const EVIDENCE_MS: i64 = 60_000;

/// A response's news about the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// The gateway served the request, with success or with an error of the request's own.
    Served,
    /// The gateway refused the request (429), and says when to ask again.
    Refused {
        /// `Retry-After`, in milliseconds.
        retry_after_ms: i64,
    },
    /// The gateway or a replica failed.
    Failed,
}

/// A window of requests.
#[derive(Clone, Debug)]
pub struct SendWindow {
    size: f64,
    size_max: f64,
    is_slow_start: bool,
    in_flight: usize,
    cut_at: SteadyMs,
    paused_until: SteadyMs,
    /// Failures since the last success.
    failures: u32,
    /// Cuts by failures since the last success.
    cuts: u32,
    served_at: Option<SteadyMs>,
}

impl SendWindow {
    /// Creates a window of at most `size_max` requests.
    #[must_use]
    pub fn new(size_max: usize) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a window has some thousand requests"
        )]
        let size_max = (size_max.max(1)) as f64;
        Self {
            size: SIZE_START.min(size_max),
            size_max,
            is_slow_start: true,
            in_flight: 0,
            cut_at: SteadyMs::MIN,
            paused_until: SteadyMs::MIN,
            failures: 0,
            cuts: 0,
            served_at: None,
        }
    }

    /// Number of requests that may be sent now.
    #[must_use]
    pub fn free(&self, now: SteadyMs) -> usize {
        if self.is_paused(now) {
            return 0;
        }
        self.limit().saturating_sub(self.in_flight)
    }

    /// Whether no request may be sent now.
    #[must_use]
    pub fn is_paused(&self, now: SteadyMs) -> bool {
        now < self.paused_until
    }

    /// The window, in whole requests.
    #[must_use]
    pub fn limit(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the size is between 1 and the configured maximum"
        )]
        let limit = self.size as usize;
        limit.max(1)
    }

    /// Number of requests at the gateway.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Counts requests that are being sent.
    pub fn sent(&mut self, count: usize) {
        self.in_flight += count;
    }

    /// Ends one request: its result is stored, or it waits for another attempt.
    pub fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Learns from the response to a request that was sent at `sent_at`.
    pub fn learn(&mut self, now: SteadyMs, sent_at: SteadyMs, feedback: Feedback) {
        match feedback {
            Feedback::Served => {
                self.failures = 0;
                self.cuts = 0;
                self.served_at = Some(now);
                // A window that is not used says nothing about a wider one.
                if self.in_flight + 1 >= self.limit() {
                    let step = if self.is_slow_start {
                        1.0
                    } else {
                        1.0 / self.size
                    };
                    self.size = (self.size + step).min(self.size_max);
                }
            }
            Feedback::Refused { retry_after_ms } => {
                if self.cut(now, sent_at) {
                    self.pause(now, retry_after_ms);
                }
            }
            Feedback::Failed => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= FAILURES_MIN && self.cut(now, sent_at) {
                    self.pause(now, PAUSE_MS << self.cuts.min(16));
                    self.cuts = self.cuts.saturating_add(1);
                }
            }
        }
    }

    /// Whether the gateway has served a request lately: then a failure is the failed request's own, else an outage.
    #[must_use]
    pub fn has_served_lately(&self, now: SteadyMs) -> bool {
        self.served_at
            .is_some_and(|served_at| now.saturating_sub(served_at) < EVIDENCE_MS)
    }

    /// Halves the window, unless the request was sent before the last cut. Returns whether it did.
    fn cut(&mut self, now: SteadyMs, sent_at: SteadyMs) -> bool {
        if sent_at < self.cut_at {
            return false;
        }
        self.is_slow_start = false;
        self.size = (self.size / 2.0).max(1.0);
        // Requests of this very millisecond belong to the time before the cut.
        self.cut_at = now.saturating_add(1);
        true
    }

    fn pause(&mut self, now: SteadyMs, pause_ms: i64) {
        let until = now.saturating_add(pause_ms.clamp(0, PAUSE_MS_MAX));
        self.paused_until = self.paused_until.max(until);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_burst_of_refusals_halves_the_window_once() {
        let mut window = SendWindow::new(64);
        for now in 0..60 {
            window.sent(window.free(now));
            window.learn(now, now, Feedback::Served);
            window.ended();
        }
        assert_eq!(window.limit(), 64);
        for _ in 0..10 {
            window.learn(
                100,
                50,
                Feedback::Refused {
                    retry_after_ms: 1_000,
                },
            );
        }
        assert_eq!(window.limit(), 32);
        assert_eq!(window.free(1_099), 0);
        assert!(window.free(1_100) > 0 || window.in_flight() >= 32);
    }

    #[test]
    fn failures_without_a_success_pause_longer_and_longer() {
        let mut window = SendWindow::new(64);
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 1..FAILURES_MIN {
            window.learn(now, now, Feedback::Failed);
            assert!(window.free(now) > 0);
        }
        for _ in 0..10 {
            window.learn(now, now, Feedback::Failed);
            pauses.push(window.paused_until - now);
            now = window.paused_until;
        }
        assert!(pauses.is_sorted());
        assert_eq!(pauses.first(), Some(&PAUSE_MS));
        assert_eq!(pauses.last(), Some(&PAUSE_MS_MAX));
        assert!(!window.has_served_lately(now));
        window.learn(now, now, Feedback::Served);
        assert!(window.has_served_lately(now));
        assert!(!window.has_served_lately(now + EVIDENCE_MS));
    }

    /// A gateway with a fixed capacity, in steps: it refuses what exceeds the capacity.
    #[test]
    fn the_window_finds_the_capacity_of_the_gateway() {
        for capacity in [1_usize, 5, 20, 50] {
            let mut window = SendWindow::new(64);
            let (mut served, mut refused) = (0, 0);
            let steps: i64 = 2_000;
            for step in 0..steps {
                let now = step * 1_000;
                let free = window.free(now);
                window.sent(free);
                for request in 0..free {
                    let is_served = request < capacity;
                    let feedback = match is_served {
                        true => Feedback::Served,
                        false => Feedback::Refused {
                            retry_after_ms: 1_000,
                        },
                    };
                    window.learn(now + 999, now, feedback);
                    if is_served {
                        served += 1
                    } else {
                        refused += 1
                    }
                    window.ended();
                }
            }
            let ideal = capacity * usize::try_from(steps).unwrap();
            assert!(
                served * 10 >= ideal * 6,
                "{served} of {ideal} at {capacity}"
            );
            assert!(
                refused * 3 <= served * 2,
                "{refused} refused, {served} served"
            );
        }
    }

    proptest! {
        #[test]
        fn the_window_stays_within_its_bounds(
            size_max in 0_usize..200,
            events in prop::collection::vec((0_i64..5_000, 0_i64..5_000, 0_u8..4, any::<i64>()), 0..300),
        ) {
            let mut window = SendWindow::new(size_max);
            let mut now = 0;
            for (step, age, kind, retry_after_ms) in events {
                now += step;
                let free = window.free(now);
                prop_assert!(window.in_flight() + free <= size_max.max(4).max(1));
                prop_assert!(window.limit() >= 1 && window.limit() <= size_max.max(1));
                prop_assert!(window.paused_until <= now + PAUSE_MS_MAX);
                match kind {
                    0 => window.sent(free),
                    1 => window.learn(now, now - age, Feedback::Served),
                    2 => window.learn(now, now - age, Feedback::Refused { retry_after_ms }),
                    _ => { window.learn(now, now - age, Feedback::Failed); window.ended(); }
                }
            }
            // A pause ends: work goes on.
            while window.in_flight() > 0 { window.ended(); }
            prop_assert!(window.free(now + PAUSE_MS_MAX) >= 1);
        }
    }
}

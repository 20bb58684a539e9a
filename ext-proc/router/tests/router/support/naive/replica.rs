//! One replica, and how its requests end.

use std::collections::BTreeSet;
use std::time::Duration;

use isotherm_router::{EngineCounters, Load, ReplicaId, Request, Time, Total};

/// Failures in a row after which a replica is left out.
pub(super) const FAILURES_MAX: u32 = 5;
/// For how long at first, and at most.
pub(super) const BACK_OFF_MS: (u64, u64) = (1_000, 16_000);
/// Time for which a trial excludes the next one.
pub(super) const TRIAL_MS: u64 = 10_000;
/// Longest time until a probe shows a request of a sibling.
pub(super) const SETTLE: Duration = Duration::from_millis(250);
/// Time for which gauges stand still until they say nothing.
pub(super) const STANDS_STILL: Duration = Duration::from_secs(1);
/// Enough to break any replica that takes requests.
pub(super) const BREAKS: u32 = 2 * FAILURES_MAX;

#[derive(Debug, Default)]
pub(super) struct Replica {
    pub(super) draining: bool,
    pub(super) failed: bool,
    /// When its last good probe was sent, and what it said.
    pub(super) probe: Option<(Time, u32)>,
    /// The gauges of its last good probe, and when the first one with the same was sent.
    pub(super) page: Option<(Load, Time)>,
    /// Whether these gauges have stood still for so long that they say nothing.
    pub(super) stands_still: bool,
    /// When its last probe was sent, if it had no metrics.
    pub(super) without_metrics: Option<Time>,
    pub(super) outstanding: u32,
    /// Share of its memory in use, as its last good probe told it.
    pub(super) usage: Option<f32>,
    /// When this service pushed it a request.
    pub(super) pushes: Vec<Time>,
    /// When siblings pushed a request to its present process.
    pub(super) siblings: Vec<Time>,
    /// When the response to one of its requests began, or ended without having begun.
    pub(super) begins: Vec<Time>,
    /// Unbegun requests that the last probe shows as pending, if it shows no others.
    pub(super) shown: usize,
    /// From when on its pushes count against what it may be sent before the next probe.
    pub(super) counted_from: Time,
    pub(super) failing: FailureCount,
    /// Whether each of its requests was refused, the newest last.
    pub(super) refused: Vec<bool>,
    /// Counters of its engine.
    pub(super) counters: EngineCounters,
    /// The hashes of all prefixes that it was ever sent.
    pub(super) sent: BTreeSet<u64>,
}

/// How its requests end.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureCount {
    pub(super) in_a_row: u32,
    /// Since the last change of `left_out` from or to `None`, or of its back-off.
    pub(super) epoch: u64,
    pub(super) left_out: Option<LeftOut>,
    /// The clients or prompts of the refusals that counted since the last answer.
    pub(super) refusals: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOut {
    pub(super) back_off_ms: u64,
    pub(super) until: Time,
    pub(super) on_trial: bool,
    pub(super) is_hung: bool,
}

/// A request at a replica.
#[derive(Clone, Debug)]
pub(super) struct InFlightRequest {
    pub(super) replica: ReplicaId,
    pub(super) request: Request,
    pub(super) epoch: u64,
    pub(super) is_trial: bool,
    pub(super) at: Time,
    pub(super) has_begun: bool,
    pub(super) matched_bytes: u32,
}

impl Replica {
    /// Refused ones among its last 16 requests, and their number.
    pub(super) fn refused_of_last(&self) -> (usize, usize) {
        let last = &self.refused[self.refused.len().saturating_sub(16)..];
        (last.iter().filter(|refused| **refused).count(), last.len())
    }

    /// When its last good probe was sent.
    pub(super) fn probed(&self) -> Option<Time> {
        let with_load = self.probe.map(|(sent, _)| sent);
        with_load.into_iter().chain(self.without_metrics).max()
    }

    /// The response to a request of this time begins.
    pub(super) fn begun(&mut self, at: Time, now: Time) {
        self.begins.push(now);
        let Some((sent, pending)) = &mut self.probe else {
            return;
        };
        if self.shown > 0 && at < *sent {
            self.shown -= 1;
            if self.shown == 0 {
                *pending = 0;
            }
        }
    }
}

impl Replica {
    /// The counters grow by these tokens, half of them cached, or start anew.
    pub(super) fn count(&mut self, tokens: u32, restarts: bool) -> EngineCounters {
        let before = if restarts {
            // The first report tells nothing of an earlier process.
            if self.counters.started_ms.is_some() {
                self.siblings.clear();
            }
            EngineCounters {
                started_ms: Some(self.counters.started_ms.unwrap_or_default() + 5_000),
                ..EngineCounters::default()
            }
        } else {
            self.counters
        };
        let tokens = f64::from(tokens);
        let grown = |sum: Option<f64>, by: f64| Some(sum.unwrap_or_default() + by);
        let total = |total: Option<Total>, seconds: f64| {
            let total = total.unwrap_or_default();
            Some(Total {
                seconds: total.seconds + seconds,
                count: total.count + (tokens / 64.0).floor(),
            })
        };
        self.counters = EngineCounters {
            started_ms: before.started_ms.or(Some(1)),
            prompt_tokens: grown(before.prompt_tokens, tokens),
            generation_tokens: grown(before.generation_tokens, tokens / 4.0),
            cache_queries: grown(before.cache_queries, tokens),
            cache_hits: grown(before.cache_hits, tokens / 2.0),
            prefill: total(before.prefill, tokens / 5_000.0),
            decode: total(before.decode, tokens / 300.0),
            queue: total(before.queue, 0.0),
            ttft: total(before.ttft, tokens / 4_000.0),
        };
        self.counters
    }
}

/// Verdict of a finished request: whether it failed, if it has one.
pub(super) type Evidence = Option<bool>;

impl FailureCount {
    pub(super) fn count(&mut self, now: Time, failed: Evidence) {
        if failed == Some(false) {
            self.refusals.clear();
        }
        self.in_a_row = match failed {
            Some(true) => self.in_a_row + 1,
            Some(false) => 0,
            None => self.in_a_row,
        };
        if self.in_a_row >= FAILURES_MAX {
            self.leave_out(now, BACK_OFF_MS.0);
        }
    }

    /// Verdict of a refusal that counts: each client or prompt counts once.
    pub(super) fn refuses(&mut self, flight: &InFlightRequest, key: u64) -> Evidence {
        if flight.epoch == self.epoch && self.left_out.is_none() {
            if self.refusals.contains(&key) {
                return None;
            }
            if self.refusals.len() < FAILURES_MAX as usize {
                self.refusals.push(key);
            }
        }
        Some(true)
    }

    pub(super) fn leave_out(&mut self, now: Time, back_off_ms: u64) {
        self.epoch += 1;
        self.left_out = Some(LeftOut {
            back_off_ms,
            until: now.after(Duration::from_millis(back_off_ms)),
            on_trial: false,
            is_hung: false,
        });
    }

    /// The router found the replica to hang; when it does so is no rule of this model.
    pub(super) fn hangs(&mut self, now: Time) {
        self.leave_out(now, BACK_OFF_MS.1);
        if let Some(left_out) = &mut self.left_out {
            left_out.is_hung = true;
        }
    }

    /// The response to a request begins: a trial of a hung replica has succeeded.
    pub(super) fn began(&mut self, flight: &InFlightRequest) {
        let is_hung = self.left_out.is_some_and(|left_out| left_out.is_hung);
        if is_hung && flight.is_trial && flight.epoch == self.epoch {
            *self = Self {
                epoch: self.epoch + 1,
                ..Self::default()
            };
        }
    }

    pub(super) fn ended(&mut self, now: Time, flight: &InFlightRequest, failed: Evidence) {
        if flight.epoch != self.epoch {
            return;
        }
        let Some(left_out) = &mut self.left_out else {
            self.count(now, failed);
            return;
        };
        match failed {
            Some(false) => {
                *self = Self {
                    epoch: self.epoch + 1,
                    ..Self::default()
                }
            }
            Some(true) if left_out.on_trial => {
                let twice = (2 * left_out.back_off_ms).min(BACK_OFF_MS.1);
                self.leave_out(now, twice);
            }
            None if left_out.on_trial && flight.is_trial => {
                left_out.on_trial = false;
                left_out.until = now;
            }
            Some(true) | None => {}
        }
    }

    /// Whether a request that it is sent now is a trial.
    pub(super) fn sent(&mut self, now: Time) -> bool {
        let due = self
            .left_out
            .as_mut()
            .filter(|left_out| left_out.until <= now);
        if let Some(left_out) = due {
            left_out.on_trial = true;
            left_out.until = now.after(Duration::from_millis(TRIAL_MS));
            return true;
        }
        false
    }
}

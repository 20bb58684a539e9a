//! The last decisions, for the live page: kept only while a page is open.
//!
//! While no page asks, a decision costs one load of a flag. Each look keeps the log going for [`WATCH_TIME`]; the first
//! decision after that clears it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use isotherm_fingerprint::outcome::Outcome;
use parking_lot::Mutex;

use crate::admin::view::{DecisionView, ResponseView};

/// Number of decisions that the log keeps.
pub(crate) const DECISIONS_MAX: usize = 100;
/// Time for which a look keeps the log going.
const WATCH_TIME: Duration = Duration::from_secs(60);

/// The last decisions of all pools.
#[derive(Debug, Default)]
pub(crate) struct DecisionLog {
    is_watched: AtomicBool,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    watched_at: Option<Instant>,
    /// The oldest first.
    decisions: VecDeque<DecisionView>,
}

impl DecisionLog {
    /// Returns the last decisions, the latest first, and keeps the log going.
    pub(crate) fn look(&self) -> Vec<DecisionView> {
        let mut state = self.state.lock();
        state.watched_at = Some(Instant::now());
        self.is_watched.store(true, Ordering::Relaxed);
        state.decisions.iter().rev().cloned().collect()
    }

    /// Records a decision, if a page asks for them.
    pub(crate) fn record(&self, decision: impl FnOnce() -> DecisionView) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let is_recent = |at: Instant| at.elapsed() < WATCH_TIME;
        if !state.watched_at.is_some_and(is_recent) {
            self.is_watched.store(false, Ordering::Relaxed);
            state.decisions = VecDeque::new();
            return;
        }
        if state.decisions.len() >= DECISIONS_MAX {
            state.decisions.pop_front();
        }
        state.decisions.push_back(decision());
    }

    /// Records the outcome of a request whose decision is in the log.
    pub(crate) fn finish(&self, pool: &str, request: u64, outcome: &Outcome) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let mut decisions = state.decisions.iter_mut().rev();
        let decision = decisions.find(|found| found.request == request && found.pool == pool);
        if let Some(decision) = decision {
            decision.response = Some(ResponseView {
                status: outcome.status,
                ttft_ms: outcome.ttft_us.map(|us| us as f64 / 1e3),
                prompt_tokens: outcome.prompt_tokens,
                cached_tokens: outcome.cached_tokens,
                output_tokens: outcome.completion_tokens,
            });
        }
    }
}

/// The current time in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(request: u64) -> DecisionView {
        DecisionView {
            pool: "m".into(),
            request,
            ..DecisionView::default()
        }
    }

    #[test]
    fn nothing_is_kept_while_nobody_looks() {
        let log = DecisionLog::default();
        log.record(|| unreachable!("no page asks"));
        assert_eq!(log.look(), []);
        log.record(|| decision(1));
        assert_eq!(log.look(), [decision(1)]);
    }

    #[test]
    fn the_log_has_the_last_hundred_decisions_the_latest_first() {
        let log = DecisionLog::default();
        log.look();
        (0..250).for_each(|request| log.record(|| decision(request)));
        let requests: Vec<_> = log.look().iter().map(|decision| decision.request).collect();
        assert_eq!(requests, Vec::from_iter((150..250).rev()));
    }

    #[test]
    fn an_outcome_joins_its_decision() {
        let log = DecisionLog::default();
        log.look();
        log.record(|| decision(7));
        let outcome = Outcome {
            status: 200,
            ttft_us: Some(1_500),
            ..Outcome::default()
        };
        log.finish("other", 7, &outcome);
        assert_eq!(log.look()[0].response, None);
        log.finish("m", 7, &outcome);
        let response = log.look()[0].response.clone().unwrap();
        assert_eq!((response.status, response.ttft_ms), (200, Some(1.5)));
    }
}

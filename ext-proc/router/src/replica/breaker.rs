//! The circuit breaker of a replica (Nygard, *Release It!*), fed by how its requests end.
//!
//! `docs/design/selective-pushing.md` has its states. Each opening and closing begins an epoch, and only requests of the
//! present epoch count. A trial without evidence admits the next one, and so does a trial longer than [`TRIAL_MAX`], because
//! a long answer is no failure. [`super::Replicas`] implements panic mode.

use core::time::Duration;

use crate::Time;

/// Failures in a row that open a breaker.
pub(crate) const FAILURES_MAX: u32 = 5;
pub(crate) const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// Longest back-off. Shorter than the default `queue.wait_ms_max`, so a request that is bound to this replica gets a trial.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(16);
/// Time after which a running trial admits another one.
pub(crate) const TRIAL_MAX: Duration = Duration::from_secs(10);

/// Verdict of a finished request on its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The replica answered.
    Success,
    /// The replica did not answer, or answered with a server error.
    Failure,
    /// No verdict: the client disconnected, or the request was bad.
    None,
}

/// Permit of a dispatched request: its epoch, and whether it is a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BreakerPermit {
    epoch: u64,
    trial: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    state: State,
    /// Number of openings and closings.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Requests pass; counts failures in a row.
    Closed { failures: u32 },
    /// No request before `until`, then a trial.
    Open { until: Time, back_off: Duration },
    /// A trial is running; after `until` another one may start.
    Trial { until: Time, back_off: Duration },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Whether a request may be dispatched, as a trial or otherwise.
    pub(crate) fn admits(&self, now: Time) -> bool {
        self.until().is_none_or(|until| now >= until)
    }

    /// When the breaker admits a trial; `None` while it is closed.
    pub(crate) const fn until(&self) -> Option<Time> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until, .. } | State::Trial { until, .. } => Some(until),
        }
    }

    /// Registers a dispatched request.
    pub(crate) fn sent(&mut self, now: Time) -> BreakerPermit {
        let trial = match self.state {
            State::Open { until, back_off } | State::Trial { until, back_off } if now >= until => {
                self.state = State::Trial {
                    until: now.after(TRIAL_MAX),
                    back_off,
                };
                true
            }
            State::Closed { .. } | State::Open { .. } | State::Trial { .. } => false,
        };
        BreakerPermit {
            epoch: self.epoch,
            trial,
        }
    }

    /// Applies the verdict of a finished request.
    pub(crate) fn ended(&mut self, sent: BreakerPermit, evidence: Evidence, now: Time) {
        if sent.epoch != self.epoch {
            return;
        }
        match (self.state, evidence) {
            (State::Closed { .. }, _) => self.count(evidence, now),
            (State::Open { .. } | State::Trial { .. }, Evidence::Success) => {
                self.epoch += 1;
                self.state = State::default();
            }
            (State::Trial { back_off, .. }, Evidence::Failure) => {
                self.open(back_off.saturating_mul(2).min(BACK_OFF_MAX), now);
            }
            (State::Trial { back_off, .. }, Evidence::None) if sent.trial => {
                self.state = State::Open {
                    until: now,
                    back_off,
                };
            }
            // A failure in panic mode does not extend the back-off: the back-off measures time.
            (State::Trial { .. }, Evidence::None) | (State::Open { .. }, _) => {}
        }
    }

    /// Applies the verdict of a request that Envoy retried on this replica; its dispatch time is unknown.
    pub(crate) fn served_retry(&mut self, evidence: Evidence, now: Time) {
        if self.is_closed() {
            self.count(evidence, now);
        }
    }

    /// Counts a returned request as a failure. Its permit is unknown, so it counts for the present epoch.
    pub(crate) fn returned(&mut self, now: Time) {
        let sent = BreakerPermit {
            epoch: self.epoch,
            trial: true,
        };
        self.ended(sent, Evidence::Failure, now);
    }

    /// Closes the breaker of a peer that is seen to serve.
    pub(crate) fn proven(&mut self) {
        if !self.is_closed() {
            self.epoch += 1;
        }
        self.state = State::default();
    }

    /// Admits a trial at once.
    pub(crate) fn admit_trial_now(&mut self, now: Time) {
        if let State::Open { until, .. } = &mut self.state {
            *until = now.min(*until);
        }
    }

    fn count(&mut self, evidence: Evidence, now: Time) {
        let State::Closed { failures } = &mut self.state else {
            return;
        };
        match evidence {
            Evidence::None => {}
            Evidence::Success => *failures = 0,
            Evidence::Failure => {
                *failures += 1;
                if *failures >= FAILURES_MAX {
                    self.open(BACK_OFF_MIN, now);
                }
            }
        }
    }

    fn open(&mut self, back_off: Duration, now: Time) {
        self.epoch += 1;
        self.state = State::Open {
            until: now.after(back_off),
            back_off,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    fn try_once(breaker: &mut Breaker, now: Time, evidence: Evidence) {
        let sent = breaker.sent(now);
        breaker.ended(sent, evidence, now);
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            assert!(breaker.is_closed());
            try_once(&mut breaker, s(0), Evidence::Failure);
        }
        assert!(!breaker.is_closed());
        breaker
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let mut breaker = Breaker::default();
        for evidence in [Evidence::Failure, Evidence::None, Evidence::Success].repeat(20) {
            try_once(&mut breaker, s(0), evidence);
            try_once(&mut breaker, s(0), Evidence::Failure);
        }
        assert!(breaker.is_closed());
    }

    #[test]
    fn one_request_at_a_time_tries_it_and_a_success_closes_it() {
        let mut breaker = opened();
        assert!(!breaker.admits(s(0)));
        assert!(breaker.admits(s(1)));
        let trial = breaker.sent(s(1));
        assert!(!breaker.admits(s(1)));
        breaker.ended(trial, Evidence::Success, s(2));
        assert!(breaker.is_closed());
    }

    #[test]
    fn the_back_off_doubles_to_its_bound_and_begins_anew_after_a_success() {
        let mut breaker = opened();
        let mut waits = Vec::new();
        let mut now = s(0);
        for _ in 0..6 {
            let until = breaker.until().unwrap();
            waits.push(until.since(now).as_secs());
            now = until;
            try_once(&mut breaker, now, Evidence::Failure);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 16]);
        now = breaker.until().unwrap();
        try_once(&mut breaker, now, Evidence::Success);
        for _ in 0..FAILURES_MAX {
            try_once(&mut breaker, now, Evidence::Failure);
        }
        assert_eq!(breaker.until(), Some(now.after(BACK_OFF_MIN)));
    }

    #[test]
    fn a_trial_that_tells_nothing_makes_room_for_the_next() {
        let mut breaker = opened();
        try_once(&mut breaker, s(1), Evidence::None);
        assert!(breaker.admits(s(1)));
        let long = breaker.sent(s(1));
        assert!(!breaker.admits(s(10)));
        assert!(breaker.admits(s(11)), "a long answer is no failure");
        breaker.sent(s(11));
        breaker.ended(long, Evidence::Success, s(12));
        assert!(breaker.is_closed());
    }

    #[test]
    fn requests_sent_before_the_breaker_opened_do_not_change_it_afterwards() {
        let mut breaker = Breaker::default();
        let old = breaker.sent(s(0));
        for _ in 0..FAILURES_MAX {
            try_once(&mut breaker, s(0), Evidence::Failure);
        }
        breaker.sent(s(1));
        for evidence in [Evidence::Success, Evidence::Failure, Evidence::None] {
            breaker.ended(old, evidence, s(1));
            breaker.served_retry(evidence, s(1));
            assert_eq!(breaker.until(), Some(s(11)));
        }
    }

    #[test]
    fn failures_while_it_is_open_do_not_prolong_it_and_a_success_closes_it() {
        let mut breaker = opened();
        for _ in 0..10 {
            try_once(&mut breaker, s(0), Evidence::Failure);
        }
        assert_eq!(breaker.until(), Some(s(1)));
        try_once(&mut breaker, s(0), Evidence::Success);
        assert!(breaker.is_closed());
    }
}

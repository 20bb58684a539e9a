//! Whether a replica answers: what probes do not show.
//!
//! A replica that answers 5xx at once, or drops every connection, may serve a perfect page of metrics all the while. Nothing
//! stays outstanding there, so by every measure of load it is the best choice: a black hole. So each replica has a
//! circuit breaker (Nygard, *Release It!*), fed by how its requests end:
//!
//! - *Closed* until [`FAILURES_MAX`] failures in a row. Any success starts the row anew.
//! - *Open* for a back-off that doubles from [`BACK_OFF_MIN`] to [`BACK_OFF_MAX`] with every trial that fails.
//! - *On trial* after that: one request at a time. A success closes the breaker. A trial that tells nothing (the client went
//!   away, or the request itself was refused) makes room for the next one; so does one that takes longer than
//!   [`TRIAL_MAX`], because a long answer is no failure.
//!
//! What was sent before the breaker last opened or closed says nothing of the time after: answers that began before an
//! engine broke end well for minutes. Hence the epochs.
//!
//! When no replica with a good probe has a closed breaker, all are used as if every breaker were closed (Envoy's panic
//! threshold, at zero): a fault that all share is the requests' own or lies behind the replicas, and refusing everything
//! would hide even that. When that ends, each open one is tried at once. The fleet sees to it.
//!
//! Rejected: Envoy's outlier detection (it ejects behind the back of the queue and of the index, and the header that names
//! a host overrides it); a share of failures in a window (needs traffic that a small pool does not have); counting
//! 4xx (one client with bad requests would close the pool).

use core::time::Duration;

use crate::Time;

/// Failures in a row that open a breaker.
pub(crate) const FAILURES_MAX: u32 = 5;
/// How long it stays open the first time.
pub(crate) const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// How long at most. Below the time that a request waits by default, so one that may go nowhere else gets its trial.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(16);
/// How long a trial keeps others away.
pub(crate) const TRIAL_MAX: Duration = Duration::from_secs(10);

/// What a request says of a replica in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It answered.
    Success,
    /// It did not, or with an error of its own.
    Failure,
    /// Nothing: the client went away, or the request was bad.
    None,
}

/// What a request was, when it was sent to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BreakerPermit {
    epoch: u64,
    trial: bool,
}

/// One replica's circuit breaker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    state: State,
    /// How often it has opened and closed.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many failures in a row.
    Closed { failures: u32 },
    /// Nothing before `until`, then a trial.
    Open { until: Time, back_off: Duration },
    /// A trial is out; from `until` on it keeps no other one away.
    Trial { until: Time, back_off: Duration },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    /// Whether the replica is not in doubt.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Whether the replica may be sent a request, be it a trial.
    pub(crate) fn admits(&self, now: Time) -> bool {
        self.until().is_none_or(|until| now >= until)
    }

    /// When it admits a trial; `None` while it is closed.
    pub(crate) const fn until(&self) -> Option<Time> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until, .. } | State::Trial { until, .. } => Some(until),
        }
    }

    /// A request goes to the replica.
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

    /// A request that was sent to the replica has ended.
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
            // Those that were sent although it is open (all are) do not prolong it: the back-off is about time.
            (State::Trial { .. }, Evidence::None) | (State::Open { .. }, _) => {}
        }
    }

    /// A request that was sent elsewhere was taken on by this replica, at a time that nobody knows.
    pub(crate) fn stepped_in(&mut self, evidence: Evidence, now: Time) {
        if self.is_closed() {
            self.count(evidence, now);
        }
    }

    /// A request came back, and nobody knows which one it was: of those that were sent last, it is presumed.
    pub(crate) fn returned(&mut self, now: Time) {
        let sent = BreakerPermit {
            epoch: self.epoch,
            trial: true,
        };
        self.ended(sent, Evidence::Failure, now);
    }

    /// It is seen to serve: no doubt is left.
    pub(crate) fn proven(&mut self) {
        if !self.is_closed() {
            self.epoch += 1;
        }
        self.state = State::default();
    }

    /// The next trial need not wait.
    pub(crate) fn hasten(&mut self, now: Time) {
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
    fn what_was_sent_before_it_opened_says_nothing_of_the_time_after() {
        let mut breaker = Breaker::default();
        let old = breaker.sent(s(0));
        for _ in 0..FAILURES_MAX {
            try_once(&mut breaker, s(0), Evidence::Failure);
        }
        breaker.sent(s(1));
        for evidence in [Evidence::Success, Evidence::Failure, Evidence::None] {
            breaker.ended(old, evidence, s(1));
            breaker.stepped_in(evidence, s(1));
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

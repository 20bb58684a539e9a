//! The circuit breaker of a replica (Nygard, *Release It!*), fed by how its requests end.
//!
//! `docs/design/health.md` has its states. Each opening and closing begins an epoch, and only requests of the
//! present epoch count. A trial without evidence admits the next one, and so does a trial longer than [`TRIAL_MAX`], because
//! a long answer is no failure. [`super::Replicas`] implements panic mode.
//!
//! The requests of a replica that hangs do not end (`router/hang.rs`). A hang opens the breaker for the longest back-off, since each
//! trial may make a client wait until it gives up. The first byte of the response to a trial closes the breaker.

use core::time::Duration;

use crate::constant::constants;
use crate::{End, Time};

constants! {
    /// Failures in a row that open a breaker. Source: Envoy's outlier detection, `consecutive_5xx`, which is 5 by default.
    pub(crate) FAILURES_MAX: u32 = 5;
    /// First back-off; it doubles with each failed trial. Guards: a replica that recovers gets a request after about the time that it was
    /// out.
    pub(crate) BACK_OFF_MIN: Duration = Duration::from_secs(1);
    /// Longest back-off, shorter than the default `queue.wait_ms_max`. Guards: a request that is bound to this replica gets a trial.
    pub(crate) BACK_OFF_MAX: Duration = Duration::from_secs(16);
    /// Time after which a running trial admits another one. Guards: a long answer is no failure, and keeps no replica out.
    pub(crate) TRIAL_MAX: Duration = Duration::from_secs(10);
}

/// Verdict of a finished request on its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The replica answered.
    Success,
    /// The replica did not answer, or answered with a server error.
    Failure,
    /// The replica answered 500 to the prompt with this identity, which may be at fault itself, or refused what its peers answer.
    Error(u64),
    /// No verdict: the client disconnected, or the request was bad.
    None,
}

impl Evidence {
    /// Verdict of a response that ended so.
    pub(crate) const fn of(end: End) -> Self {
        match end {
            End::Answered => Self::Success,
            End::Refused | End::TimedOut | End::Unsent => Self::None,
            End::Errored | End::Failed | End::Broke => Self::Failure,
        }
    }
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
    /// Whether the replica hung when the breaker last opened.
    is_hung: bool,
    /// Identities of the prompts that were answered 500 since the last success, at most [`FAILURES_MAX`].
    errors: Vec<u64>,
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
        self.next_trial().is_none_or(|until| now >= until)
    }

    /// When the breaker admits a trial; `None` while it is closed.
    pub(crate) const fn next_trial(&self) -> Option<Time> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until, .. } | State::Trial { until, .. } => Some(until),
        }
    }

    /// Whether the breaker is not closed because the replica hung.
    pub(crate) const fn is_hung(&self) -> bool {
        self.is_hung
    }

    /// Whether the requests of the present epoch may open the breaker: it is closed, or a trial runs.
    pub(crate) const fn is_judging(&self) -> bool {
        !matches!(self.state, State::Open { .. })
    }

    /// Start of the running trial.
    pub(crate) fn trial_since(&self) -> Option<Time> {
        match self.state {
            State::Trial { until, .. } => Some(until.before(TRIAL_MAX.get())),
            State::Closed { .. } | State::Open { .. } => None,
        }
    }

    /// Whether a request was dispatched in the present epoch.
    pub(crate) const fn is_of_epoch(&self, sent: BreakerPermit) -> bool {
        sent.epoch == self.epoch
    }

    /// Opens the breaker of a replica that hangs.
    pub(crate) fn on_hang(&mut self, now: Time) {
        self.open(BACK_OFF_MAX.get(), now);
        self.is_hung = true;
    }

    /// Registers that the response to a request begins, which shows that a hung replica works again.
    pub(crate) fn on_begin(&mut self, sent: BreakerPermit) {
        if self.is_hung && sent.trial && self.is_of_epoch(sent) {
            self.close();
        }
    }

    /// Registers a dispatched request.
    pub(crate) fn sent(&mut self, now: Time) -> BreakerPermit {
        let trial = match self.state {
            State::Open { until, back_off } | State::Trial { until, back_off } if now >= until => {
                self.state = State::Trial {
                    until: now.after(TRIAL_MAX.get()),
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
    pub(crate) fn on_end(&mut self, sent: BreakerPermit, evidence: Evidence, now: Time) {
        if sent.epoch != self.epoch {
            return;
        }
        match (self.state, evidence) {
            (State::Closed { .. }, _) => {
                let evidence = self.weigh(evidence);
                self.count(evidence, now);
            }
            (State::Open { .. } | State::Trial { .. }, Evidence::Success) => self.close(),
            (State::Trial { back_off, .. }, Evidence::Failure | Evidence::Error(_)) => {
                self.open(back_off.saturating_mul(2).min(BACK_OFF_MAX.get()), now);
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
            let evidence = self.weigh(evidence);
            self.count(evidence, now);
        }
    }

    /// Counts a returned request as a failure. Its permit is unknown, so it counts for the present epoch.
    pub(crate) fn on_return(&mut self, now: Time) {
        let sent = BreakerPermit {
            epoch: self.epoch,
            trial: true,
        };
        self.on_end(sent, Evidence::Failure, now);
    }

    /// Closes the breaker of a peer that is seen to serve.
    pub(crate) fn reset(&mut self) {
        if self.is_closed() {
            self.state = State::default();
        } else {
            self.close();
        }
    }

    /// Admits a trial at once.
    pub(crate) fn admit_trial_now(&mut self, now: Time) {
        if let State::Open { until, .. } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// Weighs a verdict: of all 500s since the last success, each prompt counts once.
    fn weigh(&mut self, evidence: Evidence) -> Evidence {
        match evidence {
            Evidence::Success => self.errors.clear(),
            Evidence::Error(prompt) if self.errors.contains(&prompt) => return Evidence::None,
            Evidence::Error(prompt) if self.errors.len() < FAILURES_MAX.get() as usize => {
                self.errors.push(prompt);
            }
            Evidence::Error(_) | Evidence::Failure | Evidence::None => {}
        }
        evidence
    }

    fn count(&mut self, evidence: Evidence, now: Time) {
        let State::Closed { failures } = &mut self.state else {
            return;
        };
        match evidence {
            Evidence::None => {}
            Evidence::Success => *failures = 0,
            Evidence::Failure | Evidence::Error(_) => {
                *failures += 1;
                if *failures >= FAILURES_MAX.get() {
                    self.open(BACK_OFF_MIN.get(), now);
                }
            }
        }
    }

    fn close(&mut self) {
        self.epoch += 1;
        self.state = State::default();
        self.is_hung = false;
        self.errors.clear();
    }

    fn open(&mut self, back_off: Duration, now: Time) {
        self.epoch += 1;
        self.is_hung = false;
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
        breaker.on_end(sent, evidence, now);
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX.get() {
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
        breaker.on_end(trial, Evidence::Success, s(2));
        assert!(breaker.is_closed());
    }

    #[test]
    fn the_back_off_doubles_to_its_bound_and_begins_anew_after_a_success() {
        let mut breaker = opened();
        let mut waits = Vec::new();
        let mut now = s(0);
        for _ in 0..6 {
            let until = breaker.next_trial().unwrap();
            waits.push(until.since(now).as_secs());
            now = until;
            try_once(&mut breaker, now, Evidence::Failure);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 16]);
        now = breaker.next_trial().unwrap();
        try_once(&mut breaker, now, Evidence::Success);
        for _ in 0..FAILURES_MAX.get() {
            try_once(&mut breaker, now, Evidence::Failure);
        }
        assert_eq!(breaker.next_trial(), Some(now.after(BACK_OFF_MIN.get())));
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
        breaker.on_end(long, Evidence::Success, s(12));
        assert!(breaker.is_closed());
    }

    #[test]
    fn requests_sent_before_the_breaker_opened_do_not_change_it_afterwards() {
        let mut breaker = Breaker::default();
        let old = breaker.sent(s(0));
        for _ in 0..FAILURES_MAX.get() {
            try_once(&mut breaker, s(0), Evidence::Failure);
        }
        breaker.sent(s(1));
        for evidence in [Evidence::Success, Evidence::Failure, Evidence::None] {
            breaker.on_end(old, evidence, s(1));
            breaker.served_retry(evidence, s(1));
            assert_eq!(breaker.next_trial(), Some(s(11)));
        }
    }

    #[test]
    fn a_prompt_that_fails_again_and_again_counts_once() {
        let mut breaker = Breaker::default();
        for _ in 0..10 * FAILURES_MAX.get() {
            try_once(&mut breaker, s(0), Evidence::Error(7));
        }
        assert!(breaker.is_closed());
        for prompt in 0..u64::from(FAILURES_MAX.get()) {
            try_once(&mut breaker, s(0), Evidence::Error(prompt));
        }
        assert!(!breaker.is_closed(), "different prompts do");
        try_once(&mut breaker, s(1), Evidence::Error(1));
        assert!(!breaker.admits(s(1)), "each one fails a trial");
        try_once(&mut breaker, s(3), Evidence::Success);
        assert!(breaker.is_closed());
    }

    #[test]
    fn the_response_to_a_trial_of_a_hung_replica_need_only_begin() {
        let mut breaker = Breaker::default();
        breaker.on_hang(s(0));
        assert_eq!(breaker.next_trial(), Some(s(16)));
        let early = breaker.sent(s(1));
        breaker.on_begin(early);
        assert!(breaker.is_hung(), "panic mode dispatched it");
        let trial = breaker.sent(s(16));
        assert_eq!(breaker.trial_since(), Some(s(16)));
        breaker.on_begin(trial);
        assert!(breaker.is_closed() && !breaker.is_hung());
        let mut failing = opened();
        let trial = failing.sent(s(1));
        failing.on_begin(trial);
        assert!(!failing.is_closed(), "it may still fail");
    }

    #[test]
    fn failures_while_it_is_open_do_not_prolong_it_and_a_success_closes_it() {
        let mut breaker = opened();
        for _ in 0..10 {
            try_once(&mut breaker, s(0), Evidence::Failure);
        }
        assert_eq!(breaker.next_trial(), Some(s(1)));
        try_once(&mut breaker, s(0), Evidence::Success);
        assert!(breaker.is_closed());
    }
}

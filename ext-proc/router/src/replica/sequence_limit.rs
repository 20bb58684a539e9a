//! The most requests that an engine runs at once (vLLM: `max_num_seqs`), learned from its probes.
//!
//! An engine at this limit admits a request whenever another one ends. So its probes show pending requests beside one and the same
//! number of running ones, although some of these have ended, and all of them write. An engine that computes a long prompt shows
//! pending requests too, but it runs fewer requests from one end to the next, or some that have not begun.

use core::time::Duration;

use crate::constant::constants;
use crate::{Load, Time};

constants! {
    /// Probes that have to show the same number.
    PROBES_MIN: u8 = 8;
}
/// Age from which a pending request was there when the engine last began a step, as far as its gauges tell.
pub(super) const STEP: Duration = Duration::from_millis(50);
constants! {
    /// Time without a pending request after which the replica gets one request beyond the limit. The time doubles with each trial that
    /// confirms the limit.
    TRIAL_AFTER_MIN: Duration = Duration::from_secs(2);
    /// Bound on that time.
    TRIAL_AFTER_MAX: Duration = Duration::from_secs(16);
}

/// The learned limit of one replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceLimit {
    /// Running requests at the last probe that showed pending ones.
    running: u32,
    /// Probes that have shown this number, each after the end of a request.
    shown: u8,
    /// Time of the last one.
    shown_at: Time,
    trial_after: Duration,
    has_ended: bool,
}

impl Default for SequenceLimit {
    fn default() -> Self {
        Self {
            running: 0,
            shown: 0,
            shown_at: Time::ZERO,
            trial_after: TRIAL_AFTER_MIN.get(),
            has_ended: false,
        }
    }
}

impl SequenceLimit {
    /// Registers the end of a request.
    pub(super) const fn on_end(&mut self) {
        self.has_ended = true;
    }

    /// Applies a probe that was sent at `sent`. `is_stuck`: it shows a pending request that is older than [`STEP`]. `unbegun`
    /// requests have no response yet, as far as this service knows.
    pub(super) fn on_probe(&mut self, load: &Load, sent: Time, is_stuck: bool, unbegun: u32) {
        let Some(running) = load.running else {
            return;
        };
        if running > self.running {
            *self = Self::default();
        }
        // One of them may have been admitted just before.
        let all_write = unbegun <= load.pending.saturating_add(1);
        if !is_stuck || !all_write {
            return;
        }
        // Requests have just ended, and the engine admits the next ones with its next step.
        let between_steps = running < self.running && running >= self.running - self.running / 4;
        if between_steps {
            return;
        }
        if running != self.running {
            *self = Self {
                running,
                ..Self::default()
            };
        } else if self.has_ended {
            if self.is_known() && self.is_trial_due(sent) {
                self.trial_after = (2 * self.trial_after).min(TRIAL_AFTER_MAX.get());
            }
            self.has_ended = false;
            self.shown = self.shown.saturating_add(1);
            self.shown_at = sent;
        }
    }

    /// The limit, once it is known. One more request is tried when no probe has confirmed it for a while.
    pub(super) fn get(&self, now: Time) -> Option<u32> {
        let one_more = u32::from(self.is_trial_due(now));
        self.is_known()
            .then(|| self.running.saturating_add(one_more).max(1))
    }

    fn is_known(&self) -> bool {
        self.shown >= PROBES_MIN.get()
    }

    fn is_trial_due(&self, now: Time) -> bool {
        now >= self.shown_at.after(self.trial_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pending: u32, running: u32) -> Load {
        Load {
            pending,
            running: Some(running),
            ..Load::default()
        }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn a_replica_that_replaces_each_ended_request_is_at_its_limit() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=12 {
            limit.on_probe(&load(2, 20), at(100 * probe), true, 2);
            let is_known = probe > PROBES_MIN.get().into();
            assert_eq!(limit.get(at(1_200)), is_known.then_some(20), "{probe}");
            limit.on_end();
        }
    }

    #[test]
    fn a_probe_between_ends_and_the_next_step_shows_fewer() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=20 {
            let running = if probe % 3 == 0 { 16 } else { 20 };
            limit.on_probe(&load(2, running), at(100 * probe), true, 2);
            limit.on_end();
        }
        assert_eq!(limit.get(at(2_000)), Some(20));
    }

    #[test]
    fn probes_without_an_end_between_them_say_nothing() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=20 {
            limit.on_probe(&load(2, 20), at(100 * probe), true, 2);
        }
        assert_eq!(limit.get(at(2_000)), None);
    }

    #[test]
    fn a_replica_that_computes_prompts_is_not_at_its_limit() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=20 {
            limit.on_probe(&load(2, 3), at(100 * probe), true, 5);
            limit.on_end();
        }
        assert_eq!(limit.get(at(2_000)), None);
    }

    #[test]
    fn one_more_request_is_tried_ever_more_rarely() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=10 {
            limit.on_probe(&load(1, 20), at(100 * probe), true, 1);
            limit.on_end();
        }
        let most = |limit: &SequenceLimit, ms| limit.get(at(ms));
        assert_eq!(most(&limit, 2_999), Some(20));
        assert_eq!(most(&limit, 3_000), Some(21), "one more is tried");
        limit.on_probe(&load(1, 20), at(3_000), true, 1);
        assert_eq!(
            (most(&limit, 6_999), most(&limit, 7_000)),
            (Some(20), Some(21))
        );
        limit.on_probe(&load(0, 21), at(7_100), false, 0);
        assert_eq!(most(&limit, 7_100), None, "it runs more");
    }
}

//! The most requests that an engine runs at once (vLLM: `max_num_seqs`), learned from its probes.
//!
//! An engine at this limit admits a request whenever another one ends. So its probes show pending requests beside one and the same
//! number of running ones, although some of these have ended, and all of them write. An engine that computes a long prompt shows
//! pending requests too, but it runs fewer requests from one end to the next, or some that have not begun.

use core::time::Duration;

use crate::{Load, Time};

/// Probes that have to show the same number.
const PROBES_MIN: u8 = 3;
/// Time without a pending request after which one more is tried.
const TRIAL_AFTER: Duration = Duration::from_secs(60);

/// The learned limit of one replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SequenceLimit {
    /// Running requests at the last probe that showed pending ones.
    running: u32,
    /// Probes that have shown this number, each after the end of a request.
    shown: u8,
    /// Time of the last one.
    shown_at: Time,
    has_ended: bool,
}

impl SequenceLimit {
    /// Registers the end of a request.
    pub(super) const fn ended(&mut self) {
        self.has_ended = true;
    }

    /// Applies a probe that was sent at `sent`. `is_stuck`: it shows pending requests that are not fresh. `unbegun` requests have no
    /// response yet, as far as this service knows.
    pub(super) fn probed(&mut self, load: &Load, sent: Time, is_stuck: bool, unbegun: u32) {
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
        if running != self.running {
            *self = Self {
                running,
                ..Self::default()
            };
        } else if self.has_ended {
            self.has_ended = false;
            self.shown = self.shown.saturating_add(1);
            self.shown_at = sent;
        }
    }

    /// The limit, once it is known. One more request is tried when no probe has confirmed it for a while.
    pub(super) fn get(&self, now: Time) -> Option<u32> {
        let is_due = now >= self.shown_at.after(TRIAL_AFTER);
        (self.shown >= PROBES_MIN).then(|| self.running.saturating_add(u32::from(is_due)).max(1))
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
        for probe in 1..=5 {
            limit.probed(&load(2, 20), at(100 * probe), true, 2);
            let is_known = probe > PROBES_MIN.into();
            assert_eq!(limit.get(at(600)), is_known.then_some(20), "{probe}");
            limit.ended();
        }
    }

    #[test]
    fn probes_without_an_end_between_them_say_nothing() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=20 {
            limit.probed(&load(2, 20), at(100 * probe), true, 2);
        }
        assert_eq!(limit.get(at(2_000)), None);
    }

    #[test]
    fn a_replica_that_computes_prompts_is_not_at_its_limit() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=20 {
            limit.probed(&load(2, 3), at(100 * probe), true, 5);
            limit.ended();
        }
        assert_eq!(limit.get(at(2_000)), None);
    }

    #[test]
    fn a_replica_that_runs_more_has_another_limit() {
        let mut limit = SequenceLimit::default();
        for probe in 1..=5 {
            limit.probed(&load(1, 20), at(100 * probe), true, 1);
            limit.ended();
        }
        assert_eq!(limit.get(at(500)), Some(20));
        assert_eq!(limit.get(at(61_000)), Some(21), "one more is tried");
        limit.probed(&load(0, 21), at(61_100), false, 0);
        assert_eq!(limit.get(at(61_100)), None);
    }
}

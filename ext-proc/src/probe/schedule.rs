//! The times of a replica's probes.
//!
//! Probes of many replicas must not synchronise, so every pause is jittered. A probe costs the engine time of its own, so
//! a rest follows a probe that takes longer than the interval. A dead replica is probed with exponential backoff, which is
//! bounded so that the service soon notices its return.
//!
//! The probes of an idle replica rest: one a second, until this service or a sibling sends a request there. Most of a large
//! pool is idle at most times, and each probe costs the engine as much as the service.

use std::time::Duration;

/// The longest pause between two probes of a replica that does not answer, unless its interval is longer.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// The pause between two probes of an idle replica, unless its interval is longer. Requests of others are seen by then.
const RESTS_FOR: Duration = Duration::from_secs(1);
/// The number of consecutive failures before pauses grow.
const FAILURES_FREE: u32 = 3;
/// The shortest pause is the interval divided by this: the rest that a slow engine gets.
const REST_SHARE: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeSchedule {
    failures: u32,
    /// Consecutive answers that cost much and had no metrics.
    costly: u32,
    /// Whether the last answer had no metrics.
    without_metrics: bool,
    /// Whether the last counters were those of several processes.
    several_processes: bool,
}

impl ProbeSchedule {
    /// Whether the last probe failed.
    pub(super) const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Records a successful probe. Returns whether it is the first one after a failure.
    pub(super) fn succeeded(&mut self) -> bool {
        self.without_metrics = false;
        self.costly = 0;
        std::mem::take(&mut self.failures) > 0
    }

    /// Records an answer without metrics, and whether it cost much. Returns whether it is the first one in a row.
    pub(super) const fn answered_without_metrics(&mut self, is_costly: bool) -> bool {
        self.failures = 0;
        self.costly = match is_costly {
            true => self.costly.saturating_add(1),
            false => 0,
        };
        !std::mem::replace(&mut self.without_metrics, true)
    }

    /// Records whether counters were those of several processes. Returns whether these are the first such ones in a row.
    pub(super) const fn counted(&mut self, has_several: bool) -> bool {
        let had_several = std::mem::replace(&mut self.several_processes, has_several);
        has_several && !had_several
    }

    /// Records a failed probe. Returns whether it is the first one after a success.
    pub(super) fn failed(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }

    /// Returns the pauses after a probe that took `took`, of a replica with requests and of an idle one; `jitter` is about 1.
    pub(super) fn pauses(&self, interval: Duration, took: Duration, jitter: f64) -> [Duration; 2] {
        let rest = RESTS_FOR.max(interval).mul_f64(jitter);
        [self.pause(interval, took, jitter), rest]
    }

    fn pause(&self, interval: Duration, took: Duration, jitter: f64) -> Duration {
        let unread = self.failures.max(self.costly);
        let doublings = unread.saturating_sub(FAILURES_FREE).min(16);
        let backoff = match doublings {
            0 => interval,
            _ => interval
                .saturating_mul(1 << doublings)
                .min(BACKOFF_MAX.max(interval)),
        };
        backoff
            .mul_f64(jitter)
            .saturating_sub(took)
            .max(backoff / REST_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn probes_start_an_interval_apart_however_long_they_take() {
        let schedule = ProbeSchedule::default();
        assert_eq!(schedule.pause(INTERVAL, Duration::ZERO, 1.0), INTERVAL);
        let pause = schedule.pause(INTERVAL, Duration::from_millis(30), 1.1);
        assert_eq!(pause, Duration::from_millis(80));
    }

    #[test]
    fn a_rest_follows_a_slow_probe() {
        let pause = ProbeSchedule::default().pause(INTERVAL, Duration::from_secs(1), 1.0);
        assert_eq!(pause, INTERVAL / 2);
    }

    #[test]
    fn a_dead_replica_is_probed_with_backoff_and_at_least_once_a_second() {
        let mut schedule = ProbeSchedule::default();
        let mut pauses = Vec::new();
        for _ in 0..20 {
            schedule.failed();
            pauses.push(schedule.pause(INTERVAL, Duration::ZERO, 1.0).as_millis());
        }
        assert_eq!(pauses[..6], [100, 100, 100, 200, 400, 800]);
        assert!(
            pauses[6..].iter().all(|&pause| pause == 1_000),
            "{pauses:?}"
        );
        assert!(schedule.succeeded());
        assert_eq!(schedule.pause(INTERVAL, Duration::ZERO, 1.0), INTERVAL);
    }

    #[test]
    fn pages_that_cost_much_and_tell_nothing_are_asked_for_seldom() {
        let mut schedule = ProbeSchedule::default();
        for _ in 0..8 {
            schedule.answered_without_metrics(true);
        }
        assert_eq!(
            schedule.pause(INTERVAL, Duration::ZERO, 1.0),
            BACKOFF_MAX,
            "each of them may have eight megabytes"
        );
        schedule.answered_without_metrics(false);
        assert_eq!(schedule.pause(INTERVAL, Duration::ZERO, 1.0), INTERVAL);
    }

    #[test]
    fn only_the_first_success_or_failure_counts_as_a_change() {
        let mut schedule = ProbeSchedule::default();
        assert!(!schedule.succeeded());
        assert!(schedule.failed());
        assert!(!schedule.failed());
        assert!(schedule.succeeded());
        assert!(schedule.answered_without_metrics(false));
        assert!(!schedule.answered_without_metrics(false));
        assert!(!schedule.succeeded(), "it answered before");
        assert!(schedule.answered_without_metrics(false));
        let told = [false, true, true, false, true].map(|several| schedule.counted(several));
        assert_eq!(told, [false, true, false, false, true]);
    }
}

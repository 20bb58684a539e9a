//! The stretch of a thread's probes: they take half of the thread's time at most.
//!
//! Ten probes a second of some thousand replicas would take whole processors, and decisions wait behind them. Each thread
//! measures its own processor time, and stretches the interval of its replicas until the probes fit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The most of a thread's time that its probes take. Half as many threads as processors probe: a quarter of the machine.
const USE_MAX: f64 = 0.5;
/// Time between two measurements of a thread.
pub(super) const MEASURED_EVERY: Duration = Duration::from_secs(1);
/// The longest stretched interval, unless the configured one is longer: a third of the age at which a probe is stale.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The factor that the log tells.
const TOLD: f64 = 1.5;
/// Most of a change at once: one busy second must not stretch the interval for many.
const CHANGE: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// The factor by which a thread stretches intervals, in thousandths.
#[derive(Clone, Debug)]
pub(super) struct Stretch(Arc<AtomicU32>);

impl Default for Stretch {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(1_000)))
    }
}

impl Stretch {
    /// The factor: 1 while the probes fit.
    pub(super) fn factor(&self) -> f64 {
        f64::from(self.0.load(Ordering::Relaxed)) / 1_000.0
    }

    /// The interval, stretched.
    pub(super) fn stretched(&self, interval: Duration) -> Duration {
        let stretched = interval.mul_f64(self.factor());
        stretched.min(INTERVAL_MAX.max(interval))
    }

    /// Takes the share of a thread's time that probes have taken with the current factor.
    fn measured(&self, used: f64) {
        let change = (used / USE_MAX).clamp(*CHANGE.start(), *CHANGE.end());
        let factor = (self.factor() * change).clamp(1.0, f64::from(u16::MAX));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped"
        )]
        self.0.store((factor * 1_000.0) as u32, Ordering::Relaxed);
    }

    /// Measures the thread on which it runs, until the thread ends. One of the threads tells the log.
    pub(super) async fn follow(self, tells: bool) {
        let mut last = (Instant::now(), thread_time());
        loop {
            tokio::time::sleep(MEASURED_EVERY).await;
            let now = (Instant::now(), thread_time());
            let (wall, used) = (now.0 - last.0, now.1.saturating_sub(last.1));
            let before = self.factor();
            self.measured(used.div_duration_f64(wall));
            let factor = self.factor();
            if tells && before < TOLD && factor >= TOLD {
                tracing::warn!(
                    factor,
                    "probes take a quarter of the processors: their interval is stretched"
                );
            } else if tells && before > 1.0 && factor <= 1.0 {
                tracing::info!("probes have their configured interval again");
            }
            last = now;
        }
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    /// Seconds of a thread whose probes take `share` of its time at the configured interval.
    fn after(seconds: usize, share: f64, stretch: &Stretch) -> f64 {
        for _ in 0..seconds {
            stretch.measured((share / stretch.factor()).min(1.0));
        }
        stretch.factor()
    }

    #[test]
    fn probes_that_fit_keep_their_interval() {
        let stretch = Stretch::default();
        assert!((after(10, 0.45, &stretch) - 1.0).abs() < 1e-9);
        assert_eq!(stretch.stretched(INTERVAL), INTERVAL);
    }

    #[test]
    fn probes_beyond_the_share_are_stretched_until_they_fit_and_come_back() {
        let stretch = Stretch::default();
        let factor = after(10, 3.0, &stretch);
        assert!((factor - 6.0).abs() < 0.1, "{factor}");
        assert!(stretch.stretched(INTERVAL) > INTERVAL * 5);
        assert!((after(10, 0.2, &stretch) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_stretched_interval_ends_before_a_probe_is_stale() {
        let stretch = Stretch::default();
        after(20, 100.0, &stretch);
        assert_eq!(stretch.stretched(INTERVAL), INTERVAL_MAX);
        assert_eq!(stretch.stretched(INTERVAL_MAX * 2), INTERVAL_MAX * 2);
    }
}

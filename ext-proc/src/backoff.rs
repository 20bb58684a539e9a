//! The backoff between attempts.

use std::time::Duration;

/// An exponential backoff with jitter, so that services which have lost the same server do not return in step.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// A backoff from `min`, doubled with each attempt, to `max`.
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            next: min,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }

    /// Waits before the next attempt.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.max);
        full.mul_f64(rand::random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_up_to_its_bound_and_resets() {
        let [min, max] = [400, 2_000].map(Duration::from_millis);
        let mut backoff = Backoff::new(min, max);
        for full_ms in [400, 800, 1600, 2000, 2000] {
            let full = Duration::from_millis(full_ms);
            let next = backoff.next();
            assert!(next >= full / 2 && next < full, "{next:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next() < min);
    }
}

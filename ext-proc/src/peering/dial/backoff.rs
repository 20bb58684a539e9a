//! The backoff between attempts.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::random;
use crate::peering::LinkTimeouts;

/// An exponential backoff with jitter, so that services which have lost the same peer do not redial in step.
pub(super) struct Backoff {
    timeouts: LinkTimeouts,
    next: Duration,
    rng: SmallRng,
}

impl Backoff {
    pub(super) fn new(timeouts: LinkTimeouts) -> Self {
        Self {
            timeouts,
            next: timeouts.backoff_min,
            rng: SmallRng::seed_from_u64(random()),
        }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.timeouts.backoff_min;
    }

    pub(super) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.timeouts.backoff_max);
        full.mul_f64(self.rng.random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_up_to_its_bound_and_resets() {
        let timeouts = LinkTimeouts::of(Duration::from_millis(200));
        let mut backoff = Backoff::new(timeouts);
        for full_ms in [400, 800, 1600, 2000, 2000] {
            let full = Duration::from_millis(full_ms);
            let next = backoff.next();
            assert!(next >= full / 2 && next < full, "{next:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next() < timeouts.backoff_min);
    }
}

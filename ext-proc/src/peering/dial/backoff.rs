//! The pauses between attempts.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::random;
use crate::peering::LinkTimeouts;

/// How long to wait before the next attempt: twice as long each time, and each time somewhat less than that, so that
/// services which lost the same peer do not come back in step.
pub(super) struct Backoff {
    pace: LinkTimeouts,
    next: Duration,
    random: SmallRng,
}

impl Backoff {
    pub(super) fn new(pace: LinkTimeouts) -> Self {
        Self {
            pace,
            next: pace.pause_min,
            random: SmallRng::seed_from_u64(random()),
        }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.pace.pause_min;
    }

    pub(super) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.pace.pause_max);
        full.mul_f64(self.random.random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_start_again() {
        let pace = LinkTimeouts::of(Duration::from_millis(200));
        let mut pause = Backoff::new(pace);
        for full_ms in [400, 800, 1600, 2000, 2000] {
            let full = Duration::from_millis(full_ms);
            let next = pause.next();
            assert!(next >= full / 2 && next < full, "{next:?} of {full:?}");
        }
        pause.reset();
        assert!(pause.next() < pace.pause_min);
    }
}

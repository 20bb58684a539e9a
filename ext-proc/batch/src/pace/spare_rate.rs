//! The spare capacity of the gateway for batch work, measured by the batch's own throughput.

use super::SteadyMs;

/// Time constant of the mean, in seconds.
const MEMORY_S: f64 = 120.0;
/// Time with work to send, in seconds, before the rate counts.
const OBSERVED_S_MIN: f64 = 30.0;

/// The rate at which a worker's non-interactive requests end, in requests per second: an exponentially weighted mean over
/// the time in which there was work to send. Idle time says nothing about capacity, so it does not count. Requests that
/// were promoted do not count either, since they take what interactive requests pay for.
#[derive(Clone, Debug, Default)]
pub struct SpareRate {
    /// Weighted number of ended requests.
    ended: f64,
    /// Weighted time, in seconds.
    time_s: f64,
    /// Time of the last observation with work.
    at: Option<SteadyMs>,
    /// Time observed in all, in seconds.
    observed_s: f64,
}

impl SpareRate {
    /// Records how many non-interactive requests ended since the last call, and whether there is work to send.
    pub fn observe(&mut self, now: SteadyMs, ended: u32, has_work: bool) {
        if let Some(at) = self.at {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a duration of minutes in milliseconds"
            )]
            let step_s = now.saturating_sub(at).max(0) as f64 / 1_000.0;
            let kept = (-step_s / MEMORY_S).exp();
            self.ended = self.ended * kept + f64::from(ended);
            self.time_s = self.time_s * kept + step_s;
            self.observed_s += step_s;
        }
        self.at = has_work.then_some(now);
    }

    /// The rate in requests per second; `None` until it was observed for long enough.
    #[must_use]
    pub fn per_s(&self) -> Option<f64> {
        let is_known = self.observed_s >= OBSERVED_S_MIN && self.time_s > 0.0;
        is_known.then(|| self.ended / self.time_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_throughput_and_ignores_idle_time() {
        let mut rate = SpareRate::default();
        rate.observe(0, 0, true);
        for second in 1..=29 {
            rate.observe(second * 1_000, 5, true);
        }
        assert_eq!(rate.per_s(), None);
        for second in 30..=600 {
            rate.observe(second * 1_000, 5, second < 600);
        }
        assert!((rate.per_s().unwrap() - 5.0).abs() < 0.1);
        // An hour without work.
        rate.observe(4_200_000, 0, true);
        assert!((rate.per_s().unwrap() - 5.0).abs() < 0.1);
        for second in 1..=600 {
            rate.observe(4_200_000 + second * 1_000, 1, true);
        }
        assert!((rate.per_s().unwrap() - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_clock_that_jumps_back_gives_no_negative_time() {
        let mut rate = SpareRate::default();
        rate.observe(100_000, 0, true);
        rate.observe(0, 3, true);
        assert!(rate.time_s >= 0.0 && rate.per_s().is_none());
    }
}

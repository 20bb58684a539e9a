//! Arrival rates of requests and of prefill work, as exponentially decaying averages.

use crate::Time;
use crate::constant::constants;

constants! {
    /// Time constant of the decay, in seconds.
    DECAY_S: f64 = 10.0;
}

/// Decaying sums of requests and of work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrivalRate {
    requests: f64,
    work_s: f64,
    at: Time,
}

impl ArrivalRate {
    /// Registers a request whose prompt takes `work_s` seconds to compute.
    pub(crate) fn add(&mut self, work_s: f64, now: Time) {
        let fade = self.fade(now);
        self.requests = self.requests * fade + 1.0;
        self.work_s = self.work_s * fade + work_s;
        self.at = self.at.max(now);
    }

    /// Takes back a request, or a part of its work, that was added at `added` and not done.
    pub(crate) fn take_back(&mut self, requests: f64, work_s: f64, added: Time) {
        let fade = (-self.at.since(added).as_secs_f64() / DECAY_S.get()).exp();
        self.requests = (self.requests - requests * fade).max(0.0);
        self.work_s = (self.work_s - work_s * fade).max(0.0);
    }

    /// Requests per second, and work per second: the number of replicas that it keeps busy.
    pub(crate) fn rates(&self, now: Time) -> (f64, f64) {
        let fade = self.fade(now);
        let rate = |sum: f64| sum * fade / DECAY_S.get();
        (rate(self.requests), rate(self.work_s))
    }

    /// Mean work of a request, in seconds; zero without requests.
    pub(crate) fn mean_work_s(&self) -> f64 {
        // Both sums decay alike.
        if self.requests > 0.0 {
            self.work_s / self.requests
        } else {
            0.0
        }
    }

    fn fade(&self, now: Time) -> f64 {
        (-now.since(self.at).as_secs_f64() / DECAY_S.get()).exp()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        let at = |s| Time::ZERO.after(Duration::from_secs(s));
        let mut rate = ArrivalRate::default();
        rate.add(0.1, at(1));
        let mut other = rate;
        other.add(20.0, at(3));
        for rate in [&mut rate, &mut other] {
            rate.add(0.2, at(6));
        }
        other.take_back(1.0, 20.0, at(3));
        let (rate, other) = (rate.rates(at(7)), other.rates(at(7)));
        assert!((rate.0 - other.0).abs() < 1e-9 && (rate.1 - other.1).abs() < 1e-9);
    }
}

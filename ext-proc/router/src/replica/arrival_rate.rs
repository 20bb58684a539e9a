//! Arrival rates of requests and of prefill work, as exponentially decaying averages.

use crate::Time;

/// Time constant of the decay, in seconds.
const WHILE_S: f64 = 10.0;

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

    /// Requests per second, and work per second: the number of replicas that it keeps busy.
    pub(crate) fn rates(&self, now: Time) -> (f64, f64) {
        let fade = self.fade(now);
        let rate = |sum: f64| sum * fade / WHILE_S;
        (rate(self.requests), rate(self.work_s))
    }

    fn fade(&self, now: Time) -> f64 {
        (-now.since(self.at).as_secs_f64() / WHILE_S).exp()
    }
}

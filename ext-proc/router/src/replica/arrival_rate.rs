//! How much work comes in: requests, and seconds of computing prompts, each as a rate over the last while.

use crate::Time;

/// How long what happened counts, seconds.
const WHILE_S: f64 = 10.0;

/// Rates over the last while: sums that fade exponentially.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrivalRate {
    requests: f64,
    work_s: f64,
    at: Time,
}

impl ArrivalRate {
    /// A request came that takes so many seconds to compute.
    pub(crate) fn add(&mut self, work_s: f64, now: Time) {
        let fade = self.fade(now);
        self.requests = self.requests * fade + 1.0;
        self.work_s = self.work_s * fade + work_s;
        self.at = self.at.max(now);
    }

    /// Seconds of work a second: how many replicas it keeps busy.
    pub(crate) fn work(&self, now: Time) -> f64 {
        self.work_s * self.fade(now) / WHILE_S
    }

    /// Requests a second, and seconds of work a second.
    pub(crate) fn rates(&self, now: Time) -> (f64, f64) {
        let fade = self.fade(now);
        let rate = |sum: f64| sum * fade / WHILE_S;
        (rate(self.requests), rate(self.work_s))
    }

    fn fade(&self, now: Time) -> f64 {
        (-now.since(self.at).as_secs_f64() / WHILE_S).exp()
    }
}

//! State of the gate for batch work (SageServe 6.2): the requests that a signal lets start.
//!
//! Each end of a request is a *signal*, and so is each interval without one. A signal lets one held request start while the
//! effective memory utilisation of the pool is below a threshold, and two below a lower one. Gauges lag, so the utilisation counts
//! what was sent since the last probes. `router/hold.rs` decides on the requests.
//!
//! Rejected: credit that adds up over signals. After a quiet minute, batch work would fill the pool at once.

use std::collections::BTreeMap;

use crate::{BatchTier, ReleaseReason, Time};

/// Signals, and the requests that they released.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchGate {
    last_signal: Time,
    /// Requests released since the last signal.
    spent: u32,
    released: BTreeMap<ReleaseReason, u64>,
}

impl BatchGate {
    /// Registers a signal: a request has ended.
    pub(crate) const fn signal(&mut self, now: Time) {
        self.last_signal = now;
        self.spent = 0;
    }

    /// The time of the next signal, if no request ends before.
    pub(crate) fn next_signal(&self, rules: &BatchTier) -> Time {
        self.last_signal.after(rules.signal_interval)
    }

    /// Requests that the last signal still lets start, and the reason, while `used` of the pool's memory is in use.
    pub(crate) fn credit(&self, rules: &BatchTier, used: Option<f64>) -> (u32, ReleaseReason) {
        let (most, reason) = allowance(rules, used);
        (most.saturating_sub(self.spent), reason)
    }

    /// Counts a request that starts.
    pub(crate) fn count_release(&mut self, reason: ReleaseReason) {
        *self.released.entry(reason).or_default() += 1;
        self.spent += u32::from(reason != ReleaseReason::Promoted);
    }

    /// Requests that started, by reason.
    pub(crate) const fn released(&self) -> &BTreeMap<ReleaseReason, u64> {
        &self.released
    }
}

/// Requests that each signal lets start, and the reason, while `used` of the pool's memory is in use.
pub(crate) fn allowance(rules: &BatchTier, used: Option<f64>) -> (u32, ReleaseReason) {
    let [high, low] = rules.release_below;
    match used {
        Some(used) if used < low => (2, ReleaseReason::BelowLow),
        Some(used) if used >= high => (0, ReleaseReason::BelowHigh),
        // Without any measure, one at a time goes to an idle replica.
        Some(_) | None => (1, ReleaseReason::BelowHigh),
    }
}

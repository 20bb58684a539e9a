//! The timeouts of a link, derived from the interval of heartbeats.

use std::time::Duration;

use crate::config::HEARTBEATS_MISSED_MAX;

/// The timeouts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTimeouts {
    /// Time between two pings.
    pub interval: Duration,
    /// Bound on one attempt to reach one address, from the TCP connection to the first response.
    pub attempt_max: Duration,
    /// Bound on the time from a message to its response. Then the link is down.
    pub silence_max: Duration,
    /// Backoff after the first failure; each further failure doubles it.
    pub backoff_min: Duration,
    /// Bound on the backoff.
    pub backoff_max: Duration,
}

/// Intervals without a response after which a link is down.
pub(super) const SILENCE_INTERVALS: u32 = HEARTBEATS_MISSED_MAX;

/// Bound on one attempt. An attempt has four round trips: a second across the world, at a quarter of a second each.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// Bound on the backoff, where two heartbeats are not longer.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Backoff after the first failure, in heartbeats.
const BACKOFF_INTERVALS: u32 = 2;

impl LinkTimeouts {
    /// The timeouts for an interval of heartbeats.
    pub fn of(heartbeat: Duration) -> Self {
        let backoff_min = heartbeat * BACKOFF_INTERVALS;
        Self {
            interval: heartbeat,
            attempt_max: ATTEMPT_MAX,
            silence_max: heartbeat * SILENCE_INTERVALS,
            backoff_min,
            backoff_max: BACKOFF_MAX.max(backoff_min),
        }
    }
}

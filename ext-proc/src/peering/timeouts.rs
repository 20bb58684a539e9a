//! The timeouts of a link, derived from the interval of heartbeats.

use std::time::Duration;

/// The timeouts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTimeouts {
    /// Bound on one attempt to reach one address, from the TCP connection to the callee's Hello.
    pub attempt_max: Duration,
    /// Bound on the callee's silence after a ping, after which the dialer cuts the link and redials.
    pub silence_max: Duration,
    /// Backoff after the first failed attempt; each further failure doubles it.
    pub backoff_min: Duration,
    /// Bound on the backoff.
    pub backoff_max: Duration,
    /// Bound on the time from a caller's TCP connection to its Hello.
    pub hello_max: Duration,
}

/// Missed heartbeats after which the dialer cuts a link. The core marks a peer as lost after three, so no request depends on a
/// link that is cut.
const SILENCE_INTERVALS: u32 = 4;

/// Bound on one attempt. A handshake has three round trips: a second across the world, at a third of a second each.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// Bound on the backoff, where two heartbeats are not longer.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Backoff after the first failed attempt, in heartbeats.
const BACKOFF_INTERVALS: u32 = 2;
/// Bound on a caller's handshake and Hello: longer than an attempt, so that the caller gives up first.
const HELLO_MAX: Duration = Duration::from_secs(5);

impl LinkTimeouts {
    /// The timeouts for an interval of heartbeats.
    pub fn of(heartbeat: Duration) -> Self {
        let backoff_min = heartbeat * BACKOFF_INTERVALS;
        Self {
            attempt_max: ATTEMPT_MAX,
            silence_max: heartbeat * SILENCE_INTERVALS,
            backoff_min,
            backoff_max: BACKOFF_MAX.max(backoff_min),
            hello_max: HELLO_MAX,
        }
    }
}

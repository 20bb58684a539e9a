//! The times of a link, all taken from the interval of heartbeats.

use std::time::Duration;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTimeouts {
    /// How long one attempt may take to reach one address, from the TCP connection to the other's Hello.
    pub attempt_max: Duration,
    /// How long the other side may say nothing after it was asked, before the link is cut and dialled again.
    pub silence_max: Duration,
    /// The pause after the first failed attempt; it doubles with each one that follows.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// How long a caller may take from its TCP connection to its Hello.
    pub greeting_max: Duration,
}

/// Heartbeats that may be missing before a link is cut. The core calls a peer lost after three, so that by the time
/// the link is cut nobody uses it.
const SILENT_INTERVALS: u32 = 4;

/// A handshake across the world takes three round trips: a second, when each takes a third of one.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_INTERVALS: u32 = 2;
const GREETING_MAX: Duration = Duration::from_secs(5);

impl LinkTimeouts {
    /// The times that go with an interval.
    #[must_use]
    pub fn of(heartbeat: Duration) -> Self {
        let pause_min = heartbeat * PAUSE_INTERVALS;
        Self {
            attempt_max: ATTEMPT_MAX,
            silence_max: heartbeat * SILENT_INTERVALS,
            pause_min,
            pause_max: PAUSE_MAX.max(pause_min),
            greeting_max: GREETING_MAX,
        }
    }
}

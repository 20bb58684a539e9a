//! The wall clock, as responses and debug pages show it.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    since_epoch().as_secs()
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

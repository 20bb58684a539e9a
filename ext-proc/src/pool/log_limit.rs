//! A limit on log lines that every request may cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_router::Time;

/// Shortest time between two lines.
const INTERVAL: Duration = Duration::from_mins(1);

/// Admits one line a minute.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// Time of the next line in milliseconds since the start of the clock.
    next_ms: AtomicU64,
}

impl LogLimit {
    /// Whether to write a line now.
    pub(crate) fn admits(&self, now: Time) -> bool {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now_ms = millis(now.since(Time::ZERO));
        let next_ms = now_ms.saturating_add(millis(INTERVAL));
        let take = |due_ms| (due_ms <= now_ms).then_some(next_ms);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.next_ms.fetch_update(set, get, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_is_admitted() {
        let limit = LogLimit::default();
        let at = |seconds| Time::ZERO.after(Duration::from_secs(seconds));
        assert!(limit.admits(at(0)));
        assert!(!limit.admits(at(0)) && !limit.admits(at(59)));
        assert!(limit.admits(at(60)));
        assert!(!limit.admits(at(61)));
    }
}

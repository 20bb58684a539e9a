//! Converts the machine's clock into the router's [`Time`].
//!
//! Every event (a request, a probe, a load report) is stamped with the same origin, so the service makes one clock and
//! passes it down. The clock is monotonic: setting the wall clock does not move it.

use std::time::{Duration, Instant};

use isotherm_router::Time;

/// Nanoseconds since the service started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Creates a clock whose origin is the current instant.
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// Converts an instant; an instant before the origin becomes the origin.
    pub fn time_of(&self, instant: Instant) -> Time {
        let nanos = instant.saturating_duration_since(self.origin).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Converts a time back; `None` for a time that the machine cannot express.
    pub fn instant_of(&self, time: Time) -> Option<Instant> {
        self.origin.checked_add(time.since(Time::ZERO))
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_converts_to_an_instant_and_back() {
        let clock = Clock::start();
        let time = Time::from_nanos(1_500_000);
        let instant = clock.instant_of(time).unwrap();
        assert_eq!(clock.time_of(instant), time);
        assert_eq!(
            instant.duration_since(clock.instant_of(Time::ZERO).unwrap()),
            Duration::from_nanos(1_500_000)
        );
    }
}

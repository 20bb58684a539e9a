//! The one place of the service that turns the machine's clock into the router's [`Time`].
//!
//! Everything that stamps an event (a request, a probe, a load report) must use the same origin, so the clock
//! is made once and handed down. It is monotonic: setting the wall clock does not move it.

use std::time::Instant;

use isotherm_router::Time;

/// Nanoseconds since the service started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// The router's name for an instant; the origin for what lies before it.
    #[must_use]
    pub fn time_of(&self, instant: Instant) -> Time {
        let nanos = instant.saturating_duration_since(self.origin).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The instant that the router calls `time`, or `None` past what the machine can express.
    #[must_use]
    pub fn instant_of(&self, time: Time) -> Option<Instant> {
        self.origin.checked_add(time.since(Time::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_instant_and_its_time_are_the_same_point() {
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

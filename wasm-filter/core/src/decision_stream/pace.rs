//! When the timer of a decision stream is to fire: at every tick, and sooner while the end of a request waits to be told.
//!
//! An end rides on the next question, which saves a message, a write and a wake-up of the service for each request: at
//! 4 KB a seventh of the whole processor time. When nobody asks soon, the timer tells it.

use std::time::Duration;

use crate::response::Nanoseconds;

/// How long a tick is.
pub const TICK: Duration = Duration::from_millis(100);

/// How long an end waits for a question that takes it along.
const END_WAITS_MAX: Duration = Duration::from_millis(1);

/// The timer of one decision stream.
#[derive(Debug)]
pub struct Pace {
    tick_at: Nanoseconds,
    /// What the timer is set to.
    period: Duration,
}

/// What is to be done now that the timer has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// A tick is over.
    pub is_tick: bool,
    /// Set the timer to this period from now on.
    pub period: Option<Duration>,
}

impl Pace {
    /// A timer that was set to [`TICK`] just now.
    #[must_use]
    pub fn new(now: Nanoseconds) -> Self {
        Self {
            tick_at: now.saturating_add(nanoseconds(TICK)),
            period: TICK,
        }
    }

    /// The end of a request waits. Returns what to set the timer to, unless it fires as soon anyway.
    pub fn hurry(&mut self) -> Option<Duration> {
        self.set(END_WAITS_MAX)
    }

    /// The timer has fired. The host's clock may be set back; then a tick is over, too, or time would stand still.
    pub fn fired(&mut self, now: Nanoseconds) -> Fired {
        let left = Duration::from_nanos(self.tick_at.saturating_sub(now));
        let is_tick = left.is_zero() || left > TICK;
        let next = if is_tick {
            self.tick_at = now.saturating_add(nanoseconds(TICK));
            TICK
        } else {
            left.max(END_WAITS_MAX)
        };
        Fired {
            is_tick,
            period: self.set(next),
        }
    }

    fn set(&mut self, period: Duration) -> Option<Duration> {
        (std::mem::replace(&mut self.period, period) != period).then_some(period)
    }
}

fn nanoseconds(duration: Duration) -> Nanoseconds {
    Nanoseconds::try_from(duration.as_nanos()).unwrap_or(Nanoseconds::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanoseconds = 1_000_000;

    fn ms(count: u64) -> Option<Duration> {
        Some(Duration::from_millis(count))
    }

    fn fired(is_tick: bool, period: Option<Duration>) -> Fired {
        Fired { is_tick, period }
    }

    #[test]
    fn a_timer_that_nobody_hurries_makes_ticks_and_is_left_alone() {
        let mut pace = Pace::new(5 * MS);
        for tick in 1..4 {
            assert_eq!(pace.fired((5 + 100 * tick) * MS), fired(true, None));
        }
    }

    #[test]
    fn who_hurries_gets_a_millisecond_and_the_tick_comes_when_it_would_have_come() {
        let mut pace = Pace::new(0);
        assert_eq!(pace.hurry(), ms(1));
        assert_eq!(pace.hurry(), None, "it is set");
        assert_eq!(pace.fired(40 * MS), fired(false, ms(60)));
        assert_eq!(pace.hurry(), ms(1));
        assert_eq!(pace.fired(100 * MS), fired(true, ms(100)));
    }

    #[test]
    fn a_tick_comes_in_the_greatest_hurry() {
        let mut pace = Pace::new(0);
        let ticks = (1..=1_000).filter(|ms| {
            pace.hurry();
            pace.fired(ms * MS).is_tick
        });
        assert_eq!(ticks.count(), 10);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_time() {
        let mut pace = Pace::new(3_600_000 * MS);
        assert!(pace.fired(MS).is_tick);
        assert_eq!(pace.fired(101 * MS), fired(true, None));
    }
}

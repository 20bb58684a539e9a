//! The timer of a decision stream: it fires at every tick, and sooner while the end of a request waits to be sent.
//!
//! An end is sent with the next decision request, which saves a message, a write and a wake-up of the service for each
//! request. Without a next request the timer sends it.

use std::time::Duration;

use crate::response::Nanoseconds;

/// The period of ticks.
pub const TICK: Duration = Duration::from_millis(100);

/// The longest that an end waits for the next decision request.
const END_DELAY_MAX: Duration = Duration::from_millis(1);

/// The timer of one decision stream.
#[derive(Debug)]
pub struct FlushTimer {
    tick_at: Nanoseconds,
    /// The current period of the host's timer.
    period: Duration,
}

/// The result of a timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerEvent {
    /// Whether a tick is over.
    pub is_tick: bool,
    /// The new period of the host's timer, if it changes.
    pub period: Option<Duration>,
}

impl FlushTimer {
    /// A timer whose period was set to [`TICK`] now.
    #[must_use]
    pub fn new(now: Nanoseconds) -> Self {
        Self {
            tick_at: now.saturating_add(nanoseconds(TICK)),
            period: TICK,
        }
    }

    /// Schedules the sending of an end. Returns the new period of the host's timer, if it changes.
    pub fn schedule(&mut self) -> Option<Duration> {
        self.set(END_DELAY_MAX)
    }

    /// Handles a timer that has fired. A host's clock that was set back counts as a tick; otherwise no tick would follow.
    pub fn fire(&mut self, now: Nanoseconds) -> TimerEvent {
        let left = Duration::from_nanos(self.tick_at.saturating_sub(now));
        let is_tick = left.is_zero() || left > TICK;
        let next = if is_tick {
            self.tick_at = now.saturating_add(nanoseconds(TICK));
            TICK
        } else {
            left.max(END_DELAY_MAX)
        };
        TimerEvent {
            is_tick,
            period: self.set(next),
        }
    }

    /// The period that the host's timer needs now.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
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

    fn event(is_tick: bool, period: Option<Duration>) -> TimerEvent {
        TimerEvent { is_tick, period }
    }

    #[test]
    fn a_timer_without_ends_keeps_the_period_of_ticks() {
        let mut timer = FlushTimer::new(5 * MS);
        for tick in 1..4 {
            assert_eq!(timer.fire((5 + 100 * tick) * MS), event(true, None));
        }
    }

    #[test]
    fn an_end_shortens_the_period_and_does_not_move_the_tick() {
        let mut timer = FlushTimer::new(0);
        assert_eq!(timer.schedule(), ms(1));
        assert_eq!(timer.schedule(), None, "the period is set already");
        assert_eq!(timer.fire(40 * MS), event(false, ms(60)));
        assert_eq!(timer.schedule(), ms(1));
        assert_eq!(timer.fire(100 * MS), event(true, ms(100)));
    }

    #[test]
    fn ticks_come_on_time_among_many_ends() {
        let mut timer = FlushTimer::new(0);
        let ticks = (1..=1_000).filter(|ms| {
            timer.schedule();
            timer.fire(ms * MS).is_tick
        });
        assert_eq!(ticks.count(), 10);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_ticks() {
        let mut timer = FlushTimer::new(3_600_000 * MS);
        assert!(timer.fire(MS).is_tick);
        assert_eq!(timer.fire(101 * MS), event(true, None));
    }
}

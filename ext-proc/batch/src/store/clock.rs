//! The clock of the queue.
//!
//! Time advances by the machine's monotonic clock from what the database's clock showed. So a step of the wall clock changes
//! nothing at first. Another look at the database's clock follows every [`LOOK_INTERVAL`]; a step that two looks show is
//! believed. Until the first look agrees, no batch ends by its deadline: the process may have started within a step.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sqlx::Row as _;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::address::Dialect;
use super::{Store, StoreResult};
use crate::pace::{Moment, SteadyMs, UnixMs};

/// Interval of looks at the database's clock: a step that is taken back sooner is never believed.
const LOOK_INTERVAL: Duration = Duration::from_secs(20);
/// Difference that is drift or an inexact look, and no step, in milliseconds.
const DRIFT_MS_MAX: i64 = 1_000;

/// The clock of the queue.
#[derive(Debug)]
pub(super) struct Clock {
    started: Instant,
    offset: Mutex<ClockOffset>,
}

/// The time of the queue less the time since the start, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct ClockOffset {
    believed: i64,
    /// Offset that the last look showed, if it was another one.
    doubtful: Option<i64>,
    is_confirmed: bool,
}

impl Clock {
    /// Starts the clock with the time that the database shows.
    pub(super) fn new(shown: UnixMs) -> Self {
        Self {
            started: Instant::now(),
            offset: Mutex::new(ClockOffset::new(shown)),
        }
    }

    fn steady(&self) -> SteadyMs {
        SteadyMs::try_from(self.started.elapsed().as_millis()).unwrap_or(SteadyMs::MAX)
    }

    fn moment(&self) -> Moment {
        let steady = self.steady();
        let unix = self.offset.lock().believed.saturating_add(steady);
        Moment { steady, unix }
    }
}

impl ClockOffset {
    fn new(believed: i64) -> Self {
        Self {
            believed,
            doubtful: None,
            is_confirmed: false,
        }
    }

    /// Learns what a look at the database's clock shows. Returns the step that is believed, in milliseconds.
    fn learn(&mut self, shown: i64) -> Option<i64> {
        let agrees = |known: i64| known.abs_diff(shown) <= DRIFT_MS_MAX.unsigned_abs();
        let step = shown.saturating_sub(self.believed);
        let is_drift = agrees(self.believed);
        if !is_drift && !self.doubtful.is_some_and(agrees) {
            self.doubtful = Some(shown);
            self.is_confirmed = false;
            return None;
        }
        *self = Self {
            believed: shown,
            doubtful: None,
            is_confirmed: true,
        };
        (!is_drift).then_some(step)
    }
}

impl Store {
    /// The time of the queue, which all workers share.
    #[must_use]
    pub fn now(&self) -> UnixMs {
        self.moment().unix
    }

    /// This moment, for pauses and for deadlines.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// Whether a second look at the database's clock has confirmed the time.
    #[must_use]
    pub fn is_time_confirmed(&self) -> bool {
        self.clock.offset.lock().is_confirmed
    }

    /// Looks at the database's clock now and then, until `stop` is cancelled.
    pub(crate) async fn follow_clock(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(LOOK_INTERVAL) => {}
            }
            match self.look_at_clock().await {
                Ok(Some(step_ms)) => tracing::warn!(step_ms, "the database's clock was set"),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "the database's clock is unknown"),
            }
        }
    }

    pub(super) async fn look_at_clock(&self) -> StoreResult<Option<i64>> {
        let before = self.clock.steady();
        let shown = self.read_clock().await?;
        let took = self.clock.steady().saturating_sub(before);
        if took > DRIFT_MS_MAX {
            return Ok(None); // too slow to say anything
        }
        let offset = shown.saturating_sub(before.saturating_add(took / 2));
        Ok(self.clock.offset.lock().learn(offset))
    }

    /// Reads the database's clock. SQLite's is this machine's.
    pub(super) async fn read_clock(&self) -> StoreResult<UnixMs> {
        match self.dialect {
            Dialect::Sqlite => Ok(wall_clock()),
            Dialect::Postgres => {
                let clock = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
                let row = sqlx::query(clock).fetch_one(&self.pool).await?;
                Ok(row.try_get(0)?)
            }
        }
    }
}

/// Reads this machine's clock.
pub(super) fn wall_clock() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONTH_MS: i64 = 31 * 24 * 3_600_000;

    #[test]
    fn a_step_that_is_taken_back_is_never_believed() {
        let mut offset = ClockOffset::new(5);
        assert_eq!(offset.learn(7), None);
        assert!(offset.is_confirmed);
        for step in [MONTH_MS, -MONTH_MS, 2_000] {
            assert_eq!(offset.learn(7 + step), None);
            assert_eq!((offset.believed, offset.is_confirmed), (7, false));
            assert_eq!(offset.learn(7), None);
            assert_eq!((offset.believed, offset.is_confirmed), (7, true));
        }
    }

    #[test]
    fn a_step_that_two_looks_show_is_believed() {
        let mut offset = ClockOffset::new(0);
        assert_eq!(offset.learn(-MONTH_MS), None);
        assert!(!offset.is_confirmed, "the process started within a step");
        assert_eq!(offset.learn(-MONTH_MS + 3), Some(-MONTH_MS + 3));
        assert_eq!(offset.believed, -MONTH_MS + 3);
        assert!(offset.is_confirmed);
    }

    #[test]
    fn drift_is_followed_at_once() {
        let mut offset = ClockOffset::new(0);
        for look in 1..100 {
            assert_eq!(offset.learn(look * DRIFT_MS_MAX), None);
            assert_eq!(offset.believed, look * DRIFT_MS_MAX);
        }
    }
}

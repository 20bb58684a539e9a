//! The time limit of the bodies that the filter holds.
//!
//! ```text
//! headers ──start──> Started ──tick──> Timed ──tick, limit over──> Expired: 408
//!                       └──────────────────┴──stop: the body has ended ──> Free
//! ```
//! A body must be complete within the timeout, plus the time that its bytes take at the lowest rate. So a large body of an
//! honest client on a slow link passes, and a body that trickles does not. The timer stops when the request continues: the
//! queue comes after it.
//!
//! A request costs a push and a pop. Its time begins with the next tick, so that no request reads the clock, and the host
//! counts the bytes. The list has at most one entry for each request that the host has open.

use std::time::Duration;

use serde_json::Value;

use crate::RequestConfig;
use crate::error_body;
use crate::response::Nanoseconds;

/// The status of the response to a client whose body is late.
pub const STATUS: u16 = 408;
/// The code of the error, which is also the reason in the access log.
pub const CODE: &str = "body_timeout";
/// The message of the error.
pub const MESSAGE: &str = "The body of this request did not arrive in time.";
/// The body of the response, in OpenAI's format.
#[must_use]
pub fn body() -> Value {
    error_body::openai(MESSAGE, "invalid_request_error", None, CODE)
}

/// The longest period of [`BodyTimer::tick`].
const TICK_MAX: Duration = Duration::from_secs(1);
/// The shortest period of [`BodyTimer::tick`].
const TICK_MIN: Duration = Duration::from_millis(20);
/// The ticks in the timeout, unless they would be too short or too long.
const TICKS: u32 = 8;

/// The time that the bytes of a body may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyTimeout {
    timeout: Duration,
    bytes_per_s_min: u64,
}

impl BodyTimeout {
    /// The limits of a configuration; `None` if bodies may take any time.
    #[must_use]
    pub fn new(timeout: Duration, bytes_per_s_min: u64) -> Option<Self> {
        (!timeout.is_zero()).then_some(Self {
            timeout,
            bytes_per_s_min: bytes_per_s_min.max(1),
        })
    }

    fn of(config: &RequestConfig) -> Option<Self> {
        let timeout = Duration::from_millis(config.body_timeout_ms.into());
        Self::new(timeout, config.body_bytes_per_s_min.into())
    }

    fn tick(self) -> Duration {
        (self.timeout / TICKS).clamp(TICK_MIN, TICK_MAX)
    }

    /// The longest time from the headers to the end of a body of which `bytes` have arrived.
    #[must_use]
    pub fn after(self, bytes: u64) -> Duration {
        let whole = Duration::from_secs(bytes / self.bytes_per_s_min);
        let nanos = (bytes % self.bytes_per_s_min).saturating_mul(1_000_000_000);
        let rest = Duration::from_nanos(nanos / self.bytes_per_s_min);
        self.timeout.saturating_add(whole).saturating_add(rest)
    }
}

/// The place of a request in a [`BodyTimer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyIndex(usize);

/// The bodies that one plugin instance holds.
#[derive(Debug)]
pub struct BodyTimer {
    /// The limits; `None` if bodies may take any time.
    limit: Option<BodyTimeout>,
    entries: Vec<BodyEntry>,
    free: Vec<BodyIndex>,
    /// The time of the next tick; calls before it have no effect.
    due_at: Nanoseconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyEntry {
    Free,
    /// A request whose time begins with the next tick.
    Started(u32),
    Timed {
        request: u32,
        since: Nanoseconds,
    },
    /// A request that the timer has given up, or that continues.
    Expired,
}

impl BodyTimer {
    /// A timer without bodies.
    #[must_use]
    pub fn new(config: &RequestConfig) -> Self {
        Self {
            limit: BodyTimeout::of(config),
            entries: Vec::new(),
            free: Vec::new(),
            due_at: 0,
        }
    }

    /// Starts the time of a request; `None` if bodies may take any time.
    pub fn start(&mut self, request: u32) -> Option<BodyIndex> {
        self.limit?;
        let reused = self.free.pop();
        if let Some(index) = reused
            && let Some(entry) = self.entries.get_mut(index.0)
        {
            *entry = BodyEntry::Started(request);
            return reused;
        }
        self.entries.push(BodyEntry::Started(request));
        Some(BodyIndex(self.entries.len() - 1))
    }

    /// Stops the time of a request, whose index then serves another one.
    pub fn stop(&mut self, index: BodyIndex) {
        if let Some(entry) = self.entries.get_mut(index.0)
            && *entry != BodyEntry::Free
        {
            *entry = BodyEntry::Free;
            self.free.push(index);
        }
    }

    /// Stops the time of a request that continues before its body has ended. The request still owns its index.
    pub fn abandon(&mut self, request: u32) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.request() == Some(request)) {
            *entry = BodyEntry::Expired;
        }
    }

    /// The requests whose time is over, each once. `received_bytes` is the host's count for a request.
    pub fn tick(
        &mut self,
        now: Nanoseconds,
        mut received_bytes: impl FnMut(u32) -> Option<u64>,
    ) -> Vec<u32> {
        let mut expired = Vec::new();
        let Some(limit) = self.limit.filter(|limit| self.is_due(now, limit.tick())) else {
            return expired;
        };
        for entry in &mut self.entries {
            match *entry {
                BodyEntry::Started(request) => {
                    *entry = BodyEntry::Timed {
                        request,
                        since: now,
                    };
                }
                BodyEntry::Timed { request, since } => {
                    let Some(elapsed) = now.checked_sub(since) else {
                        // The host's clock was set back.
                        *entry = BodyEntry::Started(request);
                        continue;
                    };
                    let elapsed = Duration::from_nanos(elapsed);
                    if elapsed >= limit.timeout
                        && elapsed >= limit.after(received_bytes(request).unwrap_or_default())
                    {
                        *entry = BodyEntry::Expired;
                        expired.push(request);
                    }
                }
                BodyEntry::Free | BodyEntry::Expired => {}
            }
        }
        expired
    }

    /// The period in which the host must call [`Self::tick`]; `None` when it need not.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        self.limit.map(BodyTimeout::tick)
    }

    /// Whether a tick is due, and sets the time of the next one. A clock that was set back makes it due.
    fn is_due(&mut self, now: Nanoseconds, period: Duration) -> bool {
        let period = Nanoseconds::try_from(period.as_nanos()).unwrap_or(Nanoseconds::MAX);
        let is_due = now >= self.due_at || self.due_at - now > period;
        if is_due {
            self.due_at = now.saturating_add(period);
        }
        is_due
    }
}

impl BodyEntry {
    fn request(self) -> Option<u32> {
        match self {
            Self::Started(request) | Self::Timed { request, .. } => Some(request),
            Self::Free | Self::Expired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PluginConfig;

    const SECOND: Nanoseconds = 1_000_000_000;

    fn timer(json: &str) -> BodyTimer {
        match PluginConfig::parse(json.as_bytes()).unwrap() {
            PluginConfig::Request(config) => BodyTimer::new(&config),
            PluginConfig::Response(_) | PluginConfig::Gate => panic!("another role"),
        }
    }

    /// A timer of 10 s with a rate of 1,000 bytes a second.
    fn usual() -> BodyTimer {
        timer(r#"{"body_timeout_ms":10000,"body_bytes_per_s_min":1000}"#)
    }

    #[test]
    fn a_body_that_does_not_end_expires_once() {
        let mut timer = usual();
        let index = timer.start(7).unwrap();
        assert!(timer.tick(SECOND, |_| Some(0)).is_empty());
        assert!(timer.tick(10 * SECOND, |_| Some(0)).is_empty());
        assert_eq!(timer.tick(11 * SECOND, |_| Some(0)), [7]);
        assert!(timer.tick(99 * SECOND, |_| Some(0)).is_empty());
        timer.stop(index);
    }

    #[test]
    fn a_large_body_at_a_modest_rate_has_more_time_than_one_that_trickles() {
        let mut timer = usual();
        timer.start(1).unwrap();
        timer.start(2).unwrap();
        timer.tick(0, |_| None);
        let mut expired = Vec::new();
        for second in 1..=100 {
            let received = |id| Some(second * if id == 1 { 1_000 } else { 1 });
            expired.extend(timer.tick(second * SECOND, received));
        }
        assert_eq!(expired, [2]);
        let stalled = timer.tick(110 * SECOND, |_| Some(100_000));
        assert_eq!(stalled, [1], "its bytes have stopped");
    }

    #[test]
    fn a_request_that_continues_has_no_time_limit() {
        let mut timer = usual();
        let index = timer.start(1).unwrap();
        timer.tick(0, |_| None);
        timer.stop(index);
        assert!(timer.tick(99 * SECOND, |_| None).is_empty());

        let index = timer.start(2).unwrap();
        timer.abandon(2);
        let other = timer.start(3).unwrap();
        assert_ne!(index, other, "the request owns its index until it ends");
        timer.tick(100 * SECOND, |_| None);
        assert_eq!(timer.tick(110 * SECOND, |_| None), [3]);
    }

    #[test]
    fn entries_are_used_again() {
        let mut timer = usual();
        for id in 0..1_000 {
            let index = timer.start(id).unwrap();
            timer.stop(index);
            timer.stop(index);
        }
        assert_eq!((timer.entries.len(), timer.free.len()), (1, 1));
    }

    #[test]
    fn a_clock_that_is_set_back_starts_the_time_again() {
        let mut timer = usual();
        timer.start(1).unwrap();
        timer.tick(3_600 * SECOND, |_| None);
        for second in 0..10 {
            assert!(timer.tick(second * SECOND, |_| None).is_empty());
        }
        assert_eq!(timer.tick(12 * SECOND, |_| None), [1]);
    }

    #[test]
    fn a_timeout_of_zero_is_no_limit() {
        let mut timer = timer(r#"{"body_timeout_ms":0}"#);
        assert_eq!((timer.start(1), timer.period()), (None, None));
    }

    #[test]
    fn ticks_follow_the_timeout_within_bounds() {
        let period = |ms: u32| timer(&format!(r#"{{"body_timeout_ms":{ms}}}"#)).period();
        assert_eq!(period(30_000), Some(TICK_MAX));
        assert_eq!(period(800), Some(Duration::from_millis(100)));
        assert_eq!(period(1), Some(TICK_MIN));
    }
}

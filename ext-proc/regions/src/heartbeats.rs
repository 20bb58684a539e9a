//! Heartbeats of one service: their acceptance, their age, and the round trip.
//!
//! The age of a heartbeat starts at its *ping*, so that its content is never taken to be too young. `docs/design/recovery.md`
//! has the rules of acceptance.

use core::time::Duration;

use super::message::{Heartbeat, Ping};
use isotherm_router::Time;

/// Divisor of a new round trip's weight in the smoothed one, as in TCP.
const SMOOTHING: u32 = 8;

/// Failure detector of one service.
#[derive(Debug, Default)]
pub struct HeartbeatMonitor {
    /// Time of the newest ping with an accepted reply.
    pub as_of: Option<Time>,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
}

impl HeartbeatMonitor {
    /// Handles the reply to a ping. Returns whether it is accepted.
    pub fn on_reply(
        &mut self,
        ping: Ping,
        heartbeat: &Heartbeat,
        now: Time,
        age_max: Duration,
    ) -> bool {
        let age = now.since(ping.sent);
        let is_newest = self.as_of.is_none_or(|as_of| ping.sent > as_of);
        if heartbeat.nonce != ping.nonce || !is_newest || age >= age_max {
            return false;
        }
        self.as_of = Some(ping.sent);
        self.round_trip = Some(self.round_trip.map_or(age, |smoothed| {
            (smoothed * (SMOOTHING - 1) + age) / SMOOTHING
        }));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_millis(600);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// Hands a reply to a monitor: the ping was sent and the reply arrived at these times.
    fn is_accepted(monitor: &mut HeartbeatMonitor, nonce: u64, sent_ms: u64, now_ms: u64) -> bool {
        let heartbeat = Heartbeat {
            nonce,
            version: "test".into(),
            has_gateway: true,
            pools: Vec::new(),
        };
        let ping = Ping {
            nonce: 7,
            sent: at(sent_ms),
        };
        monitor.on_reply(ping, &heartbeat, at(now_ms), AGE_MAX)
    }

    #[test]
    fn a_heartbeat_is_as_old_as_its_ping() {
        let mut monitor = HeartbeatMonitor::default();
        assert!(is_accepted(&mut monitor, 7, 200, 450));
        assert_eq!(monitor.as_of, Some(at(200)));
        assert_eq!(monitor.round_trip, Some(Duration::from_millis(250)));
    }

    #[test]
    fn late_repeated_reordered_and_foreign_heartbeats_are_rejected() {
        let mut monitor = HeartbeatMonitor::default();
        assert!(is_accepted(&mut monitor, 7, 200, 450));
        for (nonce, sent_ms, now_ms) in
            [(7, 200, 460), (7, 100, 460), (8, 400, 460), (7, 400, 1000)]
        {
            assert!(
                !is_accepted(&mut monitor, nonce, sent_ms, now_ms),
                "{nonce} {sent_ms} {now_ms}"
            );
        }
        assert!(is_accepted(&mut monitor, 7, 400, 500));
    }
}

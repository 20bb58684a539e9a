//! Heartbeats of one service: their acceptance, their age, and the round trip.
//!
//! The age of a heartbeat starts at its *ping*, so that its content is never taken to be too young. `docs/design/recovery.md`
//! has the rules of acceptance.

use core::time::Duration;
use std::collections::VecDeque;

use super::message::{Heartbeat, Ping, Session};
use isotherm_router::Time;

/// Limit of pings without a reply.
const PENDING_MAX: usize = 16;
/// Divisor of a new round trip's weight in the smoothed one, as in TCP.
const SMOOTHING: u32 = 8;

/// Failure detector of one service.
#[derive(Debug, Default)]
pub struct HeartbeatMonitor {
    session: Option<Session>,
    pending: VecDeque<(u64, Time)>,
    /// The newest ping with an accepted reply.
    newest_reply: u64,
    /// Time of that ping.
    pub as_of: Option<Time>,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
}

impl HeartbeatMonitor {
    /// Handles a new link. Pings of an earlier link get no reply.
    pub fn on_link_up(&mut self, session: Session) {
        self.on_link_down();
        self.session = Some(session);
    }

    /// Handles the loss of the link.
    pub fn on_link_down(&mut self) {
        self.session = None;
        self.pending.clear();
    }

    /// Returns the next ping, with a number that grows; `None` while the link is down.
    pub fn next_ping(&mut self, seq: u64, now: Time) -> Option<Ping> {
        let session = self.session?;
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((seq, now));
        Some(Ping { session, seq })
    }

    /// Handles a heartbeat. Returns the time of its ping if it is accepted.
    pub fn on_reply(
        &mut self,
        heartbeat: &Heartbeat,
        now: Time,
        age_max: Duration,
    ) -> Option<Time> {
        let ping_seq = heartbeat.ping_seq;
        if self.session != Some(heartbeat.session) || ping_seq <= self.newest_reply {
            return None;
        }
        let &(_, sent) = self.pending.iter().find(|(seq, _)| *seq == ping_seq)?;
        let age = now.since(sent);
        if age >= age_max {
            return None;
        }
        self.pending.retain(|(seq, _)| *seq > ping_seq);
        self.newest_reply = ping_seq;
        self.as_of = Some(sent);
        self.round_trip = Some(self.round_trip.map_or(age, |smoothed| {
            (smoothed * (SMOOTHING - 1) + age) / SMOOTHING
        }));
        Some(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_millis(600);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn heartbeat(session: u64, ping_seq: u64) -> Heartbeat {
        Heartbeat {
            session: Session(session),
            ping_seq,
            version: "test".into(),
            has_gateway: true,
            pools: Vec::new(),
        }
    }

    fn monitor() -> HeartbeatMonitor {
        let mut monitor = HeartbeatMonitor::default();
        assert_eq!(monitor.next_ping(1, at(0)), None, "no link is up");
        monitor.on_link_up(Session(7));
        for (seq, ms) in [(1, 0), (2, 200), (3, 400)] {
            assert!(monitor.next_ping(seq, at(ms)).is_some());
        }
        monitor
    }

    #[test]
    fn a_heartbeat_is_as_old_as_its_ping() {
        let mut monitor = monitor();
        let accepted = monitor.on_reply(&heartbeat(7, 2), at(450), AGE_MAX);
        assert_eq!(accepted, Some(at(200)));
        assert_eq!(monitor.as_of, Some(at(200)));
        assert_eq!(monitor.round_trip, Some(Duration::from_millis(250)));
    }

    #[test]
    fn late_repeated_reordered_and_foreign_heartbeats_are_rejected() {
        let mut monitor = monitor();
        let mut is_accepted = |session, ping_seq, ms| {
            let accepted = monitor.on_reply(&heartbeat(session, ping_seq), at(ms), AGE_MAX);
            accepted.is_some()
        };
        assert!(is_accepted(7, 2, 450));
        for (session, ping_seq, ms) in [
            (7, 2, 460),
            (7, 1, 460),
            (7, 4, 460),
            (6, 3, 460),
            (7, 3, 1000),
        ] {
            assert!(
                !is_accepted(session, ping_seq, ms),
                "{session} {ping_seq} {ms}"
            );
        }
        assert!(is_accepted(7, 3, 500));
    }

    #[test]
    fn a_new_link_forgets_the_pings_of_the_old_one() {
        let mut monitor = monitor();
        monitor.on_link_up(Session(8));
        for session in [7, 8] {
            let accepted = monitor.on_reply(&heartbeat(session, 3), at(450), AGE_MAX);
            assert_eq!(accepted, None);
        }
    }
}

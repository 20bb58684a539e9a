//! Heartbeats of one peer: their acceptance, their age, and the round trip.
//!
//! The age of a heartbeat starts at its *ping*, so that its content is never taken to be too young. `docs/design/recovery.md`
//! has the rules of acceptance.

use core::time::Duration;
use std::collections::VecDeque;

use super::message::Session;
use isotherm_router::Time;

/// Limit of pings without a reply.
const PENDING_MAX: usize = 16;
/// Divisor of a new round trip's weight in the smoothed one, as in TCP.
const SMOOTHING: u32 = 8;

/// Failure detector of one peer.
#[derive(Debug, Default)]
pub(super) struct HeartbeatMonitor {
    session: Option<(Session, Time)>,
    pending: VecDeque<(u64, Time)>,
    /// The newest ping with an accepted reply.
    pub(super) newest_reply: u64,
    /// Time of that ping.
    pub(super) as_of: Option<Time>,
    pub(super) round_trip: Option<Duration>,
}

impl HeartbeatMonitor {
    /// Handles a new link. Pings of an earlier link get no reply.
    pub(super) fn on_link_up(&mut self, session: Session, now: Time) {
        self.on_link_down();
        self.session = Some((session, now));
    }

    pub(super) fn on_link_down(&mut self) {
        self.session = None;
        self.pending.clear();
    }

    /// Returns the link that is up.
    pub(super) fn session(&self) -> Option<Session> {
        self.session.map(|(session, _)| session)
    }

    /// Whether the link has been up for at least a time.
    pub(super) fn is_up_for(&self, now: Time, at_least: Duration) -> bool {
        self.session
            .is_some_and(|(_, since)| now.since(since) >= at_least)
    }

    pub(super) fn on_ping_sent(&mut self, seq: u64, now: Time) {
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((seq, now));
    }

    /// Handles a heartbeat. Returns the time of its ping if it is accepted.
    pub(super) fn on_reply(
        &mut self,
        session: Session,
        ping_seq: u64,
        now: Time,
        age_max: Duration,
    ) -> Option<Time> {
        if self.session() != Some(session) || ping_seq <= self.newest_reply {
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

    fn monitor() -> HeartbeatMonitor {
        let mut monitor = HeartbeatMonitor::default();
        monitor.on_link_up(Session(7), at(0));
        for (seq, ms) in [(1, 0), (2, 200), (3, 400)] {
            monitor.on_ping_sent(seq, at(ms));
        }
        monitor
    }

    #[test]
    fn a_heartbeat_is_as_old_as_its_ping() {
        let mut monitor = monitor();
        assert_eq!(
            monitor.on_reply(Session(7), 2, at(450), AGE_MAX),
            Some(at(200))
        );
        assert_eq!(monitor.as_of, Some(at(200)));
        assert_eq!(monitor.round_trip, Some(Duration::from_millis(250)));
    }

    #[test]
    fn late_repeated_reordered_and_foreign_heartbeats_are_rejected() {
        let mut monitor = monitor();
        assert!(monitor.on_reply(Session(7), 2, at(450), AGE_MAX).is_some());
        for (session, ping_seq, ms) in [
            (7, 2, 460),
            (7, 1, 460),
            (7, 4, 460),
            (6, 3, 460),
            (7, 3, 1000),
        ] {
            let accepted = monitor.on_reply(Session(session), ping_seq, at(ms), AGE_MAX);
            assert_eq!(accepted, None, "{session} {ping_seq} {ms}");
        }
        assert_eq!(monitor.as_of, Some(at(200)));
        assert!(monitor.on_reply(Session(7), 3, at(500), AGE_MAX).is_some());
    }

    #[test]
    fn a_new_link_forgets_the_pings_of_the_old_one() {
        let mut monitor = monitor();
        monitor.on_link_up(Session(8), at(410));
        assert_eq!(monitor.on_reply(Session(8), 3, at(450), AGE_MAX), None);
        assert_eq!(monitor.on_reply(Session(7), 3, at(450), AGE_MAX), None);
    }
}

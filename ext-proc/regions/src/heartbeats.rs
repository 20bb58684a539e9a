//! Heartbeats of one peer: which answers to believe, how old they are, and the round trip.
//!
//! An answer is believed when it was asked for on the link that is up now, is newer than the last one believed, and was
//! not asked for too long ago. So one that is late, out of order, repeated, or made up never counts; and what is said is
//! never younger than it looks, because its age starts when it was *asked* for.

use core::time::Duration;
use std::collections::VecDeque;

use super::message::Session;
use isotherm_router::Time;

/// Pings whose answers may still come.
const ASKED_MAX: usize = 16;
/// Weight of a new round trip in the smoothed one, as in TCP: one part in this many.
const SMOOTHING: u32 = 8;

/// What is heard from one peer.
#[derive(Debug, Default)]
pub(super) struct HeartbeatMonitor {
    session: Option<(Session, Time)>,
    pending: VecDeque<(u64, Time)>,
    newest_reply: u64,
    as_of: Option<Time>,
    round_trip: Option<Duration>,
}

impl HeartbeatMonitor {
    /// The link is up; what was asked on an earlier one will not be answered.
    pub(super) fn on_link_up(&mut self, session: Session, now: Time) {
        self.on_link_down();
        self.session = Some((session, now));
    }

    /// The link is down.
    pub(super) fn on_link_down(&mut self) {
        self.session = None;
        self.pending.clear();
    }

    /// The link that is up.
    pub(super) fn session(&self) -> Option<Session> {
        self.session.map(|(session, _)| session)
    }

    /// Whether the link has been up for this long.
    pub(super) fn is_up_for(&self, now: Time, at_least: Duration) -> bool {
        self.session
            .is_some_and(|(_, since)| now.since(since) >= at_least)
    }

    /// A ping goes out.
    pub(super) fn on_ping_sent(&mut self, seq: u64, now: Time) {
        if self.pending.len() == ASKED_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((seq, now));
    }

    /// An answer came in: when it was asked for, if it is to be believed.
    pub(super) fn on_reply(
        &mut self,
        session: Session,
        answers: u64,
        now: Time,
        age_max: Duration,
    ) -> Option<Time> {
        if self.session() != Some(session) || answers <= self.newest_reply {
            return None;
        }
        let &(_, asked) = self.pending.iter().find(|(seq, _)| *seq == answers)?;
        let age = now.since(asked);
        if age >= age_max {
            return None;
        }
        self.pending.retain(|(seq, _)| *seq > answers);
        self.newest_reply = answers;
        self.as_of = Some(asked);
        self.round_trip = Some(self.round_trip.map_or(age, |smoothed| {
            (smoothed * (SMOOTHING - 1) + age) / SMOOTHING
        }));
        Some(asked)
    }

    /// The newest ping that was answered.
    pub(super) fn newest_reply(&self) -> u64 {
        self.newest_reply
    }

    /// When the newest answer that was believed had been asked for.
    pub(super) fn as_of(&self) -> Option<Time> {
        self.as_of
    }

    /// The round trip, smoothed.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_millis(600);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn pulse() -> HeartbeatMonitor {
        let mut pulse = HeartbeatMonitor::default();
        pulse.on_link_up(Session(7), at(0));
        for (seq, ms) in [(1, 0), (2, 200), (3, 400)] {
            pulse.on_ping_sent(seq, at(ms));
        }
        pulse
    }

    #[test]
    fn an_answer_is_as_old_as_its_question() {
        let mut pulse = pulse();
        assert_eq!(
            pulse.on_reply(Session(7), 2, at(450), AGE_MAX),
            Some(at(200))
        );
        assert_eq!(pulse.as_of(), Some(at(200)));
        assert_eq!(pulse.round_trip(), Some(Duration::from_millis(250)));
    }

    #[test]
    fn late_repeated_reordered_and_foreign_answers_do_not_count() {
        let mut pulse = pulse();
        assert!(pulse.on_reply(Session(7), 2, at(450), AGE_MAX).is_some());
        for (session, answers, ms) in [
            (7, 2, 460),
            (7, 1, 460),
            (7, 4, 460),
            (6, 3, 460),
            (7, 3, 1000),
        ] {
            let told = pulse.on_reply(Session(session), answers, at(ms), AGE_MAX);
            assert_eq!(told, None, "{session} {answers} {ms}");
        }
        assert_eq!(pulse.as_of(), Some(at(200)));
        assert!(pulse.on_reply(Session(7), 3, at(500), AGE_MAX).is_some());
    }

    #[test]
    fn a_new_link_forgets_what_was_asked_on_the_old_one() {
        let mut pulse = pulse();
        pulse.on_link_up(Session(8), at(410));
        assert_eq!(pulse.on_reply(Session(8), 3, at(450), AGE_MAX), None);
        assert_eq!(pulse.on_reply(Session(7), 3, at(450), AGE_MAX), None);
    }
}

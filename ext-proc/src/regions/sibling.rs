//! A sibling, as heard on the link that this service dials.
//!
//! Siblings ping each other as regions do. Each reports its own queue and its own Envoys only, since two services that repeat
//! each other's reports would keep them alive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{Advertisement, Heartbeat, Ping, RecordVersion, Session};
use isotherm_router::{PeerReport, Time};

/// Limit of pings without a reply.
const PENDING_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Sibling {
    session: Option<Session>,
    /// Whether no ping was sent on this link yet.
    is_new: bool,
    /// Pings without a reply, oldest first.
    sent: VecDeque<(u64, Time)>,
    report: Option<SiblingReport>,
}

/// Last heartbeat of a sibling.
#[derive(Debug)]
struct SiblingReport {
    sent: Time,
    received: Time,
    advertisement: Advertisement,
    pools: Vec<(Arc<str>, PeerReport)>,
}

impl Sibling {
    pub(super) fn on_link_up(&mut self, session: Session) {
        self.session = Some(session);
        self.is_new = true;
        self.sent.clear();
    }

    /// Handles the loss of the link. The last heartbeat stays valid until it is too old, since a broken link is redialled at once.
    pub(super) fn on_link_down(&mut self) {
        self.session = None;
        self.sent.clear();
    }

    /// Whether `session` is the link that is up.
    pub(super) fn is_current(&self, session: Session) -> bool {
        self.session == Some(session)
    }

    /// Returns the next ping; `None` while the link is down.
    ///
    /// The first ping on a link asks for the sibling's record even if its version is the same, since its contents may differ.
    pub(super) fn next_ping(
        &mut self,
        now: Time,
        seq: u64,
        version: RecordVersion,
        advertisement: &Advertisement,
    ) -> Option<Ping> {
        let session = self.session?;
        let first = std::mem::take(&mut self.is_new);
        if self.sent.len() >= PENDING_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((seq, now));
        Some(Ping {
            session,
            seq,
            record_version: if first {
                RecordVersion::default()
            } else {
                version
            },
            advertisement: advertisement.clone(),
        })
    }

    /// Handles a heartbeat. Returns whether it is accepted: late, repeated and foreign ones are not.
    pub(super) fn on_heartbeat(&mut self, now: Time, heartbeat: Heartbeat) -> bool {
        let answers = heartbeat.ping_seq;
        let open = self.sent.iter().position(|(seq, _)| *seq == answers);
        let Some(open) = open.filter(|_| Some(heartbeat.session) == self.session) else {
            return false;
        };
        // Replies to earlier pings count as late from now on.
        let Some((_, sent)) = self.sent.drain(..=open).next_back() else {
            return false;
        };
        self.report = Some(SiblingReport {
            sent,
            received: now,
            advertisement: heartbeat.advertisement,
            pools: heartbeat.pools,
        });
        true
    }

    fn fresh_report(&self, now: Time, silence_max: Duration) -> Option<&SiblingReport> {
        let report = self.report.as_ref();
        report.filter(|report| now.since(report.received) <= silence_max)
    }

    pub(super) fn reports(&self, now: Time, silence_max: Duration) -> &[(Arc<str>, PeerReport)] {
        let report = self.fresh_report(now, silence_max);
        report.map_or(&[], |report| &report.pools)
    }

    /// Returns the sibling's advertisement; `None` if its last heartbeat is too old.
    pub(super) fn advertisement(&self, now: Time, silence_max: Duration) -> Option<&Advertisement> {
        let report = self.fresh_report(now, silence_max);
        report.map(|report| &report.advertisement)
    }

    /// Returns the round trip and the age of the last heartbeat.
    pub(super) fn timing(&self, now: Time) -> Option<(Duration, Duration)> {
        let report = self.report.as_ref()?;
        Some((report.received.since(report.sent), now.since(report.sent)))
    }
}

/// Adds the queues of siblings to this service's reports. The services share the replicas, which count once.
pub(super) fn add_queues<'a>(
    own: &mut [(Arc<str>, PeerReport)],
    siblings: impl Iterator<Item = &'a (Arc<str>, PeerReport)>,
) {
    for (model, report) in siblings {
        let pool = own.iter_mut().find(|(own, _)| own == model);
        if let Some((_, sum)) = pool {
            sum.queue = sum.queue.saturating_add(report.queue);
            sum.drain_per_s += report.drain_per_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_millis(600);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn answer(session: u64, answers: u64, queue: u32) -> Heartbeat {
        let report = PeerReport {
            queue,
            drain_per_s: 1.5,
            ..PeerReport::default()
        };
        Heartbeat {
            session: Session(session),
            ping_seq: answers,
            version: "test".into(),
            advertisement: Advertisement::default(),
            pools: vec![("m".into(), report)],
            views: Vec::new(),
        }
    }

    #[test]
    fn only_the_newest_heartbeat_of_this_link_counts_and_it_ages() {
        let mut sibling = Sibling::default();
        let advertisement = Advertisement::default();
        let has = RecordVersion {
            replicas: 3,
            ..RecordVersion::default()
        };
        assert!(sibling.next_ping(at(0), 1, has, &advertisement).is_none());
        sibling.on_link_up(Session(7));
        for seq in 2..=4 {
            let ping = sibling
                .next_ping(at(seq * 100), seq, has, &advertisement)
                .unwrap();
            assert_eq!((ping.session, ping.seq), (Session(7), seq));
            assert_eq!(
                ping.record_version == has,
                seq != 2,
                "the first ping asks for everything"
            );
        }
        assert!(
            !sibling.on_heartbeat(at(500), answer(6, 3, 9)),
            "another link"
        );
        assert!(
            !sibling.on_heartbeat(at(500), answer(7, 5, 9)),
            "no such ping"
        );
        assert!(sibling.on_heartbeat(at(500), answer(7, 3, 2)));
        assert!(!sibling.on_heartbeat(at(501), answer(7, 3, 9)), "repeated");
        assert!(!sibling.on_heartbeat(at(501), answer(7, 2, 9)), "late");
        let queue =
            |sibling: &Sibling, now| sibling.reports(now, SILENCE).first().map(|r| r.1.queue);
        assert_eq!(queue(&sibling, at(1_100)), Some(2));
        assert_eq!(queue(&sibling, at(1_101)), None);
        let (round_trip, age) = sibling.timing(at(510)).unwrap();
        assert_eq!((round_trip.as_millis(), age.as_millis()), (200, 210));
        sibling.on_link_down();
        assert!(
            !sibling.on_heartbeat(at(600), answer(7, 4, 9)),
            "the link is down"
        );
    }

    #[test]
    fn queues_add_up_and_replicas_do_not() {
        let report = PeerReport {
            available: 1,
            replicas: 3,
            free_capacity: 4,
            queue: 5,
            drain_per_s: 2.0,
            ..PeerReport::default()
        };
        let mut own = vec![(Arc::from("m"), report), (Arc::from("n"), report)];
        let others = [answer(1, 1, 10).pools, answer(1, 1, 20).pools];
        add_queues(&mut own, others.iter().flatten());
        assert_eq!((own[0].1.queue, own[0].1.drain_per_s), (35, 5.0));
        assert_eq!((own[0].1.replicas, own[0].1.free_capacity), (3, 4));
        assert_eq!(own[1].1, report);
    }
}

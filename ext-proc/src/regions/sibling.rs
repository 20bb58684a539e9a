//! Another service of this region, as heard on the link that this service dials.
//!
//! Siblings ask each other as regions do, and only what answers the newest question counts. Each says of its own queue and
//! its own Envoys, never of what it has heard from others: else two services would keep each other's word alive.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{
    Advertisement, Heartbeat, Incarnation, Ping, RecordVersion, RegionName, Session,
};
use isotherm_router::{PeerReport, Time};

/// How many questions may be open; older ones are not waited for any more.
const ASKED_MAX: usize = 64;

/// What is known of a sibling.
#[derive(Debug, Default)]
pub(super) struct Sibling {
    session: Option<Session>,
    /// Nothing was asked on this link yet.
    fresh: bool,
    /// Questions that are open, oldest first.
    asked: VecDeque<(u64, Time)>,
    heard: Option<SiblingReport>,
}

/// What a sibling said last.
#[derive(Debug)]
struct SiblingReport {
    asked: Time,
    came: Time,
    stance: Advertisement,
    pools: Vec<(Arc<str>, PeerReport)>,
}

impl Sibling {
    /// The link to it is up.
    pub(super) fn link_up(&mut self, session: Session) {
        self.session = Some(session);
        self.fresh = true;
        self.asked.clear();
    }

    /// The link to it is down. What it said holds until it is too old: a link that breaks comes back at once.
    pub(super) fn link_down(&mut self) {
        self.session = None;
        self.asked.clear();
    }

    /// Whether that is the link that is up.
    pub(super) fn is_of(&self, session: Session) -> bool {
        self.session == Some(session)
    }

    /// The next question, with a number that grows with each; `None` while the link is down.
    ///
    /// `has` is what this service has of the region's record; the first question on a link says that it has nothing, so
    /// that the other's record comes even where only its contents differ.
    pub(super) fn ask(
        &mut self,
        now: Time,
        seq: u64,
        has: RecordVersion,
        stance: &Advertisement,
    ) -> Option<Ping> {
        let session = self.session?;
        let first = std::mem::take(&mut self.fresh);
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((seq, now));
        Some(Ping {
            session,
            seq,
            record_version: if first { RecordVersion::default() } else { has },
            advertisement: stance.clone(),
        })
    }

    /// It answered. Says whether that counts: what is late, repeated or of another link does not.
    pub(super) fn hear(&mut self, now: Time, heartbeat: Heartbeat) -> bool {
        let answers = heartbeat.ping_seq;
        let open = self.asked.iter().position(|(seq, _)| *seq == answers);
        let Some(open) = open.filter(|_| Some(heartbeat.session) == self.session) else {
            return false;
        };
        // The answers that lie before this one will come too late.
        let Some((_, asked)) = self.asked.drain(..=open).next_back() else {
            return false;
        };
        self.heard = Some(SiblingReport {
            asked,
            came: now,
            stance: heartbeat.advertisement,
            pools: heartbeat.pools,
        });
        true
    }

    fn heard(&self, now: Time, silence_max: Duration) -> Option<&SiblingReport> {
        let heard = self.heard.as_ref();
        heard.filter(|heard| now.since(heard.came) <= silence_max)
    }

    /// What it says of its pools.
    pub(super) fn reports(&self, now: Time, silence_max: Duration) -> &[(Arc<str>, PeerReport)] {
        let heard = self.heard(now, silence_max);
        heard.map_or(&[], |heard| &heard.pools)
    }

    /// Whether an Envoy is connected to it.
    pub(super) fn gateway(&self, now: Time, silence_max: Duration) -> bool {
        let heard = self.heard(now, silence_max);
        heard.is_some_and(|heard| heard.stance.has_gateway)
    }

    /// Which start of a service it is.
    pub(super) fn incarnation(&self, now: Time, silence_max: Duration) -> Option<Incarnation> {
        self.heard(now, silence_max)
            .map(|heard| heard.stance.incarnation)
    }

    /// Whose replicas it holds.
    pub(super) fn holds(&self, now: Time, silence_max: Duration) -> Option<&BTreeSet<RegionName>> {
        self.heard(now, silence_max)
            .map(|heard| &heard.stance.adopted)
    }

    /// Round trip, and the age of what it said last.
    pub(super) fn timing(&self, now: Time) -> Option<(Duration, Duration)> {
        let heard = self.heard.as_ref()?;
        Some((heard.came.since(heard.asked), now.since(heard.asked)))
    }
}

/// Adds what siblings say of their queues to what this service says of its pools. They share the replicas, so those
/// count once.
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
    fn only_the_newest_answer_on_this_link_counts_and_it_ages() {
        let mut sibling = Sibling::default();
        let stance = Advertisement::default();
        let has = RecordVersion {
            replicas: 3,
            ..RecordVersion::default()
        };
        assert!(sibling.ask(at(0), 1, has, &stance).is_none());
        sibling.link_up(Session(7));
        for seq in 2..=4 {
            let ping = sibling.ask(at(seq * 100), seq, has, &stance).unwrap();
            assert_eq!((ping.session, ping.seq), (Session(7), seq));
            assert_eq!(
                ping.record_version == has,
                seq != 2,
                "the first asks for everything"
            );
        }
        assert!(!sibling.hear(at(500), answer(6, 3, 9)), "another link");
        assert!(!sibling.hear(at(500), answer(7, 5, 9)), "never asked");
        assert!(sibling.hear(at(500), answer(7, 3, 2)));
        assert!(!sibling.hear(at(501), answer(7, 3, 9)), "again");
        assert!(!sibling.hear(at(501), answer(7, 2, 9)), "late");
        let queue =
            |sibling: &Sibling, now| sibling.reports(now, SILENCE).first().map(|r| r.1.queue);
        assert_eq!(queue(&sibling, at(1_100)), Some(2));
        assert_eq!(queue(&sibling, at(1_101)), None);
        let (round_trip, age) = sibling.timing(at(510)).unwrap();
        assert_eq!((round_trip.as_millis(), age.as_millis()), (200, 210));
        sibling.link_down();
        assert!(!sibling.hear(at(600), answer(7, 4, 9)), "the link is down");
    }

    #[test]
    fn queues_add_up_and_replicas_do_not() {
        let report = PeerReport {
            available: 1,
            replicas: 3,
            free_capacity: 4,
            queue: 5,
            drain_per_s: 2.0,
        };
        let mut own = vec![(Arc::from("m"), report), (Arc::from("n"), report)];
        let others = [answer(1, 1, 10).pools, answer(1, 1, 20).pools];
        add_queues(&mut own, others.iter().flatten());
        assert_eq!((own[0].1.queue, own[0].1.drain_per_s), (35, 5.0));
        assert_eq!((own[0].1.replicas, own[0].1.free_capacity), (3, 4));
        assert_eq!(own[1].1, report);
    }
}

//! A sibling, as its heartbeats show it.
//!
//! Siblings ping each other as regions do. Each reports its own queue and its own Envoys only, since two services that repeat
//! each other's reports would keep them alive.

use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{Heartbeat, HeartbeatMonitor, Ping};
use isotherm_router::{PeerReport, Time};

#[derive(Debug, Default)]
pub(super) struct Sibling {
    pub(super) monitor: HeartbeatMonitor,
    /// Arrival and content of the last heartbeat, which outlives a link that is down: the client soon connects again.
    last: Option<(Time, Heartbeat)>,
}

impl Sibling {
    /// Handles a heartbeat. Late, repeated and foreign ones are ignored.
    pub(super) fn on_heartbeat(&mut self, now: Time, ping: Ping, heartbeat: Heartbeat) {
        let age_max = Duration::MAX;
        if self.monitor.on_reply(ping, &heartbeat, now, age_max) {
            self.last = Some((now, heartbeat));
        }
    }

    /// The last heartbeat, unless it is older than `silence_max`.
    fn fresh_heartbeat(&self, now: Time, silence_max: Duration) -> Option<&Heartbeat> {
        let (received, heartbeat) = self.last.as_ref()?;
        (now.since(*received) <= silence_max).then_some(heartbeat)
    }

    pub(super) fn reports(&self, now: Time, silence_max: Duration) -> &[(Arc<str>, PeerReport)] {
        let heartbeat = self.fresh_heartbeat(now, silence_max);
        heartbeat.map_or(&[], |heartbeat| &heartbeat.pools)
    }

    /// Whether the sibling is heard and has an Envoy.
    pub(super) fn has_gateway(&self, now: Time, silence_max: Duration) -> bool {
        let heartbeat = self.fresh_heartbeat(now, silence_max);
        heartbeat.is_some_and(|heartbeat| heartbeat.has_gateway)
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

    fn answer(nonce: u64, queue: u32) -> Heartbeat {
        let report = PeerReport {
            queue,
            drain_per_s: 1.5,
            ..PeerReport::default()
        };
        Heartbeat {
            nonce,
            version: "test".into(),
            has_gateway: true,
            pools: vec![("m".into(), report)],
        }
    }

    #[test]
    fn a_heartbeat_ages_and_a_late_one_is_ignored() {
        let mut sibling = Sibling::default();
        let ping = |nonce, sent_ms| Ping {
            nonce,
            sent: at(sent_ms),
        };
        sibling.on_heartbeat(at(500), ping(2, 300), answer(2, 3));
        sibling.on_heartbeat(at(501), ping(1, 200), answer(1, 9));
        let queue =
            |sibling: &Sibling, now| sibling.reports(now, SILENCE).first().map(|r| r.1.queue);
        assert_eq!(queue(&sibling, at(1_100)), Some(3));
        assert!(sibling.has_gateway(at(1_100), SILENCE));
        assert_eq!(queue(&sibling, at(1_101)), None);
        assert!(!sibling.has_gateway(at(1_101), SILENCE));
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
        let others = [answer(1, 10).pools, answer(1, 20).pools];
        add_queues(&mut own, others.iter().flatten());
        assert_eq!((own[0].1.queue, own[0].1.drain_per_s), (35, 5.0));
        assert_eq!((own[0].1.replicas, own[0].1.free_capacity), (3, 4));
        assert_eq!(own[1].1, report);
    }
}

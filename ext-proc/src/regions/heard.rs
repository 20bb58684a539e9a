//! What a service hears of another one, a peer or a sibling: the last heartbeat, its age, and the round trip.
//!
//! The age of a heartbeat starts at its *ping*, so that its content is never taken to be too young. Each sibling reports its own
//! queue and its own Envoys only, since two services that repeat each other's reports would keep them alive.

use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{Heartbeat, Ping};
use isotherm_router::{PeerReport, Time};

/// Divisor of a new round trip's weight in the smoothed one, as in TCP.
const SMOOTHING: u32 = 8;

/// What is heard of one service. It outlives a connection that breaks: the client soon connects again.
#[derive(Debug, Default)]
pub(super) struct HeardService {
    /// Time of the newest ping with an accepted reply.
    pub(super) as_of: Option<Time>,
    /// Smoothed round trip.
    pub(super) round_trip: Option<Duration>,
    /// The reply to that ping.
    pub(super) heartbeat: Heartbeat,
}

impl HeardService {
    /// Handles the reply to a ping. Returns whether it is accepted; a late, a repeated and a foreign one are not.
    pub(super) fn on_heartbeat(
        &mut self,
        now: Time,
        ping: Ping,
        heartbeat: Heartbeat,
        silence_max: Duration,
    ) -> bool {
        let age = now.since(ping.sent);
        let is_newest = self.as_of.is_none_or(|as_of| ping.sent > as_of);
        if heartbeat.nonce != ping.nonce || !is_newest || age >= silence_max {
            return false;
        }
        self.as_of = Some(ping.sent);
        self.round_trip = Some(self.round_trip.map_or(age, |smoothed| {
            (smoothed * (SMOOTHING - 1) + age) / SMOOTHING
        }));
        self.heartbeat = heartbeat;
        true
    }

    /// The last heartbeat, unless it is too old.
    pub(super) fn fresh(&self, now: Time, silence_max: Duration) -> Option<&Heartbeat> {
        let is_fresh = now.since(self.as_of?) < silence_max;
        is_fresh.then_some(&self.heartbeat)
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

    const SILENCE_MAX: Duration = Duration::from_millis(600);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// Hands the reply to ping 7 to a service: the ping was sent and the reply arrived at these times.
    fn is_accepted(service: &mut HeardService, nonce: u64, sent_ms: u64, now_ms: u64) -> bool {
        let heartbeat = Heartbeat {
            nonce,
            ..Heartbeat::default()
        };
        let ping = Ping {
            nonce: 7,
            sent: at(sent_ms),
        };
        service.on_heartbeat(at(now_ms), ping, heartbeat, SILENCE_MAX)
    }

    #[test]
    fn a_heartbeat_is_as_old_as_its_ping() {
        let mut service = HeardService::default();
        assert!(service.fresh(at(0), SILENCE_MAX).is_none());
        assert!(is_accepted(&mut service, 7, 200, 450));
        assert_eq!(service.as_of, Some(at(200)));
        assert_eq!(service.round_trip, Some(Duration::from_millis(250)));
        assert!(service.fresh(at(799), SILENCE_MAX).is_some());
        assert!(service.fresh(at(800), SILENCE_MAX).is_none());
    }

    #[test]
    fn late_repeated_reordered_and_foreign_heartbeats_are_rejected() {
        let mut service = HeardService::default();
        assert!(is_accepted(&mut service, 7, 200, 450));
        for (nonce, sent_ms, now_ms) in
            [(7, 200, 460), (7, 100, 460), (8, 400, 460), (7, 400, 1000)]
        {
            assert!(
                !is_accepted(&mut service, nonce, sent_ms, now_ms),
                "{nonce} {sent_ms} {now_ms}"
            );
        }
        assert!(is_accepted(&mut service, 7, 400, 500));
    }

    #[test]
    fn queues_add_up_and_replicas_do_not() {
        let report = |queue| PeerReport {
            replicas: 3,
            free_capacity: 4,
            queue,
            drain_per_s: 2.0,
            ..PeerReport::default()
        };
        let mut own = vec![(Arc::from("m"), report(5)), (Arc::from("n"), report(5))];
        let others = [("m".into(), report(10)), ("m".into(), report(20))];
        add_queues(&mut own, others.iter());
        assert_eq!((own[0].1.queue, own[0].1.drain_per_s), (35, 6.0));
        assert_eq!((own[0].1.replicas, own[0].1.free_capacity), (3, 4));
        assert_eq!(own[1].1, report(5));
    }
}

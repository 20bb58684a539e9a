//! The last heartbeat of another service, a peer or a sibling, with its age and the round trip.
//!
//! A report is as old as its *ping*, so that the router never takes it to be too young. A service is heard for a while from the
//! arrival of its last heartbeat on. Each sibling reports its own queue and its own Envoys only, since two services that repeat
//! each other's reports would keep them alive.

use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::Heartbeat;
use isotherm_router::{PeerReport, Time};

/// Divisor of a new round trip's weight in the smoothed one, as in TCP.
const SMOOTHING: u32 = 8;

/// The last heartbeat of one service. It outlives a connection that breaks: the client soon connects again.
#[derive(Debug, Default)]
pub(super) struct HeardService {
    /// Time of the newest ping with a response.
    pub(super) as_of: Option<Time>,
    /// Arrival of that response.
    received: Time,
    /// Smoothed round trip.
    pub(super) round_trip: Option<Duration>,
    /// The response to that ping.
    pub(super) heartbeat: Heartbeat,
}

impl HeardService {
    /// Handles the response to a ping that was sent at `sent`. Returns whether it counts: a late one does not, nor one that a newer
    /// response has overtaken.
    pub(super) fn on_heartbeat(
        &mut self,
        now: Time,
        sent: Time,
        heartbeat: Heartbeat,
        silence_max: Duration,
    ) -> bool {
        let age = now.since(sent);
        if age >= silence_max || self.as_of.is_some_and(|as_of| sent <= as_of) {
            return false;
        }
        self.as_of = Some(sent);
        self.received = now;
        self.round_trip = Some(self.round_trip.map_or(age, |smoothed| {
            (smoothed * (SMOOTHING - 1) + age) / SMOOTHING
        }));
        self.heartbeat = heartbeat;
        true
    }

    /// The last heartbeat while the service is heard.
    pub(super) fn fresh(&self, now: Time, silence_max: Duration) -> Option<&Heartbeat> {
        let is_heard = self.as_of.is_some() && now.since(self.received) < silence_max;
        is_heard.then_some(&self.heartbeat)
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

    /// Hands a heartbeat to a service: the ping was sent and the response arrived at these times.
    fn is_accepted(service: &mut HeardService, sent_ms: u64, now_ms: u64) -> bool {
        let heartbeat = Heartbeat::default();
        service.on_heartbeat(at(now_ms), at(sent_ms), heartbeat, SILENCE_MAX)
    }

    #[test]
    fn a_report_is_as_old_as_its_ping_and_a_service_is_heard_from_the_response_on() {
        let mut service = HeardService::default();
        assert!(service.fresh(at(0), SILENCE_MAX).is_none());
        assert!(is_accepted(&mut service, 200, 450));
        assert_eq!(service.as_of, Some(at(200)));
        assert_eq!(service.round_trip, Some(Duration::from_millis(250)));
        assert!(service.fresh(at(1_049), SILENCE_MAX).is_some());
        assert!(service.fresh(at(1_050), SILENCE_MAX).is_none());
    }

    #[test]
    fn a_late_response_and_one_that_another_has_overtaken_change_nothing() {
        let mut service = HeardService::default();
        assert!(is_accepted(&mut service, 200, 450));
        for (sent_ms, now_ms) in [(100, 460), (200, 460), (400, 1_000)] {
            assert!(!is_accepted(&mut service, sent_ms, now_ms), "{sent_ms}");
        }
        assert_eq!(service.as_of, Some(at(200)));
        assert!(is_accepted(&mut service, 400, 500));
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

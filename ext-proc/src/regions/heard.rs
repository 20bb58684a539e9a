//! The last heartbeat of another service, a peer or a sibling, with its age and the round trip.
//!
//! The age of a heartbeat starts at its *ping*, so that its content is never taken to be too young. Each sibling reports its own
//! queue and its own Envoys only, since two services that repeat each other's reports would keep them alive.

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
    /// Smoothed round trip.
    pub(super) round_trip: Option<Duration>,
    /// The response to that ping.
    pub(super) heartbeat: Heartbeat,
}

impl HeardService {
    /// Handles the response to a ping that was sent at `sent`. Returns whether it is newer than the last one: several pings may be
    /// under way.
    pub(super) fn on_heartbeat(&mut self, now: Time, sent: Time, heartbeat: Heartbeat) -> bool {
        if self.as_of.is_some_and(|as_of| sent <= as_of) {
            return false;
        }
        let age = now.since(sent);
        self.as_of = Some(sent);
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

    #[test]
    fn a_heartbeat_is_as_old_as_its_ping() {
        let mut service = HeardService::default();
        assert!(service.fresh(at(0), SILENCE_MAX).is_none());
        assert!(service.on_heartbeat(at(450), at(200), Heartbeat::default()));
        assert_eq!(service.as_of, Some(at(200)));
        assert_eq!(service.round_trip, Some(Duration::from_millis(250)));
        assert!(service.fresh(at(799), SILENCE_MAX).is_some());
        assert!(service.fresh(at(800), SILENCE_MAX).is_none());
    }

    #[test]
    fn a_response_that_another_has_overtaken_changes_nothing() {
        let mut service = HeardService::default();
        assert!(service.on_heartbeat(at(450), at(200), Heartbeat::default()));
        assert!(!service.on_heartbeat(at(460), at(100), Heartbeat::default()));
        assert_eq!(service.as_of, Some(at(200)));
        assert!(service.on_heartbeat(at(500), at(400), Heartbeat::default()));
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

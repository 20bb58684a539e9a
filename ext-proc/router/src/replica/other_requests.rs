//! Requests that other services have at a replica: siblings, and routers that this service does not know.
//!
//! A sibling shares each dispatch and no end. The gauges of a probe count the requests of all services: those beyond this
//! service's own requests are others'. Both are late, in opposite directions: a gauge shows a request up to
//! [`GAUGE_LAG_MAX`] after its dispatch, and may still count one that has ended. So the requests that siblings shared shortly before
//! a probe count at least, and a gauge may include own requests that ended lately.
//!
//! A gauge may also stand at an earlier batch for many probes while an engine idles. So gauges count only while siblings share
//! requests.
//!
//! Without a gauge, a shared request counts for the mean time that a request occupies a replica.

use core::time::Duration;

use super::pushes::Pushes;
use super::since_probe::GAUGE_LAG_MAX;
use crate::constant::constants;
use crate::{Load, Time};

constants! {
    /// Time after a shared request in which gauges show requests of siblings.
    SIBLINGS_ACTIVE_FOR: Duration = Duration::from_secs(60);
}

/// Requests of other services at one replica, by estimate.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherRequests {
    count: u32,
    /// Time that a request occupies the replica.
    service: Duration,
    /// Requests that siblings shared.
    shared: Pushes,
    /// Time of the last shared request.
    last_shared: Option<Time>,
    /// Requests beyond this service's own that the gauges of the last probe showed, with the time when it was sent.
    shown: Option<(u32, Time)>,
    /// This service's requests that ended since the last probe, and between the last two.
    ended: [u32; 2],
}

impl OtherRequests {
    /// Number of the requests.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Registers a request that a sibling dispatched. A request occupies the replica for about `service`.
    pub(crate) fn on_push(&mut self, service: Duration, now: Time) {
        self.service = service;
        self.shared.push(now);
        self.last_shared = Some(now);
        self.count = self.count.saturating_add(1);
    }

    /// Whether a sibling dispatched a request at or after a time.
    pub(crate) fn has_shared_since(&self, time: Time) -> bool {
        self.last_shared.is_some_and(|last| last >= time)
    }

    /// Registers that a request of this service ended.
    pub(crate) const fn own_ended(&mut self) {
        let [since, before] = self.ended;
        self.ended = [since.saturating_add(1), before];
    }

    /// Applies a probe that was sent at `sent`, when the replica had at most `own` of the present requests of this service.
    /// A request occupies the replica for about `service`.
    pub(crate) fn on_probe(
        &mut self,
        load: &Load,
        sent: Time,
        own: u32,
        service: Duration,
        now: Time,
    ) {
        let [since, before] = self.ended;
        self.ended = [0, since];
        let own = own.saturating_add(since).saturating_add(before);
        self.shown = load.running.map(|running| {
            let all = running.saturating_add(load.pending);
            (all.saturating_sub(own), sent)
        });
        self.service = service;
        self.refresh(now);
    }

    /// Applies a probe that showed no gauges.
    pub(crate) fn probed_without_metrics(&mut self, service: Duration, now: Time) {
        self.shown = None;
        self.service = service;
        self.refresh(now);
    }

    /// Whether the number falls with time alone, without an event.
    pub(crate) const fn is_decaying(&self) -> bool {
        self.count > 0 && self.shown.is_none()
    }

    /// Computes the number anew, and forgets shared requests that are too old to count.
    pub(crate) fn refresh(&mut self, now: Time) {
        let (shared, service) = (&mut self.shared, self.service);
        shared.forget_before(now.before(service.max(GAUGE_LAG_MAX.get())));
        let has_siblings = self
            .last_shared
            .is_some_and(|last| now.since(last) < SIBLINGS_ACTIVE_FOR.get());
        self.count = match self.shown {
            Some((shown, sent)) => {
                let since = shared.since(sent);
                let fresh = shared.since(sent.before(service.min(GAUGE_LAG_MAX.get()))) - since;
                let shown = if has_siblings { shown } else { 0 };
                shown.max(fresh).saturating_add(since)
            }
            None => shared.since(now.before(service)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Duration = Duration::from_secs(2);

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    fn load(running: Option<u32>, pending: u32) -> Load {
        Load {
            pending,
            running,
            ..Load::default()
        }
    }

    #[test]
    fn a_gauge_beyond_the_own_requests_shows_those_of_siblings() {
        let mut others = OtherRequests::default();
        others.on_push(SERVICE, ms(0));
        others.on_probe(&load(Some(7), 2), ms(1_000), 4, SERVICE, ms(1_001));
        assert_eq!(others.count(), 5);
        others.on_probe(&load(Some(3), 0), ms(1_100), 4, SERVICE, ms(1_101));
        assert_eq!(others.count(), 0);
    }

    #[test]
    fn without_siblings_a_gauge_that_stands_at_the_last_batch_shows_none_of_others() {
        let mut others = OtherRequests::default();
        for _ in 0..24 {
            others.own_ended();
        }
        for at in 1..100 {
            others.on_probe(&load(Some(24), 0), ms(100 * at), 0, SERVICE, ms(100 * at));
            assert_eq!(others.count(), 0);
        }
    }

    #[test]
    fn an_own_request_that_has_just_ended_is_not_taken_for_one_of_others() {
        let mut others = OtherRequests::default();
        others.on_push(SERVICE, ms(0));
        others.own_ended();
        for at in [1_100, 1_200] {
            others.on_probe(&load(Some(1), 0), ms(at), 0, SERVICE, ms(at));
            assert_eq!(others.count(), 0);
        }
        others.on_probe(&load(Some(1), 0), ms(1_300), 0, SERVICE, ms(1_300));
        assert_eq!(others.count(), 1);
    }

    #[test]
    fn a_shared_request_counts_until_the_gauge_can_show_it_and_then_as_the_gauge_says() {
        let mut others = OtherRequests::default();
        others.on_push(SERVICE, ms(90));
        others.on_probe(&load(Some(0), 0), ms(100), 0, SERVICE, ms(101));
        assert_eq!(others.count(), 1, "the gauge lags");
        others.on_push(SERVICE, ms(150));
        assert_eq!(others.count(), 2);
        others.on_probe(&load(Some(1), 0), ms(500), 0, SERVICE, ms(501));
        assert_eq!(others.count(), 1, "one has ended");
    }

    #[test]
    fn without_a_gauge_a_shared_request_counts_for_the_time_of_a_request() {
        let mut others = OtherRequests::default();
        others.on_push(SERVICE, ms(0));
        others.on_push(SERVICE, ms(1_500));
        others.on_probe(&load(None, 0), ms(1_900), 0, SERVICE, ms(1_900));
        assert_eq!(others.count(), 2);
        others.refresh(ms(2_500));
        assert_eq!(others.count(), 1);
        others.probed_without_metrics(SERVICE, ms(4_000));
        assert_eq!(others.count(), 0);
    }
}

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

use super::ledger::{GAUGE_LAG_MAX, Ledger};
use crate::constant::constants;
use crate::{Load, Time};

constants! {
    /// Time after a shared request in which gauges show requests of siblings.
    SIBLINGS_ACTIVE_FOR: Duration = Duration::from_secs(60);
}

/// Requests of other services at one replica, by estimate.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherRequests {
    count: u32,
    /// Time that a request occupies the replica.
    service: Duration,
    /// Time of the last request that a sibling shared.
    last_shared: Option<Time>,
    /// Requests beyond this service's own that the gauges of the last probe showed, with the time when it was sent.
    shown: Option<(u32, Time)>,
    /// This service's requests that ended since the last probe, and between the last two.
    ended: [u32; 2],
}

impl OtherRequests {
    /// Number of the requests.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Registers a request that a sibling dispatched. A request occupies the replica for about `service`.
    pub(super) const fn on_push(&mut self, service: Duration, now: Time) {
        self.service = service;
        self.last_shared = Some(now);
        self.count = self.count.saturating_add(1);
    }

    /// Whether a sibling dispatched a request at or after a time.
    pub(super) fn has_shared_since(&self, time: Time) -> bool {
        self.last_shared.is_some_and(|last| last >= time)
    }

    /// Registers that a request of this service ended.
    pub(super) const fn own_ended(&mut self) {
        let [since, before] = self.ended;
        self.ended = [since.saturating_add(1), before];
    }

    /// Applies a probe that was sent at `sent`, when the replica had `own` of the present requests of this service: the load that it
    /// showed, if any. A request occupies the replica for about `service`.
    pub(super) fn on_probe(
        &mut self,
        load: Option<&Load>,
        sent: Time,
        own: u32,
        service: Duration,
    ) {
        let [since, before] = self.ended;
        self.ended = [0, since];
        let own = own.saturating_add(since).saturating_add(before);
        self.shown = load.and_then(|load| {
            let all = load.running?.saturating_add(load.pending);
            Some((all.saturating_sub(own), sent))
        });
        self.service = service;
    }

    /// Whether the number falls with time alone, without an event.
    pub(super) const fn is_decaying(&self) -> bool {
        self.count > 0 && self.shown.is_none()
    }

    /// Computes the number anew, and forgets shared requests that are too old to count.
    pub(super) fn refresh(&mut self, ledger: &mut Ledger, now: Time) {
        let service = self.service;
        let has_siblings = self
            .last_shared
            .is_some_and(|last| now.since(last) < SIBLINGS_ACTIVE_FOR.get());
        self.count = match self.shown {
            Some((shown, sent)) => {
                let since = ledger.siblings_since(sent);
                let lag = service.min(GAUGE_LAG_MAX.get());
                let fresh = ledger.siblings_since(sent.before(lag)) - since;
                let shown = if has_siblings { shown } else { 0 };
                shown.max(fresh).saturating_add(since)
            }
            None => ledger.siblings_since(now.before(service)),
        };
        let old = now.before(service.max(GAUGE_LAG_MAX.get()));
        ledger.settle_siblings(self.count, old);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::PushedPrompt;
    use super::*;

    const SERVICE: Duration = Duration::from_secs(2);

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    fn load(running: Option<u32>, pending: u32) -> Option<Load> {
        Some(Load {
            pending,
            running,
            ..Load::default()
        })
    }

    /// The estimate and its ledger, changed together.
    #[derive(Default)]
    struct Others {
        estimate: OtherRequests,
        ledger: Ledger,
    }

    impl Others {
        fn push(&mut self, now: Time) {
            let prompt = PushedPrompt {
                tokens: 0.0,
                memory_tokens: 0.0,
                is_stream: false,
            };
            self.ledger.push_sibling(prompt, now, now);
            self.estimate.on_push(SERVICE, now);
        }

        /// The number of the others after a probe that showed this load, beside so many requests of this service.
        fn probed(&mut self, load: Option<Load>, own: u32, sent: Time) -> u32 {
            self.ledger.on_probe(0, sent);
            self.estimate.on_probe(load.as_ref(), sent, own, SERVICE);
            self.at(sent)
        }

        fn at(&mut self, now: Time) -> u32 {
            self.estimate.refresh(&mut self.ledger, now);
            self.estimate.count()
        }
    }

    #[test]
    fn a_gauge_beyond_the_own_requests_shows_those_of_siblings() {
        let mut others = Others::default();
        others.push(ms(0));
        assert_eq!(others.probed(load(Some(7), 2), 4, ms(1_000)), 5);
        assert_eq!(others.probed(load(Some(3), 0), 4, ms(1_100)), 0);
    }

    #[test]
    fn without_siblings_a_gauge_that_stands_at_the_last_batch_shows_none_of_others() {
        let mut others = Others::default();
        (0..24).for_each(|_| others.estimate.own_ended());
        for at in 1..100 {
            assert_eq!(others.probed(load(Some(24), 0), 0, ms(100 * at)), 0);
        }
    }

    #[test]
    fn an_own_request_that_has_just_ended_is_not_taken_for_one_of_others() {
        let mut others = Others::default();
        others.push(ms(0));
        others.estimate.own_ended();
        for at in [1_100, 1_200] {
            assert_eq!(others.probed(load(Some(1), 0), 0, ms(at)), 0);
        }
        assert_eq!(others.probed(load(Some(1), 0), 0, ms(1_300)), 1);
    }

    #[test]
    fn a_shared_request_counts_until_the_gauge_can_show_it_and_then_as_the_gauge_says() {
        let mut others = Others::default();
        others.push(ms(90));
        let count = others.probed(load(Some(0), 0), 0, ms(100));
        assert_eq!(count, 1, "the gauge lags");
        others.push(ms(150));
        assert_eq!(others.estimate.count(), 2);
        let count = others.probed(load(Some(1), 0), 0, ms(500));
        assert_eq!(count, 1, "one has ended");
    }

    #[test]
    fn without_a_gauge_a_shared_request_counts_for_the_time_of_a_request() {
        let mut others = Others::default();
        others.push(ms(0));
        others.push(ms(1_500));
        assert_eq!(others.probed(load(None, 0), 0, ms(1_900)), 2);
        assert_eq!(others.at(ms(2_500)), 1);
        assert_eq!(others.probed(None, 0, ms(4_000)), 0);
    }
}

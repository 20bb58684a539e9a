//! Requests that were sent to a replica since its last probe, which the probe says nothing about.
//!
//! A request of this service leaves the count when its response begins. A sibling tells a dispatch and no beginning, so its
//! requests count until a probe that was sent after their message.

use core::time::Duration;

use super::pushes::Pushes;
use crate::Time;
use crate::constant::constants;

constants! {
    /// Longest time until an engine's gauges show a request: a long step, and their lag.
    pub(crate) GAUGE_LAG_MAX: Duration = Duration::from_millis(250);
}

/// Requests sent to one replica since its last probe.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentSinceProbe {
    pushes: Pushes,
    siblings: Pushes,
    /// Send time of the last probe.
    probed: Time,
    /// Requests of this service since then that have begun, or ended before.
    begun: u32,
}

impl SentSinceProbe {
    /// Registers a dispatched request.
    pub(crate) fn on_push(&mut self, now: Time) {
        self.pushes.push(now);
    }

    /// Registers a request that a sibling dispatched.
    pub(crate) fn on_sibling_push(&mut self, now: Time) {
        self.siblings.push(now);
    }

    /// Registers that the response to a request begins, or that the request ended before.
    pub(crate) fn on_begin(&mut self, dispatched_at: Time) {
        self.begun = self
            .begun
            .saturating_add((dispatched_at >= self.probed).into());
    }

    /// Applies a probe that was sent at `sent`.
    pub(crate) fn on_probe(&mut self, sent: Time) {
        self.probed = sent;
        self.begun = 0;
        let settled = sent.before(GAUGE_LAG_MAX.get());
        self.pushes.forget_before(settled);
        self.siblings.forget_before(settled);
    }

    /// Number of the requests without a response.
    pub(crate) fn count(&self) -> u32 {
        let own = self.pushes.since(self.probed).saturating_sub(self.begun);
        own.saturating_add(self.siblings.since(self.probed))
    }

    /// Number of this service's requests that were dispatched at or after a time.
    pub(crate) fn own_since(&self, time: Time) -> u32 {
        self.pushes.since(time)
    }

    /// Whether a sibling sent a request that the last probe does not include.
    pub(crate) fn has_siblings(&self) -> bool {
        self.siblings.since(self.probed) > 0
    }

    /// Whether a probe that was sent at this time may show a sibling's request as pending.
    pub(crate) fn may_show_siblings(&self, sent: Time) -> bool {
        self.siblings.since(sent.before(GAUGE_LAG_MAX.get())) > 0
    }

    /// Time of the last dispatch of this service.
    pub(crate) fn last(&self) -> Option<Time> {
        self.pushes.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn a_request_counts_until_a_probe_that_was_sent_after_it() {
        let mut sent = SentSinceProbe::default();
        sent.on_probe(ms(100));
        sent.on_push(ms(110));
        sent.on_sibling_push(ms(120));
        assert_eq!(sent.count(), 2);
        sent.on_probe(ms(115));
        assert_eq!(sent.count(), 1, "the sibling's");
        assert!(sent.has_siblings());
        sent.on_probe(ms(200));
        assert_eq!(sent.count(), 0);
    }

    #[test]
    fn a_request_counts_until_its_response_begins() {
        let mut sent = SentSinceProbe::default();
        sent.on_push(ms(90));
        sent.on_probe(ms(100));
        sent.on_push(ms(110));
        sent.on_push(ms(120));
        sent.on_begin(ms(90));
        assert_eq!(sent.count(), 2, "the probe includes the one that began");
        sent.on_begin(ms(110));
        assert_eq!(sent.count(), 1);
    }
}

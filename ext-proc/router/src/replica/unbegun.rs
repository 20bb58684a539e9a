//! Requests whose responses have not begun, which show a replica's progress between two probes.
//!
//! A probe every 100 ms is many steps of a fast engine. A response that begins shows at once that the replica has admitted
//! its request. The last probe's pending requests are therefore admitted when the responses to all requests have begun that
//! were dispatched before the probe. That holds only where this service dispatched all of them: more pending requests than
//! these are another router's, and only the next probe tells. The same holds when a sibling dispatched one shortly before.

use super::backlog::BacklogClaim;
use crate::Time;

/// Requests of a replica whose responses have not begun.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnbegunRequests {
    /// Number of requests whose responses have not begun.
    count: u32,
    /// Number of these requests that ask for a stream.
    streamed: u32,
    /// Number of the requests that the last probe may show as pending, with the time when the probe was sent.
    shown: Option<(u32, Time)>,
    /// Streamed answers in a row, to requests that asked for a stream.
    streams: u8,
}

impl UnbegunRequests {
    /// Registers a dispatched request.
    pub(crate) fn on_push(&mut self, claim: &BacklogClaim) {
        self.count = self.count.saturating_add(1);
        self.streamed = self.streamed.saturating_add(claim.is_stream.into());
    }

    /// Applies a probe that was sent at `sent`; `since` requests were dispatched at or after that time. `is_ours` says that no
    /// sibling dispatched one shortly before.
    pub(crate) fn on_probe(&mut self, pending: u32, sent: Time, since: u32, is_ours: bool) {
        let older = self.count.saturating_sub(since);
        let is_explained = is_ours && (1..=older).contains(&pending);
        self.shown = is_explained.then_some((older, sent));
    }

    /// Registers that the response to a request begins, or that it ended before. Returns whether each request of this
    /// service that the last probe may show as pending has begun or ended.
    pub(crate) fn begun(&mut self, claim: &BacklogClaim) -> bool {
        self.count = self.count.saturating_sub(1);
        self.streamed = self.streamed.saturating_sub(claim.is_stream.into());
        let Some((left, sent)) = &mut self.shown else {
            return false;
        };
        if claim.at < *sent {
            *left = left.saturating_sub(1);
        }
        let is_clear = *left == 0;
        if is_clear {
            self.shown = None;
        }
        is_clear
    }

    /// Registers the answer to a request that asked for a stream. An engine, or a proxy before it, may answer as a whole all the same.
    pub(crate) const fn on_answer(&mut self, is_stream: bool) {
        self.streams = match is_stream {
            true => self.streams.saturating_add(1),
            false => 0,
        };
    }

    /// Number of streamed answers in a row, as far as it is counted.
    pub(crate) const fn streams(&self) -> u8 {
        self.streams
    }

    /// Number of requests for streams whose responses have not begun: they are not computed. A whole answer begins when it ends, so
    /// its request may have been computed for long.
    pub(crate) const fn streamed_count(&self) -> u32 {
        self.streamed
    }

    /// Number of requests whose responses have not begun.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::backlog::{Backlog, PushedPrompt};
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    fn sent_at(at: u64) -> BacklogClaim {
        let prompt = PushedPrompt {
            tokens: 0.0,
            is_stream: true,
        };
        Backlog::default().on_push(prompt, 1e-4, ms(at))
    }

    fn with(requests: u32) -> UnbegunRequests {
        let mut unbegun = UnbegunRequests::default();
        (0..requests).for_each(|_| unbegun.on_push(&sent_at(0)));
        unbegun
    }

    #[test]
    fn pending_requests_are_admitted_when_every_older_response_has_begun() {
        let mut unbegun = with(3);
        unbegun.on_probe(2, ms(100), 0, true);
        assert!(!unbegun.begun(&sent_at(10)));
        assert!(!unbegun.begun(&sent_at(20)));
        assert!(unbegun.begun(&sent_at(30)));
        assert_eq!((unbegun.count(), unbegun.streamed_count()), (0, 0));
    }

    #[test]
    fn a_request_of_after_the_probe_says_nothing_about_it() {
        let mut unbegun = with(2);
        unbegun.on_probe(1, ms(100), 1, true);
        assert!(!unbegun.begun(&sent_at(101)), "the younger one");
        assert!(unbegun.begun(&sent_at(50)));
    }

    #[test]
    fn pending_requests_of_another_router_stay_until_the_next_probe() {
        for (pending, is_ours) in [(2, true), (1, false)] {
            let mut unbegun = with(1);
            unbegun.on_probe(pending, ms(100), 0, is_ours);
            assert!(!unbegun.begun(&sent_at(10)));
        }
    }
}

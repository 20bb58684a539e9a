//! Queued prefill of a replica: how long a new prompt waits.
//!
//! Each replica is modelled as one server that computes prompts in order. A prompt that is dispatched now is computed from
//! `ready` on, and moves `ready` by its uncached tokens times the seconds per token.
//!
//! Siblings tell what they dispatch, and neither beginnings nor ends. Their prompts count as computed when the estimate says
//! so, when a later prompt of this service has begun, or when a probe shows fewer requests of others.
//!
//! The estimate is corrected in both directions. The last requests that a probe finds waiting count as uncomputed: an engine
//! whose memory is full computes nothing. No more than the prompts of the requests that have not begun can be left. A request
//! that ends before it begins gives back what the replica did not compute of it.

use core::time::Duration;

use super::ledger::{Ledger, Row, as_u32};
use crate::Time;
use crate::constant::constants;

constants! {
    /// Least time by which a stuck prompt is late: the time to first token varies.
    STUCK_MIN: Duration = Duration::from_millis(250);
}

/// Part of a prompt that a replica computed, of a request that ended before its response began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComputedShare {
    /// The whole prompt: the request was answered.
    Whole,
    /// As much as time allowed.
    Partly,
    /// Nothing: the replica refused the request.
    Nothing,
}

/// Queued prefill of one replica, by the rows of its ledger that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// When all dispatched prompts will be computed.
    ready: Time,
}

impl Backlog {
    /// When all dispatched prompts will be computed.
    pub(super) const fn ready(self) -> Time {
        self.ready
    }

    /// Time until all dispatched prompts are computed, in seconds.
    pub(super) fn wait_s(self, now: Time) -> f64 {
        self.ready.since(now).as_secs_f64()
    }

    /// Adds a dispatched prompt with `tokens` to compute, at this speed. Returns when it will be computed.
    pub(super) fn on_push(&mut self, tokens: f64, token_s: f64, now: Time) -> Time {
        self.ready = self.ready.max(now).after(prefill_time(tokens, token_s));
        self.ready
    }

    /// Applies a probe, sent at `at`, that found `pending` requests waiting: the last ones that the replica can have seen.
    pub(super) fn on_probe(&mut self, ledger: &Ledger, pending: u32, at: Time, token_s: f64) {
        let pending = usize::try_from(pending).unwrap_or(usize::MAX);
        let seen = || ledger.waiting().filter(|row| row.sent_at <= at);
        let tokens: f64 = seen().take(pending).map(|row| row.prompt.tokens).sum();
        if pending <= seen().count() {
            self.limit(ledger, at, token_s);
        }
        self.ready = self.ready.max(at.after(prefill_time(tokens, token_s)));
    }

    /// Registers that a request, which leaves its ledger now, ended before its response began.
    pub(super) fn on_end(&mut self, row: &Row, computed: ComputedShare, token_s: f64, now: Time) {
        let whole = prefill_time(row.prompt.tokens, token_s);
        let since_begin = now.since(row.ready.before(whole));
        let unused = match computed {
            ComputedShare::Whole => Duration::ZERO,
            ComputedShare::Partly => whole.saturating_sub(since_begin),
            ComputedShare::Nothing => whole,
        };
        self.ready = self.ready.before(unused);
    }

    /// Lowers the estimate to what the prompts that have not begun can hold at most.
    pub(super) fn limit(&mut self, ledger: &Ledger, at: Time, token_s: f64) {
        let tokens: f64 = ledger.waiting().map(|row| row.left(at, token_s)).sum();
        self.ready = self.ready.min(at.after(prefill_time(tokens, token_s)));
    }
}

impl Row {
    /// Prompt tokens that may not be computed yet: all of them until the response begins, which only a sibling sees of its
    /// own prompts. Of those, as many as the estimate leaves.
    fn left(&self, at: Time, token_s: f64) -> f64 {
        if self.is_of_sibling {
            let left_s = self.ready.since(at).as_secs_f64();
            self.prompt.tokens.min(left_s / token_s)
        } else {
            self.prompt.tokens
        }
    }
}

impl Ledger {
    /// Number of this service's prompts for streams that are stuck: each has taken twice its estimated time without a response, is late by
    /// [`STUCK_MIN`], and no response to a later request has begun.
    pub(super) fn stuck(&self, now: Time) -> u32 {
        let is_stuck = |row: &&Row| {
            let late = row.ready.since(row.sent_at).max(STUCK_MIN.get());
            row.prompt.is_stream && row.sent_at > self.last_begun() && row.ready.after(late) < now
        };
        as_u32(self.waiting().filter(is_stuck).count())
    }
}

fn prefill_time(tokens: f64, token_s: f64) -> Duration {
    Duration::try_from_secs_f64(tokens * token_s).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{PushedPrompt, RowId};
    use super::*;

    /// Seconds per token.
    const TOKEN_S: f64 = 0.000_1;

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1.0
    }

    /// A backlog and its ledger, changed together.
    #[derive(Default)]
    struct Server {
        backlog: Backlog,
        ledger: Ledger,
    }

    impl Server {
        fn push(&mut self, tokens: f64, now: Time) -> RowId {
            let ready = self.backlog.on_push(tokens, TOKEN_S, now);
            self.ledger.push(prompt(tokens, true), ready, now)
        }

        fn push_of_sibling(&mut self, tokens: f64, now: Time) {
            let ready = self.backlog.on_push(tokens, TOKEN_S, now);
            self.ledger.push_sibling(prompt(tokens, false), ready, now);
        }

        fn begin(&mut self, id: RowId, now: Time) {
            self.ledger.begin(id).unwrap();
            self.backlog.limit(&self.ledger, now, TOKEN_S);
        }

        fn end(&mut self, id: RowId, computed: ComputedShare, now: Time) {
            let row = self.ledger.end(id).unwrap();
            self.backlog.on_end(&row, computed, TOKEN_S, now);
        }

        fn probe(&mut self, pending: u32, sent: Time) {
            self.ledger.on_probe(pending, sent);
            self.backlog.on_probe(&self.ledger, pending, sent, TOKEN_S);
        }

        fn tokens(&self, now: Time) -> f64 {
            self.backlog.wait_s(now) / TOKEN_S
        }
    }

    fn prompt(tokens: f64, is_stream: bool) -> PushedPrompt {
        PushedPrompt {
            tokens,
            memory_tokens: 0.0,
            is_stream,
        }
    }

    #[test]
    fn a_backlog_empties_as_time_passes() {
        let mut server = Server::default();
        let start = at(5);
        server.push(1_000.0, start);
        server.push(1_000.0, start);
        assert!(near(server.tokens(start), 2_000.0));
        let later = start.after(prefill_time(1_000.0, TOKEN_S));
        assert!(near(server.tokens(later), 1_000.0));
    }

    #[test]
    fn what_a_probe_finds_waiting_is_not_computed_however_much_time_has_passed() {
        let mut server = Server::default();
        for tokens in [4_000.0, 3_000.0, 2_000.0] {
            server.push(tokens, at(1));
        }
        assert!(near(server.tokens(at(59)), 0.0));
        server.probe(2, at(59));
        let whole = server.tokens(at(59));
        assert!(near(whole, 5_000.0), "{whole}");
        let mut server = Server::default();
        server.push(500.0, at(70));
        server.probe(7, at(71));
        let others = server.tokens(at(71));
        assert!(
            near(others, 500.0),
            "what others sent is not known: {others}"
        );
    }

    #[test]
    fn a_refused_prompt_gives_all_of_its_tokens_back() {
        let mut server = Server::default();
        server.push(1_000.0, at(1));
        let refused = server.push(200_000.0, at(1));
        server.push(500.0, at(1));
        server.end(refused, ComputedShare::Nothing, at(1));
        assert!(near(server.tokens(at(1)), 1_500.0));
    }

    #[test]
    fn an_aborted_prompt_gives_back_what_was_not_computed() {
        let mut server = Server::default();
        let aborted = server.push(50_000.0, at(1));
        server.push(500.0, at(1));
        server.end(aborted, ComputedShare::Partly, at(3));
        assert!(near(server.tokens(at(3)), 500.0));
    }

    #[test]
    fn no_more_is_left_than_the_prompts_that_have_not_begun() {
        let mut server = Server::default();
        let first = server.push(90_000.0, at(1));
        let second = server.push(30_000.0, at(1));
        server.begin(first, at(2));
        assert!(near(server.tokens(at(2)), 30_000.0), "a faster engine");
        server.begin(second, at(3));
        assert!(near(server.tokens(at(3)), 0.0));
    }

    #[test]
    fn a_probe_with_nothing_pending_caps_the_backlog_at_what_can_be_left() {
        let mut server = Server::default();
        for s in 1..=20 {
            let id = server.push(20_000.0, at(s));
            server.end(id, ComputedShare::Whole, at(s));
        }
        assert!(server.tokens(at(20)) > 100_000.0);
        server.push(700.0, at(20));
        server.probe(0, at(20));
        assert!(near(server.tokens(at(20)), 700.0));
    }

    #[test]
    fn a_probe_with_nothing_pending_leaves_what_siblings_sent_last() {
        let mut server = Server::default();
        server.push_of_sibling(60_000.0, at(1));
        server.push(10_000.0, at(1));
        server.ledger.settle_siblings(1, Time::ZERO);
        server.probe(0, at(3));
        let left = server.tokens(at(3));
        assert!(near(left, 50_000.0), "two seconds are computed: {left}");
        server.ledger.settle_siblings(0, Time::ZERO);
        server.probe(0, at(3));
        let left = server.tokens(at(3));
        assert!(near(left, 10_000.0), "the sibling's has ended: {left}");
    }

    #[test]
    fn a_prompt_that_begins_shows_that_those_of_siblings_before_it_are_computed() {
        let mut server = Server::default();
        server.push_of_sibling(60_000.0, at(1));
        let own = server.push(10_000.0, at(1));
        server.push_of_sibling(5_000.0, at(2));
        server.begin(own, at(2));
        assert!(near(server.tokens(at(2)), 5_000.0), "a faster engine");
    }
}

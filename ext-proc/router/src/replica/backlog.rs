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
use std::collections::VecDeque;

use crate::Time;
use crate::constant::constants;

/// Requests per replica, not known to have begun, that are remembered at most.
const SENT_MAX: usize = 1_024;
constants! {
    /// Least time by which a stuck prompt is late: the time to first token varies.
    STUCK_MIN: Duration = Duration::from_millis(250);
}

/// A prompt that is dispatched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushedPrompt {
    /// Prompt tokens to compute.
    pub(crate) tokens: f64,
    /// Whether the response begins when the prompt is computed: the client asks for a stream.
    pub(crate) is_stream: bool,
}

/// Part of a dispatched prompt in the backlog of its replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BacklogClaim {
    /// Time of the dispatch.
    pub(crate) at: Time,
    /// Prompt tokens to compute.
    pub(crate) tokens: f64,
    /// Whether a sibling dispatched the prompt.
    is_of_sibling: bool,
    /// Whether the response begins when the prompt is computed.
    pub(crate) is_stream: bool,
    /// When the prompt will be computed, by the estimate at its dispatch.
    ready: Time,
}

impl BacklogClaim {
    /// Prompt tokens that may not be computed yet: all of them until the response begins, which only a sibling sees of its
    /// own prompts. Of those, as many as the estimate leaves.
    fn left(&self, at: Time, token_s: f64) -> f64 {
        if self.is_of_sibling {
            let left_s = self.ready.since(at).as_secs_f64();
            self.tokens.min(left_s / token_s)
        } else {
            self.tokens
        }
    }
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

/// Queued prefill of one replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// When all dispatched prompts will be computed.
    ready: Time,
    /// Recent prompts that are not known to have begun, in order of dispatch.
    sent: VecDeque<BacklogClaim>,
    /// Dispatch of the last request whose response has begun.
    begun: Time,
}

impl Backlog {
    /// When all dispatched prompts will be computed.
    pub(crate) const fn ready(&self) -> Time {
        self.ready
    }

    /// Time until all dispatched prompts are computed, in seconds.
    pub(crate) fn wait_s(&self, now: Time) -> f64 {
        self.ready.since(now).as_secs_f64()
    }

    /// When the last prompt was dispatched.
    pub(crate) fn last_push(&self) -> Option<Time> {
        self.sent.back().map(|claim| claim.at)
    }

    /// Accounts for a dispatched prompt with `tokens` to compute, at this speed.
    pub(crate) fn on_push(
        &mut self,
        prompt: PushedPrompt,
        token_s: f64,
        now: Time,
    ) -> BacklogClaim {
        self.add(prompt, false, token_s, now)
    }

    /// Accounts for a prompt that a sibling dispatched.
    pub(crate) fn on_sibling_push(&mut self, tokens: f64, token_s: f64, now: Time) {
        self.add(
            PushedPrompt {
                tokens,
                is_stream: false,
            },
            true,
            token_s,
            now,
        );
    }

    fn add(
        &mut self,
        prompt: PushedPrompt,
        is_of_sibling: bool,
        token_s: f64,
        now: Time,
    ) -> BacklogClaim {
        let PushedPrompt { tokens, is_stream } = prompt;
        self.ready = self.ready.max(now).after(prefill_time(tokens, token_s));
        let claim = BacklogClaim {
            at: now,
            tokens,
            is_of_sibling,
            is_stream,
            ready: self.ready,
        };
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(claim);
        claim
    }

    /// Forgets the oldest prompts of siblings beyond this number, since a probe shows that they have ended.
    pub(crate) fn keep_of_siblings(&mut self, most: u32) {
        let of_siblings = self.sent.iter().filter(|claim| claim.is_of_sibling).count();
        let mut ended = of_siblings.saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
        if ended > 0 {
            self.sent.retain(|claim| {
                let has_ended = claim.is_of_sibling && ended > 0;
                ended -= usize::from(has_ended);
                !has_ended
            });
        }
    }

    /// Applies a probe, sent at `at`, that found `pending` requests waiting: the last ones that the replica can have seen.
    pub(crate) fn on_probe(&mut self, pending: u32, at: Time, token_s: f64) {
        let seen = self.sent.partition_point(|claim| claim.at <= at);
        let pending = usize::try_from(pending).unwrap_or(usize::MAX);
        let waiting = self.sent.range(seen.saturating_sub(pending)..seen);
        let tokens: f64 = waiting.map(|claim| claim.tokens).sum();
        if pending <= seen {
            self.limit(at, token_s);
        }
        self.ready = self.ready.max(at.after(prefill_time(tokens, token_s)));
    }

    /// Number of this service's prompts for streams that are stuck: each has taken twice its estimated time without a response, is late by
    /// [`STUCK_MIN`], and no response to a later request has begun.
    pub(crate) fn stuck(&self, now: Time) -> u32 {
        let is_stuck = |claim: &&BacklogClaim| {
            let late = claim.ready.since(claim.at).max(STUCK_MIN.get());
            claim.is_stream && claim.at > self.begun && claim.ready.after(late) < now
        };
        u32::try_from(self.sent.iter().filter(is_stuck).count()).unwrap_or(u32::MAX)
    }

    /// Registers that the response to a request begins: its prompt is computed, and so are those of siblings before it.
    pub(crate) fn on_begin(&mut self, claim: &BacklogClaim, token_s: f64, now: Time) {
        self.forget(claim);
        self.begun = self.begun.max(claim.at);
        self.sent
            .retain(|sent| !sent.is_of_sibling || sent.at > claim.at);
        self.limit(now, token_s);
    }

    /// Registers that a request ended before its response began.
    pub(crate) fn on_end(
        &mut self,
        claim: &BacklogClaim,
        computed: ComputedShare,
        token_s: f64,
        now: Time,
    ) {
        self.forget(claim);
        let whole = prefill_time(claim.tokens, token_s);
        let since_begin = now.since(claim.ready.before(whole));
        let unused = match computed {
            ComputedShare::Whole => Duration::ZERO,
            ComputedShare::Partly => whole.saturating_sub(since_begin),
            ComputedShare::Nothing => whole,
        };
        self.ready = self.ready.before(unused);
    }

    /// Lowers the estimate to what the prompts that have not begun can hold at most.
    pub(crate) fn limit(&mut self, at: Time, token_s: f64) {
        let left = |claim: &BacklogClaim| claim.left(at, token_s);
        let tokens: f64 = self.sent.iter().map(left).sum();
        self.ready = self.ready.min(at.after(prefill_time(tokens, token_s)));
    }

    fn forget(&mut self, claim: &BacklogClaim) {
        let first = self.sent.partition_point(|sent| sent.at < claim.at);
        let same = self.sent.range(first..);
        let found = same
            .take_while(|sent| sent.at == claim.at)
            .position(|sent| sent == claim);
        if let Some(offset) = found {
            self.sent.remove(first + offset);
        }
    }

    /// Clears the backlog of a replica with nothing outstanding.
    pub(crate) fn emptied(&mut self) {
        self.ready = Time::ZERO;
        self.sent.clear();
    }
}

fn prefill_time(tokens: f64, token_s: f64) -> Duration {
    Duration::try_from_secs_f64(tokens * token_s).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(tokens: f64) -> PushedPrompt {
        PushedPrompt {
            tokens,
            is_stream: true,
        }
    }

    /// Seconds per token.
    const TOKEN_S: f64 = 0.000_1;

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    fn tokens(backlog: &Backlog, now: Time) -> f64 {
        backlog.wait_s(now) / TOKEN_S
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1.0
    }

    #[test]
    fn a_backlog_empties_as_time_passes() {
        let mut backlog = Backlog::default();
        let start = at(5);
        backlog.on_push(streamed(1_000.0), TOKEN_S, start);
        backlog.on_push(streamed(1_000.0), TOKEN_S, start);
        assert!(near(tokens(&backlog, start), 2_000.0));
        let later = start.after(prefill_time(1_000.0, TOKEN_S));
        assert!(near(tokens(&backlog, later), 1_000.0));
        backlog.emptied();
        assert!(backlog.wait_s(later) <= 0.0);
    }

    #[test]
    fn what_a_probe_finds_waiting_is_not_computed_however_much_time_has_passed() {
        let mut backlog = Backlog::default();
        for tokens in [4_000.0, 3_000.0, 2_000.0] {
            backlog.on_push(streamed(tokens), TOKEN_S, at(1));
        }
        assert!(near(tokens(&backlog, at(59)), 0.0));
        backlog.on_probe(2, at(59), TOKEN_S);
        let whole = tokens(&backlog, at(59));
        assert!(near(whole, 5_000.0), "{whole}");
        backlog.emptied();
        backlog.on_push(streamed(500.0), TOKEN_S, at(70));
        backlog.on_probe(7, at(71), TOKEN_S);
        let others = tokens(&backlog, at(71));
        assert!(
            near(others, 500.0),
            "what others sent is not known: {others}"
        );
    }

    #[test]
    fn a_refused_prompt_gives_all_of_its_tokens_back() {
        let mut backlog = Backlog::default();
        backlog.on_push(streamed(1_000.0), TOKEN_S, at(1));
        let refused = backlog.on_push(streamed(200_000.0), TOKEN_S, at(1));
        backlog.on_push(streamed(500.0), TOKEN_S, at(1));
        backlog.on_end(&refused, ComputedShare::Nothing, TOKEN_S, at(1));
        assert!(near(tokens(&backlog, at(1)), 1_500.0));
    }

    #[test]
    fn an_aborted_prompt_gives_back_what_was_not_computed() {
        let mut backlog = Backlog::default();
        let aborted = backlog.on_push(streamed(50_000.0), TOKEN_S, at(1));
        backlog.on_push(streamed(500.0), TOKEN_S, at(1));
        backlog.on_end(&aborted, ComputedShare::Partly, TOKEN_S, at(3));
        assert!(near(tokens(&backlog, at(3)), 500.0));
    }

    #[test]
    fn no_more_is_left_than_the_prompts_that_have_not_begun() {
        let mut backlog = Backlog::default();
        let first = backlog.on_push(streamed(90_000.0), TOKEN_S, at(1));
        let second = backlog.on_push(streamed(30_000.0), TOKEN_S, at(1));
        backlog.on_begin(&first, TOKEN_S, at(2));
        assert!(near(tokens(&backlog, at(2)), 30_000.0), "a faster engine");
        backlog.on_begin(&second, TOKEN_S, at(3));
        assert!(near(tokens(&backlog, at(3)), 0.0));
    }

    #[test]
    fn a_probe_with_nothing_pending_caps_the_backlog_at_what_can_be_left() {
        let mut backlog = Backlog::default();
        for s in 1..=20 {
            let claim = backlog.on_push(streamed(20_000.0), TOKEN_S, at(s));
            backlog.on_end(&claim, ComputedShare::Whole, TOKEN_S, at(s));
        }
        assert!(tokens(&backlog, at(20)) > 100_000.0);
        backlog.on_push(streamed(700.0), TOKEN_S, at(20));
        backlog.on_probe(0, at(20), TOKEN_S);
        assert!(near(tokens(&backlog, at(20)), 700.0));
    }

    #[test]
    fn a_probe_with_nothing_pending_leaves_what_siblings_sent_last() {
        let mut backlog = Backlog::default();
        backlog.on_sibling_push(60_000.0, TOKEN_S, at(1));
        backlog.on_push(streamed(10_000.0), TOKEN_S, at(1));
        backlog.keep_of_siblings(1);
        backlog.on_probe(0, at(3), TOKEN_S);
        let left = tokens(&backlog, at(3));
        assert!(near(left, 50_000.0), "two seconds are computed: {left}");
        backlog.keep_of_siblings(0);
        backlog.on_probe(0, at(3), TOKEN_S);
        let left = tokens(&backlog, at(3));
        assert!(near(left, 10_000.0), "the sibling's has ended: {left}");
    }

    #[test]
    fn a_prompt_that_begins_shows_that_those_of_siblings_before_it_are_computed() {
        let mut backlog = Backlog::default();
        backlog.on_sibling_push(60_000.0, TOKEN_S, at(1));
        let own = backlog.on_push(streamed(10_000.0), TOKEN_S, at(1));
        backlog.on_sibling_push(5_000.0, TOKEN_S, at(2));
        backlog.on_begin(&own, TOKEN_S, at(2));
        assert!(near(tokens(&backlog, at(2)), 5_000.0), "a faster engine");
    }
}

//! Book of a replica's requests: a row for each request of this service until it ends, and for each request that a sibling told of
//! until it counts no longer.
//!
//! Rows stand in the order of dispatch. What decisions read is counted beside them; what a probe or a response changes walks
//! them. The rows of this service are bounded by its requests in flight, those of siblings by [`SENT_MAX`].
//!
//! A probe every 100 ms is many steps of a fast engine, and says nothing about later requests. A response that begins shows at
//! once that the replica has admitted its request. The last probe's pending requests are therefore admitted when the responses to
//! all requests have begun that were dispatched before the probe. That holds only where this service dispatched all of them: more
//! pending requests than these are another router's, and only the next probe tells. The same holds when a sibling dispatched
//! one shortly before. A sibling tells a dispatch and no beginning, so its requests count until a probe that was sent after
//! their message.

use core::time::Duration;
use std::collections::VecDeque;

use crate::Time;
use crate::constant::constants;

/// Rows of siblings that are kept at most, and rows without a response that a question reads at most, the newest ones.
const SENT_MAX: usize = 1_024;
constants! {
    /// Longest time until an engine's gauges show a request: a long step, and their lag.
    pub(super) GAUGE_LAG_MAX: Duration = Duration::from_millis(250);
}

/// A prompt that is dispatched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushedPrompt {
    /// Prompt tokens to compute.
    pub(crate) tokens: f64,
    /// Tokens that the request needs memory for.
    pub(crate) memory_tokens: f64,
    /// Whether the response begins when the prompt is computed: the client asks for a stream.
    pub(crate) is_stream: bool,
}

/// Serial number of a row of this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId(u64);

/// One request at a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    id: RowId,
    pub(super) sent_at: Time,
    pub(super) prompt: PushedPrompt,
    /// When the prompt will be computed, by the estimate at its dispatch.
    pub(super) ready: Time,
    pub(super) is_of_sibling: bool,
    /// Whether the response has begun, or a sibling's prompt is known to be computed.
    pub(super) has_begun: bool,
}

/// Numbers of rows that decisions read. A row that has not begun *waits*.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    own: u32,
    siblings: usize,
    waiting: usize,
    own_waiting: u32,
    streams_waiting: u32,
    /// Requests of this service since the last probe that wait.
    own_unprobed: u32,
    siblings_unprobed: u32,
    /// Tokens in memory of all requests since the last probe.
    tokens_unprobed: f64,
}

/// Requests of one replica, in order of dispatch.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    rows: VecDeque<Row>,
    counts: Counts,
    last_id: u64,
    /// Send time of the last probe.
    probed: Time,
    /// Whether the last probe showed no pending requests but those of this service.
    is_pending_own: bool,
    /// Dispatch of the last request whose response has begun.
    last_begun: Time,
}

impl Ledger {
    /// Adds a request of this service, whose prompt will be computed at `ready` by the estimate.
    pub(super) fn push(&mut self, prompt: PushedPrompt, ready: Time, now: Time) -> RowId {
        self.add(prompt, false, ready, now)
    }

    /// Adds a request that a sibling dispatched.
    pub(super) fn push_sibling(&mut self, prompt: PushedPrompt, ready: Time, now: Time) {
        if self.counts.siblings >= SENT_MAX
            && let Some(oldest) = self.rows.iter().position(|row| row.is_of_sibling)
        {
            self.rows.remove(oldest);
            self.recount();
        }
        self.add(prompt, true, ready, now);
    }

    fn add(&mut self, prompt: PushedPrompt, is_of_sibling: bool, ready: Time, now: Time) -> RowId {
        self.last_id += 1;
        let row = Row {
            id: RowId(self.last_id),
            sent_at: now,
            prompt,
            ready,
            is_of_sibling,
            has_begun: false,
        };
        self.counts.add(&row, self.probed);
        self.rows.push_back(row);
        row.id
    }

    /// Registers that the response to a request begins. The prompts of siblings before it are computed, too.
    pub(super) fn begin(&mut self, id: RowId) -> Option<Row> {
        let place = self.place(id)?;
        let row = self.rows.get_mut(place)?;
        if row.has_begun {
            return None;
        }
        self.counts.begin(row, self.probed);
        row.has_begun = true;
        let row = *row;
        self.last_begun = self.last_begun.max(row.sent_at);
        if self.counts.siblings > 0 {
            let before = self.rows.iter_mut().filter(|other| other.is_of_sibling);
            for sibling in before.take_while(|other| other.sent_at <= row.sent_at) {
                self.counts.waiting -= usize::from(!sibling.has_begun);
                sibling.has_begun = true;
            }
        }
        Some(row)
    }

    /// Removes a request of this service that ended, and returns what it was.
    pub(super) fn end(&mut self, id: RowId) -> Option<Row> {
        let row = self.rows.remove(self.place(id)?)?;
        if !row.has_begun {
            self.counts.begin(&row, self.probed);
        }
        self.counts.own -= 1;
        if row.sent_at >= self.probed {
            self.counts.tokens_unprobed -= row.prompt.memory_tokens;
        }
        Some(row)
    }

    fn place(&self, id: RowId) -> Option<usize> {
        self.rows.binary_search_by_key(&id, |row| row.id).ok()
    }

    /// Applies a probe, sent at `sent`, that shows `pending` requests. Returns the number of this service's requests that it can
    /// have seen.
    pub(super) fn on_probe(&mut self, pending: u32, sent: Time) -> u32 {
        self.probed = sent;
        self.recount();
        let is_ours = self.siblings_since(sent.before(GAUGE_LAG_MAX.get())) == 0;
        let older = self.counts.own_waiting - self.counts.own_unprobed;
        self.is_pending_own = is_ours && (1..=older).contains(&pending);
        let since = self.since(sent).filter(|row| !row.is_of_sibling).count();
        self.counts.own.saturating_sub(as_u32(since))
    }

    fn recount(&mut self) {
        self.counts = Counts::default();
        for row in &self.rows {
            self.counts.add(row, self.probed);
        }
    }

    /// Marks all prompts of siblings as computed but this number of the newest, since the others have ended. Forgets those before a time
    /// that the next probe cannot concern.
    pub(super) fn settle_siblings(&mut self, most: u32, before: Time) {
        if self.counts.siblings == 0 {
            return;
        }
        let rows = self.rows.iter_mut().rev();
        let waiting = rows.filter(|row| row.is_of_sibling && !row.has_begun);
        let ended = waiting.skip(usize::try_from(most).unwrap_or(usize::MAX));
        ended.for_each(|row| row.has_begun = true);
        let before = before.min(self.probed.before(GAUGE_LAG_MAX.get()));
        let is_old = |row: &Row| row.is_of_sibling && row.has_begun && row.sent_at < before;
        self.rows.retain(|row| !is_old(row));
        self.recount();
    }

    /// Forgets all siblings' requests, since the replica has none.
    pub(super) fn empty(&mut self) {
        self.rows.retain(|row| !row.is_of_sibling);
        self.recount();
    }

    /// Registers that the process of the replica is a new one: it has none of the requests so far.
    pub(super) fn restart(&mut self, now: Time) {
        self.empty();
        for row in &mut self.rows {
            row.prompt.tokens = 0.0;
        }
        self.last_begun = now;
    }

    /// Number of this service's requests.
    pub(super) const fn outstanding(&self) -> u32 {
        self.counts.own
    }

    /// Number of this service's requests without a response.
    pub(super) const fn unbegun(&self) -> u32 {
        self.counts.own_waiting
    }

    /// Number of requests for streams without a response: they are not computed. A whole answer begins when it ends, so its request may
    /// have been computed for long.
    pub(super) const fn unbegun_streams(&self) -> u32 {
        self.counts.streams_waiting
    }

    /// Number of the requests since the last probe that have no response.
    pub(super) const fn unprobed(&self) -> u32 {
        let counts = &self.counts;
        counts.own_unprobed.saturating_add(counts.siblings_unprobed)
    }

    /// Whether a sibling sent a request that the last probe does not include.
    pub(super) const fn has_unprobed_siblings(&self) -> bool {
        self.counts.siblings_unprobed > 0
    }

    /// Tokens in memory of the requests since the last probe.
    pub(super) const fn unprobed_tokens(&self) -> f64 {
        self.counts.tokens_unprobed
    }

    /// Whether each request of this service that the last probe may show as pending has begun or ended, and it shows no others.
    pub(super) const fn has_admitted_pending(&self) -> bool {
        self.is_pending_own && self.counts.own_waiting == self.counts.own_unprobed
    }

    /// Dispatch of the newest row.
    pub(super) fn last_sent(&self) -> Option<Time> {
        self.rows.back().map(|row| row.sent_at)
    }

    /// Dispatch of the last request whose response has begun.
    pub(super) const fn last_begun(&self) -> Time {
        self.last_begun
    }

    /// Number of siblings' requests that were dispatched at or after a time.
    pub(super) fn siblings_since(&self, time: Time) -> u32 {
        if self.counts.siblings == 0 {
            return 0;
        }
        as_u32(self.since(time).filter(|row| row.is_of_sibling).count())
    }

    fn since(&self, time: Time) -> impl Iterator<Item = &Row> {
        let newest = self.rows.iter().rev();
        newest.take_while(move |row| row.sent_at >= time)
    }

    /// Requests whose prompts may not be computed, the newest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Row> {
        let waiting = self.rows.iter().rev().filter(|row| !row.has_begun);
        waiting.take(self.counts.waiting.min(SENT_MAX))
    }
}

impl Counts {
    fn add(&mut self, row: &Row, probed: Time) {
        let is_unprobed = row.sent_at >= probed;
        self.waiting += usize::from(!row.has_begun);
        self.tokens_unprobed += f64::from(u8::from(is_unprobed)) * row.prompt.memory_tokens;
        if row.is_of_sibling {
            self.siblings += 1;
            self.siblings_unprobed += u32::from(is_unprobed);
        } else {
            self.own += 1;
            self.own_waiting += u32::from(!row.has_begun);
            self.streams_waiting += u32::from(!row.has_begun && row.prompt.is_stream);
            self.own_unprobed += u32::from(!row.has_begun && is_unprobed);
        }
    }

    /// Counts a waiting request of this service as one that waits no longer.
    fn begin(&mut self, row: &Row, probed: Time) {
        self.waiting -= 1;
        self.own_waiting -= 1;
        self.streams_waiting -= u32::from(row.prompt.is_stream);
        self.own_unprobed -= u32::from(row.sent_at >= probed);
    }
}

pub(super) fn as_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    const PROMPT: PushedPrompt = PushedPrompt {
        tokens: 0.0,
        memory_tokens: 10.0,
        is_stream: true,
    };

    fn push(ledger: &mut Ledger, at: u64) -> RowId {
        ledger.push(PROMPT, ms(at), ms(at))
    }

    #[test]
    fn a_request_counts_as_unprobed_until_a_probe_that_was_sent_after_it() {
        let mut ledger = Ledger::default();
        ledger.on_probe(0, ms(100));
        push(&mut ledger, 110);
        ledger.push_sibling(PROMPT, ms(120), ms(120));
        assert_eq!(ledger.unprobed(), 2);
        assert_eq!(ledger.on_probe(0, ms(115)), 1, "seen");
        assert_eq!(ledger.unprobed(), 1, "the sibling's");
        assert!(ledger.has_unprobed_siblings());
        ledger.on_probe(0, ms(200));
        assert_eq!(ledger.unprobed(), 0);
    }

    #[test]
    fn a_request_counts_as_unprobed_until_its_response_begins() {
        let mut ledger = Ledger::default();
        let older = push(&mut ledger, 90);
        ledger.on_probe(0, ms(100));
        let younger = push(&mut ledger, 110);
        push(&mut ledger, 120);
        ledger.begin(older);
        assert_eq!(
            ledger.unprobed(),
            2,
            "the probe includes the one that began"
        );
        ledger.begin(younger);
        assert_eq!(ledger.unprobed(), 1);
    }

    #[test]
    fn pending_requests_are_admitted_when_every_older_response_has_begun() {
        let mut ledger = Ledger::default();
        let older = [10, 20, 30].map(|at| push(&mut ledger, at));
        ledger.on_probe(2, ms(100));
        let younger = push(&mut ledger, 101);
        for id in [older[0], older[1], younger] {
            ledger.begin(id);
            assert!(!ledger.has_admitted_pending());
        }
        ledger.end(older[2]);
        assert!(ledger.has_admitted_pending());
        assert_eq!((ledger.unbegun(), ledger.unbegun_streams()), (0, 0));
    }

    #[test]
    fn pending_requests_of_another_router_stay_until_the_next_probe() {
        for (pending, has_sibling) in [(2, false), (1, true)] {
            let mut ledger = Ledger::default();
            let own = push(&mut ledger, 10);
            if has_sibling {
                ledger.push_sibling(PROMPT, ms(20), ms(20));
            }
            ledger.on_probe(pending, ms(100));
            ledger.begin(own);
            assert!(!ledger.has_admitted_pending());
        }
    }

    #[test]
    fn rows_of_siblings_are_bounded_and_leave_those_of_this_service() {
        let mut ledger = Ledger::default();
        let own = push(&mut ledger, 0);
        for at in 1..5_000 {
            ledger.push_sibling(PROMPT, ms(at), ms(at));
        }
        assert_eq!(ledger.rows.len(), SENT_MAX + 1);
        assert_eq!(ledger.siblings_since(ms(4_990)), 10);
        ledger.empty();
        assert!(ledger.end(own).is_some());
        assert_eq!(ledger.waiting().count(), 0);
    }

    #[test]
    fn memory_counts_from_the_dispatch_to_the_next_probe_or_the_end() {
        let mut ledger = Ledger::default();
        let ended = push(&mut ledger, 10);
        push(&mut ledger, 20);
        assert!((ledger.unprobed_tokens() - 20.0).abs() < 1e-9);
        ledger.end(ended);
        assert!((ledger.unprobed_tokens() - 10.0).abs() < 1e-9);
        ledger.on_probe(0, ms(30));
        assert!(ledger.unprobed_tokens().abs() < 1e-9);
    }
}

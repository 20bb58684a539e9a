//! Admission headroom: how many more requests a replica is expected to admit before its next probe (SkyLB 3.3).
//!
//! Probes teach its *window*, and a full replica its *capacity* and its *sequence limit*, as `docs/design/selective-pushing.md`
//! describes. When a probe shows fewer requests than were sent, the youngest ones count as not admitted yet. Requests of siblings count against
//! the headroom until a probe that was sent after their message.

use core::time::Duration;

use super::pushes::Pushes;
use super::sequence_limit::{self, SequenceLimit};
use crate::constant::constants;
use crate::{Load, Time};

constants! {
    /// Longest time until an engine's gauges show a request: a long step, and their lag.
    pub(crate) GAUGE_LAG_MAX: Duration = Duration::from_millis(250);
    /// First window, before the first probe.
    WINDOW_START: u32 = 2;
    /// Largest window: a bound on the requests that an engine may be sent before its next probe.
    WINDOW_MAX: u32 = 256;
    /// Largest window of a busy replica while another replica idles.
    THROTTLED_WINDOW: u32 = 2;
    /// Share of the KV cache in use below which a replica with stuck requests is slow, not full.
    pub(crate) KV_FULL_MIN: f32 = 0.8;
}

#[derive(Clone, Debug)]
pub(crate) struct Headroom {
    window: u32,
    capacity: Option<u32>,
    sequence_limit: SequenceLimit,
    /// Number of this service's requests with which the replica runs the most requests at once, where that is known.
    sequences_max: Option<u32>,
    /// Outstanding requests that the replica is known to have admitted.
    admitted: u32,
    /// Number of outstanding requests below which the replica is available.
    limit: u32,
    /// Limit while another replica idles.
    throttled_limit: u32,
    pushes: Pushes,
    /// Requests that siblings dispatched to this replica.
    siblings: Pushes,
    /// Number of the siblings' requests that the last probe does not include.
    siblings_since: u32,
    /// Time of the last probe without a pending request.
    clear: Option<Time>,
    /// Whether the last probe showed stuck requests; only the first of a row halves the window.
    stuck: bool,
}

impl Default for Headroom {
    fn default() -> Self {
        Self {
            window: WINDOW_START.get(),
            capacity: None,
            sequence_limit: SequenceLimit::default(),
            sequences_max: None,
            admitted: 0,
            limit: 0,
            throttled_limit: 0,
            pushes: Pushes::default(),
            siblings: Pushes::default(),
            siblings_since: 0,
            clear: None,
            stuck: false,
        }
    }
}

impl Headroom {
    /// Registers a dispatched request.
    pub(crate) fn on_push(&mut self, now: Time) {
        self.pushes.push(now);
    }

    /// Number of requests dispatched at or after a time.
    pub(crate) fn pushes_since(&self, time: Time) -> u32 {
        self.pushes.since(time)
    }

    /// Whether a probe that was sent at this time may show a sibling's request as pending.
    pub(crate) fn may_show_siblings(&self, sent: Time) -> bool {
        self.siblings.since(sent.before(GAUGE_LAG_MAX.get())) > 0
    }

    pub(crate) fn last_push(&self) -> Option<Time> {
        self.pushes.last()
    }

    /// Registers a request that a sibling dispatched. It counts until a probe includes it.
    pub(crate) fn on_sibling_push(&mut self, now: Time) {
        self.siblings.push(now);
        self.siblings_since = self.siblings_since.saturating_add(1);
    }

    /// Whether a sibling's request counts that the last probe does not include.
    pub(crate) const fn has_siblings_pushes(&self) -> bool {
        self.siblings_since > 0
    }

    /// Forgets what a process that is gone has shown of its limit.
    pub(crate) fn on_restart(&mut self) {
        self.sequence_limit = SequenceLimit::default();
        self.sequences_max = None;
    }

    /// Registers the end of a request.
    pub(crate) const fn on_end(&mut self) {
        self.sequence_limit.on_end();
    }

    /// Applies a probe that was sent at `sent`. `outstanding` counts the requests dispatched and not finished, `unbegun` those of
    /// them without a response. `is_silent` says that the replica shows no sign of life: then nothing tells whether it admitted
    /// what was sent to it.
    pub(crate) fn on_probe(
        &mut self,
        load: &Load,
        sent: Time,
        (outstanding, unbegun): (u32, u32),
        is_silent: bool,
    ) {
        let since = self.pushes.since(sent);
        self.siblings_since = self.siblings.since(sent);
        let older = outstanding.saturating_sub(since);
        let settled = sent.before(GAUGE_LAG_MAX.get());
        let fresh = self.pushes.since(settled).saturating_sub(since);
        // A sibling's message is late, so its requests count as fresh for longer.
        let fresh_of_all = fresh.saturating_add(self.siblings.since(settled));
        let is_stuck = load.pending > fresh_of_all;
        let older_unbegun = unbegun.saturating_sub(since);
        let step = sent.before(sequence_limit::STEP);
        let in_step = self.pushes.since(step).saturating_sub(since);
        let in_step = in_step.saturating_add(self.siblings.since(settled));
        let is_at_limit = load.pending > in_step;
        self.sequence_limit
            .on_probe(load, sent, is_at_limit, older_unbegun);
        let running = load.running.unwrap_or_default();
        let theirs = running.saturating_sub(older);
        let most = self.sequence_limit.get(sent);
        self.sequences_max = most.map(|most| most.saturating_sub(theirs).max(1));
        if is_stuck {
            self.on_stuck(load, older);
        } else if load.pending == 0 {
            self.on_none_pending(load, sent, older, fresh, is_silent);
        }
        let keep = self.clear.map_or(settled, |clear| clear.min(settled));
        self.pushes.forget_before(keep);
        self.siblings.forget_before(keep);
    }

    /// Registers that the response to a request begins. One that the last probe does not count as admitted is admitted now.
    pub(crate) fn on_begin(&mut self, dispatched_at: Time) {
        if self.clear.is_some_and(|clear| dispatched_at >= clear) {
            self.set_admitted(self.admitted.saturating_add(1));
        }
    }

    /// Registers that `admitted` of the outstanding requests are admitted, and that the engine has admitted every request
    /// that the last probe showed as pending.
    pub(crate) fn on_clear(&mut self, now: Time, admitted: u32) {
        self.stuck = false;
        self.clear = Some(now);
        self.set_admitted(admitted);
    }

    /// Begins with the first window: the replica did not admit what was sent to it.
    pub(crate) fn reset_window(&mut self) {
        self.window = WINDOW_START.get();
        self.set_admitted(self.admitted);
    }

    /// Whether the replica admits another request; `throttled` while another replica idles.
    pub(crate) const fn admits(&self, outstanding: u32, throttled: bool) -> bool {
        let limit = if throttled {
            self.throttled_limit
        } else {
            self.limit
        };
        outstanding.saturating_add(self.siblings_since) < limit
    }

    /// Requests that the replica admits now.
    pub(crate) const fn left(&self, outstanding: u32) -> u32 {
        self.limit
            .saturating_sub(outstanding)
            .saturating_sub(self.siblings_since)
    }

    /// Requests with which the replica is full, as far as it was seen full.
    pub(crate) fn capacity(&self) -> Option<u32> {
        let known = [self.sequences_max, self.capacity];
        known.into_iter().flatten().min()
    }

    fn on_stuck(&mut self, load: &Load, older: u32) {
        if !self.stuck {
            self.window = (self.window / 2).max(1);
        }
        self.stuck = true;
        if load.kv_usage.is_none_or(|usage| usage >= KV_FULL_MIN.get()) {
            // Another router's requests may be among the pending ones; then `running` is the better figure.
            let admitted = older.saturating_sub(load.pending);
            let running = load.running.unwrap_or(0).min(older);
            self.capacity = Some(admitted.max(running).max(1));
        }
    }

    fn on_none_pending(
        &mut self,
        load: &Load,
        sent: Time,
        older: u32,
        fresh: u32,
        is_silent: bool,
    ) {
        let clear = self.clear.unwrap_or(Time::ZERO);
        let used_of = |pushes: &Pushes| pushes.since(clear).saturating_sub(pushes.since(sent));
        let used = used_of(&self.pushes).saturating_add(used_of(&self.siblings));
        if !self.stuck && !is_silent && used >= self.window {
            self.window = self.window.saturating_mul(2).min(WINDOW_MAX.get());
        }
        self.stuck = false;
        self.clear = Some(sent);
        let unseen = load
            .running
            .map_or(0, |running| older.saturating_sub(running).min(fresh));
        let admitted = older - unseen;
        if let Some(capacity) = &mut self.capacity
            && admitted >= *capacity
        {
            *capacity = admitted.saturating_add((admitted / 8).max(1));
        }
        self.set_admitted(admitted);
    }

    fn set_admitted(&mut self, admitted: u32) {
        let free_capacity = self
            .capacity
            .map_or(u32::MAX, |capacity| capacity.saturating_sub(admitted))
            .max(1);
        let headroom = self.window.min(free_capacity);
        self.admitted = admitted;
        let most = self.sequences_max.unwrap_or(u32::MAX);
        let limit = |headroom: u32| admitted.saturating_add(headroom).min(most);
        self.limit = limit(headroom);
        self.throttled_limit = limit(headroom.min(THROTTLED_WINDOW.get()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    fn pending(pending: u32) -> Load {
        Load {
            pending,
            ..Load::default()
        }
    }

    /// Sends as much as allowed; how many are outstanding then.
    fn fill(headroom: &mut Headroom, now: Time, mut outstanding: u32) -> u32 {
        while headroom.admits(outstanding, false) {
            headroom.on_push(now);
            outstanding += 1;
        }
        outstanding
    }

    #[test]
    fn a_replica_that_nothing_is_known_of_is_filled_in_a_few_probes() {
        let mut headroom = Headroom::default();
        assert_eq!(headroom.left(0), 0, "nothing before the first probe");
        let mut outstanding = 0;
        let mut seen = Vec::new();
        for i in 1..=5 {
            headroom.on_probe(&pending(0), ms(100 * i), (outstanding, 0), false);
            outstanding = fill(&mut headroom, ms(100 * i + 1), outstanding);
            seen.push(outstanding);
        }
        assert_eq!(seen, [2, 6, 14, 30, 62]);
    }

    #[test]
    fn a_replica_is_full_at_the_lower_one_of_its_capacity_and_its_sequence_limit() {
        for (capacity, sequences_max) in [(10, 20), (20, 10)] {
            let headroom = Headroom {
                capacity: Some(capacity),
                sequences_max: Some(sequences_max),
                ..Headroom::default()
            };
            assert_eq!(headroom.capacity(), Some(10));
        }
    }

    #[test]
    fn what_was_pushed_after_a_probe_was_sent_counts_against_its_answer() {
        let mut headroom = Headroom::default();
        headroom.on_probe(&pending(0), ms(0), (0, 0), false);
        let outstanding = fill(&mut headroom, ms(10), 0);
        headroom.on_probe(&pending(0), ms(5), (outstanding, 0), false);
        assert_eq!(headroom.left(outstanding), 0);
    }

    #[test]
    fn a_request_that_has_just_arrived_does_not_make_a_replica_full() {
        let mut headroom = Headroom::default();
        headroom.on_probe(&pending(0), ms(0), (0, 0), false);
        let outstanding = fill(&mut headroom, ms(10), 0);
        headroom.on_probe(&pending(2), ms(100), (outstanding, 0), false);
        assert_eq!(headroom.capacity(), None);
        headroom.on_probe(&pending(1), ms(300), (outstanding, 0), false);
        assert_eq!(headroom.capacity(), Some(1), "but one that stays does");
    }

    #[test]
    fn a_full_replica_gets_one_for_each_that_finishes() {
        let mut headroom = Headroom::default();
        let mut outstanding = 0;
        for i in 0..4 {
            headroom.on_probe(&pending(0), ms(100 * i), (outstanding, 0), false);
            outstanding = fill(&mut headroom, ms(100 * i + 1), outstanding);
        }
        assert_eq!(outstanding, 30);
        headroom.on_probe(&pending(10), ms(900), (outstanding, 0), false);
        assert_eq!(headroom.capacity(), Some(20));
        // Ten finish, the stuck ones go in; then one more finishes.
        headroom.on_probe(&pending(0), ms(1_500), (20, 0), false);
        assert_eq!(
            headroom.left(20),
            2,
            "a little more than it was seen to hold"
        );
        headroom.on_probe(&pending(0), ms(1_600), (21, 0), false);
        assert_eq!(headroom.left(21), 1);
        assert!(
            headroom.admits(20, false),
            "one that finishes makes room at once"
        );
    }

    #[test]
    fn slow_to_take_in_is_not_full() {
        let mut headroom = Headroom::default();
        headroom.on_probe(&pending(0), ms(0), (0, 0), false);
        let outstanding = fill(&mut headroom, ms(1), 0);
        let load = Load {
            pending: 1,
            kv_usage: Some(0.2),
            ..Load::default()
        };
        headroom.on_probe(&load, ms(400), (outstanding, 0), false);
        assert_eq!(headroom.capacity(), None);
        headroom.on_probe(&pending(0), ms(500), (outstanding, 0), false);
        assert_eq!(headroom.left(outstanding), 1, "but it is fed more slowly");
    }

    #[test]
    fn while_another_one_idles_the_window_is_small() {
        let mut headroom = Headroom::default();
        let mut outstanding = 0;
        for i in 0..3 {
            headroom.on_probe(&pending(0), ms(100 * i), (outstanding, 0), false);
            outstanding = fill(&mut headroom, ms(100 * i + 1), outstanding);
        }
        headroom.on_probe(&pending(0), ms(300), (outstanding, 0), false);
        assert!(headroom.admits(outstanding + 1, true));
        assert!(!headroom.admits(outstanding + 2, true));
        assert!(headroom.admits(outstanding + 2, false));
    }

    #[test]
    fn a_response_that_begins_makes_room_before_the_next_probe() {
        let mut headroom = Headroom::default();
        headroom.on_probe(&pending(0), ms(0), (0, 0), false);
        let outstanding = fill(&mut headroom, ms(10), 0);
        assert_eq!(headroom.left(outstanding), 0);
        headroom.on_begin(ms(10));
        assert_eq!(headroom.left(outstanding), 1);
        headroom.on_begin(Time::ZERO.after(Duration::from_micros(1)));
        assert_eq!(headroom.left(outstanding), 2);
    }

    #[test]
    fn a_response_to_a_request_that_the_probe_counts_makes_no_room() {
        let mut headroom = Headroom::default();
        headroom.on_probe(&pending(0), ms(0), (0, 0), false);
        let outstanding = fill(&mut headroom, ms(10), 0);
        headroom.on_probe(&pending(0), ms(100), (outstanding, 0), false);
        let left = headroom.left(outstanding);
        headroom.on_begin(ms(10));
        assert_eq!(headroom.left(outstanding), left);
    }

    #[test]
    fn the_window_of_a_silent_replica_does_not_grow() {
        let mut headroom = Headroom::default();
        headroom.on_probe(&pending(0), ms(0), (0, 0), true);
        let outstanding = fill(&mut headroom, ms(10), 0);
        headroom.on_probe(&pending(0), ms(100), (outstanding, 0), true);
        assert_eq!(headroom.left(outstanding), 2);
        let outstanding = fill(&mut headroom, ms(110), outstanding);
        headroom.on_probe(&pending(0), ms(200), (outstanding, 0), false);
        assert_eq!(headroom.left(outstanding), 4);
        headroom.reset_window();
        assert_eq!(headroom.left(outstanding), 2);
    }

    #[test]
    fn a_gauge_that_lags_does_not_open_the_gate() {
        let mut headroom = Headroom::default();
        headroom.on_probe(&pending(0), ms(0), (0, 0), false);
        let outstanding = fill(&mut headroom, ms(95), 0);
        let unseen = Load {
            running: Some(0),
            ..Load::default()
        };
        headroom.on_probe(&unseen, ms(100), (outstanding, 0), false);
        assert_eq!(
            headroom.left(outstanding),
            2,
            "of the doubled window of four"
        );
    }
}

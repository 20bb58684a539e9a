//! Signs of life of a replica: they tell a replica that hangs from one that is busy.
//!
//! A sign is a response that begins, an answer that ends, an engine counter that moves, or memory of the KV cache that fills: the
//! only sign of an engine that computes one very long prompt. Error responses are none: the HTTP server of an engine rejects bad
//! requests while its computation hangs. Silence is the time without a sign that probes
//! observed: time in which the service itself was suspended does not count. `docs/design/health.md` has the rule.

use core::time::Duration;

use crate::constant::constants;
use crate::{EngineCounters, Time};

constants! {
    /// Shortest silence that shows a hung replica.
    pub(crate) HANG_TIMEOUT_MIN: Duration = Duration::from_secs(10);
    /// Shortest such silence where a healthy replica may be silent for longer: it has never answered, or it writes answers and
    /// nothing shows their progress.
    HANG_TIMEOUT_MIN_UNSURE: Duration = Duration::from_secs(60);
    /// Silence that shows a hung replica, in multiples of the time to a first byte.
    pub(crate) HANG_TIMEOUT_FACTOR: u32 = 5;
}

/// Shortest first bucket of [`FirstByteTimes`]: five times it is [`HANG_TIMEOUT_MIN`].
const BUCKET_MIN_S: f64 = 2.0;
/// Number of buckets: the bound of the last one is an hour and a half.
const BUCKETS: usize = 24;
/// Times after which all buckets are halved, so that old times fade.
const TIMES_MAX: u16 = 1_024;

/// Times to the first byte of a replica's responses, in buckets that grow by the square root of two.
#[derive(Clone, Debug, Default)]
struct FirstByteTimes {
    buckets: [u16; BUCKETS],
    total: u16,
}

/// Upper bounds of the buckets of [`FirstByteTimes`], in seconds.
fn bounds_s() -> impl Iterator<Item = f64> {
    let next = |bound: &f64| Some(bound * core::f64::consts::SQRT_2);
    core::iter::successors(Some(BUCKET_MIN_S), next).take(BUCKETS)
}

impl FirstByteTimes {
    fn add(&mut self, took: Duration) {
        let took_s = took.as_secs_f64();
        let place = bounds_s().position(|bound_s| took_s <= bound_s);
        if let Some(bucket) = self.buckets.get_mut(place.unwrap_or(BUCKETS - 1)) {
            *bucket += 1;
            self.total += 1;
        }
        if self.total >= TIMES_MAX {
            self.buckets = self.buckets.map(|count| count / 2);
            self.total = self.buckets.iter().sum();
        }
    }

    /// Upper bound of the 99th percentile; `None` before the first time.
    fn p99(&self) -> Option<Duration> {
        let mut above = self.total;
        let mut buckets = self.buckets.iter().zip(bounds_s());
        let (_, bound_s) = buckets.find(|(count, _)| {
            above -= *count;
            self.total > 0 && above <= self.total / 100
        })?;
        Some(Duration::from_secs_f64(bound_s))
    }
}

/// Signs of life of one replica.
#[derive(Clone, Debug)]
pub(crate) struct VitalSigns {
    /// The last sign.
    last: Option<Time>,
    /// The last observation of the silence since then.
    observed: Time,
    silent_for: Duration,
    /// Silence at which the replica's requests are checked next.
    next_check: Duration,
    first_bytes: FirstByteTimes,
    has_live_counters: bool,
}

impl Default for VitalSigns {
    fn default() -> Self {
        Self {
            last: None,
            observed: Time::ZERO,
            silent_for: Duration::ZERO,
            next_check: HANG_TIMEOUT_MIN.get(),
            first_bytes: FirstByteTimes::default(),
            has_live_counters: false,
        }
    }
}

impl VitalSigns {
    /// Registers a sign of life.
    pub(crate) fn add_sign(&mut self, now: Time) {
        self.last = Some(now);
        self.restart_silence(now);
    }

    /// Registers the first byte of a response, `took` after its dispatch.
    pub(crate) fn responded(&mut self, took: Duration, now: Time) {
        self.first_bytes.add(took);
        self.add_sign(now);
    }

    /// Registers by how much the engine's counters grew between two probes.
    pub(crate) fn on_counters(&mut self, grown: &EngineCounters, now: Time) {
        if grown.work() <= 0.0 {
            return;
        }
        // Some engines count the tokens of an answer at its end. Those counters stand still while an answer is written.
        let ended = grown.decode.map(|decode| decode.count);
        let has_written = grown.generation_tokens.is_some_and(|tokens| tokens > 0.0);
        self.has_live_counters |= has_written && ended == Some(0.0);
        self.add_sign(now);
    }

    /// Registers the use of the engine's memory at two probes.
    pub(crate) fn on_memory(&mut self, before: Option<f32>, after: Option<f32>, now: Time) {
        if let (Some(before), Some(after)) = (before, after)
            && before.to_bits() != after.to_bits()
        {
            self.add_sign(now);
        }
    }

    /// Observes the silence of a replica; an idle one is not silent. `gap_max` bounds what one observation adds. Returns whether
    /// the replica's requests are to be checked.
    pub(crate) fn observe(&mut self, is_idle: bool, gap_max: Duration, now: Time) -> bool {
        if is_idle {
            self.restart_silence(now);
            return false;
        }
        self.silent_for += now.since(self.observed).min(gap_max);
        self.observed = now;
        self.silent_for >= self.next_check
    }

    /// Lets the silence begin now.
    pub(crate) fn restart_silence(&mut self, now: Time) {
        self.observed = now;
        self.silent_for = Duration::ZERO;
        self.next_check = HANG_TIMEOUT_MIN.get();
    }

    /// Schedules the next check of the replica's requests after so much more silence.
    pub(crate) fn check_after(&mut self, pause: Duration) {
        self.next_check = self.silent_for + pause;
    }

    /// Silence that shows a hung replica. `is_unsure` says that the replica writes answers whose progress nothing shows.
    pub(crate) fn hang_timeout(&self, is_unsure: bool) -> Duration {
        let p99 = self.first_bytes.p99();
        let least = match p99 {
            Some(_) if !is_unsure => HANG_TIMEOUT_MIN.get(),
            Some(_) | None => HANG_TIMEOUT_MIN_UNSURE.get(),
        };
        least.max(p99.unwrap_or_default() * HANG_TIMEOUT_FACTOR.get())
    }

    pub(crate) const fn silent_for(&self) -> Duration {
        self.silent_for
    }

    /// Whether the last sign came at this time or later.
    pub(crate) fn has_sign_since(&self, time: Time) -> bool {
        self.last.is_some_and(|last| last >= time)
    }

    /// Whether the counters of the engine move while it writes an answer.
    pub(crate) const fn has_live_counters(&self) -> bool {
        self.has_live_counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Total;

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO.after(s(seconds))
    }

    #[test]
    fn the_hang_timeout_is_ten_seconds_or_five_times_the_99th_percentile() {
        let mut signs = VitalSigns::default();
        assert_eq!(signs.hang_timeout(false), s(60), "before the first answer");
        (0..500).for_each(|_| signs.responded(Duration::from_millis(300), at(1)));
        assert_eq!(signs.hang_timeout(false), s(10));
        assert_eq!(signs.hang_timeout(true), s(60));
        (0..5).for_each(|_| signs.responded(s(40), at(1)));
        assert_eq!(signs.hang_timeout(false), s(10), "less than a hundredth");
        (0..5).for_each(|_| signs.responded(s(40), at(1)));
        let hang_timeout = signs.hang_timeout(false);
        assert!((s(200)..s(300)).contains(&hang_timeout), "{hang_timeout:?}");
    }

    #[test]
    fn slow_responses_of_long_ago_fade() {
        let mut signs = VitalSigns::default();
        (0..200).for_each(|_| signs.responded(s(40), at(1)));
        (0..8_000).for_each(|_| signs.responded(s(1), at(1)));
        assert_eq!(signs.hang_timeout(false), s(10));
    }

    #[test]
    fn silence_counts_only_where_it_is_observed_and_requests_are_there() {
        let mut signs = VitalSigns::default();
        signs.observe(true, s(1), at(100));
        for seconds in 101..110 {
            assert!(!signs.observe(false, s(1), at(seconds)));
        }
        assert!(signs.observe(false, s(1), at(110)));
        signs.add_sign(at(111));
        assert!(
            !signs.observe(false, s(1), at(200)),
            "the service stood still"
        );
        assert_eq!(signs.silent_for(), s(1));
    }

    #[test]
    fn counters_are_live_when_tokens_come_before_their_answers_end() {
        let grown = |tokens, ended| EngineCounters {
            generation_tokens: Some(tokens),
            decode: Some(Total {
                seconds: 1.0,
                count: ended,
            }),
            ..EngineCounters::default()
        };
        let mut signs = VitalSigns::default();
        signs.on_counters(&grown(0.0, 0.0), at(1));
        assert!(!signs.has_sign_since(at(0)), "nothing moved");
        signs.on_counters(&grown(200.0, 1.0), at(2));
        assert!(signs.has_sign_since(at(2)) && !signs.has_live_counters());
        signs.on_counters(&grown(20.0, 0.0), at(3));
        assert!(signs.has_live_counters());
    }
}

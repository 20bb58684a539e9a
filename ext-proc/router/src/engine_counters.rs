//! Counters of an engine process, and what happened between two reports of them.

/// Two reports name different processes when their start times differ by more milliseconds than this. Engines compute the
/// time from a clock that is set now and then.
const STARTED_MS_TOLERANCE: u64 = 1_000;

/// Counters of an engine process, as its metrics page shows them: totals since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineCounters {
    /// When the process started, in milliseconds since the Unix epoch, by the engine's clock.
    pub started_ms: Option<u64>,
    /// Tokens of the prompts that the engine read, cached ones included.
    pub prompt_tokens: Option<f64>,
    /// Tokens that the engine wrote.
    pub generation_tokens: Option<f64>,
    /// Prompt tokens that the engine looked up in its prefix cache.
    pub cache_queries: Option<f64>,
    /// Prompt tokens that the engine found there.
    pub cache_hits: Option<f64>,
    /// Time from the start of a request's computation to its first token.
    pub prefill: Option<Total>,
    /// Time from a request's first token to its last one.
    pub decode: Option<Total>,
    /// Time that a request waited inside the engine.
    pub queue: Option<Total>,
    /// Time from a request's arrival to its first token.
    pub ttft: Option<Total>,
}

/// A histogram of durations without its buckets: a metric's `_sum` and `_count`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// Sum of the durations, in seconds.
    pub seconds: f64,
    /// Number of durations.
    pub count: f64,
}

/// Result of a comparison of two reports of one replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CounterChange {
    /// Growth of each counter between the reports. A counter that either report lacks is missing.
    Grown(EngineCounters),
    /// The later report is of a process that started later.
    Restarted,
    /// A counter fell: the reports are of two processes.
    RanBack,
}

/// A later value of a counter less an earlier one.
trait Growth: Copy {
    fn less(self, earlier: Self) -> Self;
    /// Whether the value is finite, and not below zero.
    fn is_valid(self) -> bool;
}

impl Growth for f64 {
    fn less(self, earlier: Self) -> Self {
        self - earlier
    }

    fn is_valid(self) -> bool {
        self.is_finite() && self >= 0.0
    }
}

impl Growth for Total {
    fn less(self, earlier: Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            count: self.count - earlier.count,
        }
    }

    fn is_valid(self) -> bool {
        self.seconds.is_valid() && self.count.is_valid()
    }
}

impl EngineCounters {
    /// Compares this report with an earlier one of the same replica. Returns nothing when this one is of an older process:
    /// an address may stand for several processes, which report in turn.
    pub(crate) fn since(&self, earlier: &Self) -> Option<CounterChange> {
        let (started, before) = (self.started_ms, earlier.started_ms);
        let is_later = |(now, before): (u64, u64)| now > before + STARTED_MS_TOLERANCE;
        let is_other = |(now, before): (u64, u64)| now + STARTED_MS_TOLERANCE < before;
        let started = started.zip(before);
        if started.is_some_and(is_later) {
            return Some(CounterChange::Restarted);
        }
        if started.is_some_and(is_other) {
            return None;
        }
        let mut has_run_back = false;
        let grown = Self {
            started_ms: self.started_ms,
            prompt_tokens: grown(self.prompt_tokens, earlier.prompt_tokens, &mut has_run_back),
            generation_tokens: grown(
                self.generation_tokens,
                earlier.generation_tokens,
                &mut has_run_back,
            ),
            cache_queries: grown(self.cache_queries, earlier.cache_queries, &mut has_run_back),
            cache_hits: grown(self.cache_hits, earlier.cache_hits, &mut has_run_back),
            prefill: grown(self.prefill, earlier.prefill, &mut has_run_back),
            decode: grown(self.decode, earlier.decode, &mut has_run_back),
            queue: grown(self.queue, earlier.queue, &mut has_run_back),
            ttft: grown(self.ttft, earlier.ttft, &mut has_run_back),
        };
        Some(if has_run_back {
            CounterChange::RanBack
        } else {
            CounterChange::Grown(grown)
        })
    }
}

impl EngineCounters {
    /// Sum of the counters of tokens and requests, as a measure of what a process has done.
    pub(crate) fn work(&self) -> f64 {
        let counts = [self.prefill, self.decode, self.queue, self.ttft];
        let counts = counts.map(|total| total.map(|total| total.count));
        let tokens = [self.prompt_tokens, self.generation_tokens];
        let all = tokens.into_iter().chain(counts).flatten();
        all.filter(|number| number.is_valid()).sum()
    }
}

/// Growth of a counter; sets `has_run_back` when it fell.
fn grown<T: Growth>(now: Option<T>, before: Option<T>, has_run_back: &mut bool) -> Option<T> {
    let (now, before) = (
        now.filter(|now| now.is_valid())?,
        before.filter(|before| before.is_valid())?,
    );
    let grown = now.less(before);
    *has_run_back |= !grown.is_valid();
    Some(grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(started_ms: Option<u64>, prompt_tokens: f64) -> EngineCounters {
        EngineCounters {
            started_ms,
            prompt_tokens: Some(prompt_tokens),
            prefill: Some(Total {
                seconds: prompt_tokens / 1_000.0,
                count: 1.0,
            }),
            ..EngineCounters::default()
        }
    }

    #[test]
    fn two_reports_of_one_process_differ_by_what_it_did_between_them() {
        let mut later = counters(Some(5_400), 300.0);
        later.cache_hits = Some(7.0);
        let Some(CounterChange::Grown(grown)) = later.since(&counters(Some(5_000), 100.0)) else {
            panic!("the process is the same");
        };
        assert_eq!(grown.prompt_tokens, Some(200.0));
        assert_eq!(grown.cache_hits, None, "the first report lacks it");
        let prefill = grown.prefill.unwrap();
        assert!((prefill.seconds - 0.2).abs() < 1e-9 && prefill.count.abs() < 1e-9);
    }

    #[test]
    fn a_later_start_or_counters_that_run_back_show_a_restart() {
        let before = counters(Some(5_000), 100.0);
        let later = counters(Some(9_000), 300.0).since(&before);
        assert_eq!(later, Some(CounterChange::Restarted));
        let ran_back = counters(Some(5_000), 99.0).since(&before);
        assert_eq!(ran_back, Some(CounterChange::RanBack));
        let unknown = counters(None, 99.0).since(&counters(None, 100.0));
        assert_eq!(unknown, Some(CounterChange::RanBack));
    }

    #[test]
    fn a_report_of_an_older_process_says_nothing() {
        let older = counters(Some(1_000), 50.0).since(&counters(Some(5_000), 100.0));
        assert_eq!(older, None);
    }

    #[test]
    fn a_counter_that_is_no_number_is_missing() {
        let broken = counters(None, f64::NAN).since(&counters(None, 100.0));
        let Some(CounterChange::Grown(grown)) = broken else {
            panic!("no counter ran back");
        };
        assert_eq!((grown.prompt_tokens, grown.prefill), (None, None));
    }
}

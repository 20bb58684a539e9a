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

/// The numbers of the counters, in one order.
type Numbers = [Option<f64>; 12];

impl EngineCounters {
    const fn numbers(&self) -> Numbers {
        const fn of(total: Option<Total>) -> [Option<f64>; 2] {
            match total {
                Some(total) => [Some(total.seconds), Some(total.count)],
                None => [None, None],
            }
        }
        let [prefill_s, prefills] = of(self.prefill);
        let [decode_s, decodes] = of(self.decode);
        let [queue_s, queued] = of(self.queue);
        let [ttft_s, ttfts] = of(self.ttft);
        let tokens = (self.prompt_tokens, self.generation_tokens);
        let (queries, hits) = (self.cache_queries, self.cache_hits);
        [
            tokens.0, tokens.1, queries, hits, prefills, decodes, queued, ttfts, prefill_s,
            decode_s, queue_s, ttft_s,
        ]
    }

    fn of_numbers(started_ms: Option<u64>, numbers: Numbers) -> Self {
        let total = |seconds: Option<f64>, count: Option<f64>| {
            let (seconds, count) = seconds.zip(count)?;
            Some(Total { seconds, count })
        };
        let [
            prompt_tokens,
            generation_tokens,
            cache_queries,
            cache_hits,
            prefills,
            decodes,
            queued,
            ttfts,
            prefill_s,
            decode_s,
            queue_s,
            ttft_s,
        ] = numbers;
        Self {
            started_ms,
            prompt_tokens,
            generation_tokens,
            cache_queries,
            cache_hits,
            prefill: total(prefill_s, prefills),
            decode: total(decode_s, decodes),
            queue: total(queue_s, queued),
            ttft: total(ttft_s, ttfts),
        }
    }

    /// Compares this report with an earlier one of the same replica. Returns nothing when this one is of an older process:
    /// an address may stand for several processes, which report in turn.
    pub(crate) fn since(&self, earlier: &Self) -> Option<CounterChange> {
        if let (Some(now), Some(before)) = (self.started_ms, earlier.started_ms) {
            if now > before + STARTED_MS_TOLERANCE {
                return Some(CounterChange::Restarted);
            }
            if now + STARTED_MS_TOLERANCE < before {
                return None;
            }
        }
        let mut grown = self.numbers();
        for (now, before) in grown.iter_mut().zip(earlier.numbers()) {
            let both = now.zip(before);
            let valid = both.filter(|(now, before)| is_valid(*now) && is_valid(*before));
            *now = valid.map(|(now, before)| now - before);
        }
        let has_run_back = grown.iter().flatten().any(|grown| !is_valid(*grown));
        Some(match has_run_back {
            true => CounterChange::RanBack,
            false => CounterChange::Grown(Self::of_numbers(self.started_ms, grown)),
        })
    }

    /// Sum of the counters of tokens and requests, as a measure of what a process has done.
    pub(crate) fn work(&self) -> f64 {
        let [
            prompt,
            generation,
            _,
            _,
            prefills,
            decodes,
            queued,
            ttfts,
            ..,
        ] = self.numbers();
        let all = [prompt, generation, prefills, decodes, queued, ttfts];
        let valid = all.into_iter().flatten().filter(|number| is_valid(*number));
        valid.sum()
    }

    /// Adds what an engine did between two reports to sums, of which a share is left. A counter that no report had is missing.
    pub(crate) fn add_fading(&mut self, left: f64, grown: &Self) {
        let mut sums = self.numbers();
        for (sum, grown) in sums.iter_mut().zip(grown.numbers()) {
            let faded = sum.map(|sum| sum * left);
            *sum = match grown {
                Some(grown) => Some(faded.unwrap_or_default() + grown),
                None => faded,
            };
        }
        *self = Self::of_numbers(None, sums);
    }
}

/// Whether a number is finite, and not below zero.
fn is_valid(number: f64) -> bool {
    number.is_finite() && number >= 0.0
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

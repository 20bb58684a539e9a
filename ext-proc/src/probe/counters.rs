//! Adds up the counters of a metrics page.

use std::collections::BTreeMap;

use isotherm_router::{EngineCounters, Total};

use super::counter_series::{Counter, CounterSeries, DATA_RANK, TENSOR_RANK};
use super::exposition::{Labels, Sample};

/// Counters of a page so far: each is the sum of its series.
#[derive(Clone, Debug, Default)]
pub(super) struct PageCounters<'a> {
    sums: BTreeMap<Counter, f64>,
    /// Counters of data-parallel ranks whose tensor-parallel ranks repeat each other.
    ranks: BTreeMap<(Counter, &'a [u8]), f64>,
}

impl<'a> PageCounters<'a> {
    /// Adds a sample. Returns whether it is one of `series`, whatever its value.
    pub(super) fn record(&mut self, series: &[CounterSeries], sample: Sample<'a>) -> bool {
        let named = |series: &&CounterSeries| series.name.as_bytes() == sample.name;
        if !series.iter().any(|series| named(&series)) {
            return false;
        }
        let Some((labels, value)) = sample.read() else {
            return true;
        };
        let fits = |series: &&CounterSeries| {
            let has = |(label, value): (&str, &str)| labels.get(label) == Some(value.as_bytes());
            series.only.is_none_or(has)
        };
        let counter = series.iter().filter(named).find(fits);
        if let Some(series) = counter
            && value.is_finite()
            && value >= 0.0
        {
            self.add(series.counter, labels, value);
        }
        true
    }

    /// Returns the counters; `None` for a page without any.
    ///
    /// `are_absent_hits_none` is true for an engine that shows its cache hits from the first one on.
    pub(super) fn total(&self, are_absent_hits_none: bool) -> Option<EngineCounters> {
        let computed = self.get(Counter::ComputedTokens);
        let mut hits = self.get(Counter::CacheHits);
        let reported = self.get(Counter::PromptTokens);
        if are_absent_hits_none {
            hits = hits.or(reported.map(|_| 0.0));
        }
        let sum = || Some(computed? + hits?);
        let prompt_tokens = reported.or_else(sum);
        let queries = || hits.and(prompt_tokens);
        let counters = EngineCounters {
            started_ms: self
                .get(Counter::Start)
                .map(|seconds| (seconds * 1e3) as u64),
            prompt_tokens,
            generation_tokens: self.get(Counter::GenerationTokens),
            cache_queries: self.get(Counter::CacheQueries).or_else(queries),
            cache_hits: hits,
            prefill: self.durations(Counter::PrefillSeconds, Counter::PrefillCount),
            decode: self.durations(Counter::DecodeSeconds, Counter::DecodeCount),
            queue: self.durations(Counter::QueueSeconds, Counter::QueueCount),
            ttft: self.durations(Counter::TtftSeconds, Counter::TtftCount),
        };
        (counters != EngineCounters::default()).then_some(counters)
    }

    fn add(&mut self, counter: Counter, labels: Labels<'a>, value: f64) {
        if labels.get(TENSOR_RANK).is_some() {
            let rank = labels.get(DATA_RANK).unwrap_or_default();
            let known = self.ranks.entry((counter, rank)).or_default();
            *known = known.max(value);
            return;
        }
        let sum = self.sums.entry(counter).or_default();
        *sum = match counter {
            // Of several processes behind one address, the newest is the one that changed.
            Counter::Start => sum.max(value),
            _ => *sum + value,
        };
    }

    fn get(&self, counter: Counter) -> Option<f64> {
        let ranks = self.ranks.range((counter, &[][..])..);
        let ranks = ranks.take_while(|((other, _), _)| *other == counter);
        let values = self.sums.get(&counter).into_iter();
        let values = values.chain(ranks.map(|(_, value)| value));
        values.copied().reduce(|a, b| a + b)
    }

    /// Returns a histogram of durations. An engine that counts only seconds has a count of 0.
    fn durations(&self, seconds: Counter, count: Counter) -> Option<Total> {
        Some(Total {
            seconds: self.get(seconds)?,
            count: self.get(count).unwrap_or_default(),
        })
    }
}

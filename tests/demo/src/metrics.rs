//! Metrics of the requests of a run, or of one region's clients in it.
//!
//! A run scales all times and rates to the engines' clock: with engines ten times faster than real time, a
//! measured second counts as ten. The time of Envoy, the service and this machine then counts ten times too, in every run.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;
use statrs::statistics::{Data, Distribution as _, OrderStatistics as _};

use crate::record::{Outcome, RequestRecord};

/// The metrics of some requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestMetrics {
    /// Complete responses to requests that were sent in the measurement window.
    pub completed: usize,
    /// Requests without a complete response, in the whole run.
    pub failed: usize,
    /// Complete responses per second that ended in the window.
    pub requests_per_s: f64,
    /// Output tokens per second of these responses.
    pub output_tokens_per_s: f64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Bytes of the prompts' text.
    pub prompt_bytes: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Cached tokens over the prompt tokens of all requests, as the engines report them. A failed request counts with none cached, and
    /// with the others' tokens per byte: a system that fails long prompts has no better cache for it.
    pub cache_hit_ratio: f64,
    /// Time to first token.
    pub ttft_ms: Summary,
    /// Time to the end of the response.
    pub e2e_ms: Summary,
    /// Time in the service's queue; `None` where no answer tells it.
    pub queue_ms: Option<Summary>,
    /// Share of the requests that another region than the client's served.
    pub forwarded_share: f64,
    /// Later turns of conversations that the client's region served.
    pub local_turns: CacheHits,
    /// Later turns of conversations that another region served.
    pub forwarded_turns: CacheHits,
}

/// Cache hits of later turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheHits {
    /// Turns.
    pub turns: usize,
    /// Cached tokens over prompt tokens of these turns.
    pub hit_ratio: f64,
}

/// Summary of a distribution, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl RequestMetrics {
    /// The metrics of `records` over a window of the run, on a clock `speed` times as fast as this machine's.
    #[must_use]
    pub fn of<'a>(
        records: impl IntoIterator<Item = &'a RequestRecord>,
        window: &Range<Duration>,
        speed: f64,
    ) -> Self {
        let (mut sent, mut ended, mut failed, mut lost_bytes) = (Vec::new(), Vec::new(), 0, 0);
        for record in records {
            let Ok(outcome) = &record.outcome else {
                failed += 1;
                if window.contains(&record.sent) {
                    lost_bytes += record.prompt_bytes;
                }
                continue;
            };
            if window.contains(&record.ended) {
                ended.push(outcome);
            }
            if window.contains(&record.sent) {
                sent.push((record, outcome));
            }
        }
        let seconds = window.end.saturating_sub(window.start).as_secs_f64() * speed;
        let output = |outcome: &&Outcome| outcome.usage.output;
        let outcomes = || sent.iter().map(|(_, outcome)| *outcome);
        let times = |time: fn(&RequestRecord, &Outcome) -> Option<Duration>| {
            let sent = sent.iter();
            let times = sent.filter_map(|(record, outcome)| time(record, outcome));
            Summary::of(times.map(|time| time.as_secs_f64() * speed))
        };
        let follow_ups = |is_forwarded| {
            let turns = sent.iter().filter(|(record, _)| record.is_follow_up);
            let turns = turns.filter(|(record, _)| record.is_forwarded() == is_forwarded);
            CacheHits {
                turns: turns.clone().count(),
                hit_ratio: hit_ratio(turns.map(|(_, outcome)| *outcome)),
            }
        };
        let forwarded = sent.iter().filter(|(record, _)| record.is_forwarded());
        let prompt_bytes: u64 = sent.iter().map(|(record, _)| record.prompt_bytes).sum();
        // The prompts of a simulation have no bytes.
        let all_bytes = (prompt_bytes + lost_bytes).max(1);
        let cached_bytes = hit_ratio(outcomes()) * prompt_bytes.max(1) as f64;
        Self {
            completed: sent.len(),
            failed,
            requests_per_s: ratio(ended.len() as f64, seconds),
            output_tokens_per_s: ratio(ended.iter().map(output).sum::<u64>() as f64, seconds),
            prompt_tokens: outcomes().map(|outcome| outcome.usage.prompt).sum(),
            prompt_bytes,
            output_tokens: outcomes().map(|outcome| outcome.usage.output).sum(),
            cache_hit_ratio: ratio(cached_bytes, all_bytes as f64),
            ttft_ms: times(|_, outcome| Some(outcome.ttft)),
            e2e_ms: times(|record, _| Some(record.ended.saturating_sub(record.sent))),
            queue_ms: sent
                .iter()
                .any(|(_, outcome)| outcome.queued.is_some())
                .then(|| times(|_, outcome| outcome.queued)),
            forwarded_share: ratio(forwarded.count() as f64, sent.len() as f64),
            local_turns: follow_ups(false),
            forwarded_turns: follow_ups(true),
        }
    }

    /// The main metrics in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{:.0} tokens/s, TTFT {:.0} ms (p50) {:.0} ms (p90), {:.0} % cached, {:.1} % forwarded, {} failed",
            self.output_tokens_per_s,
            self.ttft_ms.p50,
            self.ttft_ms.p90,
            self.cache_hit_ratio * 100.0,
            self.forwarded_share * 100.0,
            self.failed,
        )
    }
}

impl Summary {
    /// The summary of times in seconds; zeros without times.
    fn of(seconds: impl Iterator<Item = f64>) -> Self {
        let mut ms = Data::new(seconds.map(|seconds| seconds * 1e3).collect::<Vec<f64>>());
        if ms.is_empty() {
            return Self::default();
        }
        Self {
            mean: round(ms.mean().unwrap_or_default()),
            p50: round(ms.percentile(50)),
            p90: round(ms.percentile(90)),
            p99: round(ms.percentile(99)),
        }
    }
}

fn hit_ratio<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> f64 {
    let (cached, prompt) = outcomes.fold((0, 0), |(cached, prompt), outcome| {
        (cached + outcome.usage.cached, prompt + outcome.usage.prompt)
    });
    ratio(cached as f64, prompt as f64)
}

/// The ratio of two numbers to five digits after the point; 0 over nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole * 1e5).round() / 1e5
    } else {
        0.0
    }
}

/// Rounds to three digits after the point, the resolution of the measurements.
#[must_use]
pub fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::Usage;

    /// A later turn of `region` that `served` answered, sent and ended at these seconds. A replica of the client's region has
    /// half of the prompt cached, another one less.
    pub(crate) fn record(region: usize, served: usize, sent: u64, ended: u64) -> RequestRecord {
        RequestRecord {
            region,
            served: Some(served),
            sent: Duration::from_secs(sent),
            ended: Duration::from_secs(ended),
            prompt_bytes: 400,
            is_follow_up: true,
            outcome: Ok(Outcome {
                ttft: Duration::from_millis(100),
                queued: None,
                usage: Usage {
                    prompt: 100,
                    cached: if region == served { 50 } else { 40 },
                    output: 30,
                },
            }),
        }
    }

    const WINDOW: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(12);

    #[test]
    fn times_and_rates_are_scaled_to_the_engines_clock() {
        let records = [record(0, 0, 3, 4), record(0, 1, 5, 6)];
        let metrics = RequestMetrics::of(&records, &WINDOW, 10.0);
        assert_eq!((metrics.completed, metrics.failed), (2, 0));
        assert_eq!(metrics.ttft_ms.p50, 1_000.0);
        assert_eq!(metrics.e2e_ms.mean, 10_000.0);
        assert_eq!((metrics.prompt_tokens, metrics.prompt_bytes), (200, 800));
        assert_eq!(metrics.requests_per_s, 0.02); // 2 in 100 s
        assert_eq!(metrics.output_tokens_per_s, 0.6);
    }

    #[test]
    fn rates_count_responses_that_end_in_the_window_and_times_requests_sent_in_it() {
        let records = [record(0, 0, 1, 4), record(0, 0, 11, 13)];
        let metrics = RequestMetrics::of(&records, &WINDOW, 1.0);
        assert_eq!((metrics.completed, metrics.requests_per_s), (1, 0.1));
    }

    #[test]
    fn failures_count_in_the_whole_run() {
        let mut lost = record(0, 0, 0, 1);
        lost.outcome = Err("gone".into());
        let metrics = RequestMetrics::of(&[lost], &WINDOW, 1.0);
        assert_eq!((metrics.completed, metrics.failed), (0, 1));
    }

    #[test]
    fn a_failed_prompt_is_one_without_cached_tokens() {
        let answered = record(0, 0, 3, 4);
        let mut lost = record(0, 0, 3, 4);
        (lost.outcome, lost.prompt_bytes) = (Err("gone".into()), 3 * answered.prompt_bytes);
        let metrics = RequestMetrics::of(&[answered, lost], &WINDOW, 1.0);
        assert_eq!(metrics.cache_hit_ratio, 0.125); // 50 of 400 tokens
    }

    #[test]
    fn later_turns_count_by_the_region_that_served_them() {
        let mut first = record(0, 1, 5, 6);
        first.is_follow_up = false;
        let records = [record(0, 0, 3, 4), record(0, 1, 5, 6), first];
        let metrics = RequestMetrics::of(&records, &WINDOW, 1.0);
        assert_eq!(metrics.forwarded_share, 0.66667);
        let hits = |turns, hit_ratio| CacheHits { turns, hit_ratio };
        assert_eq!(metrics.local_turns, hits(1, 0.5));
        assert_eq!(metrics.forwarded_turns, hits(1, 0.4));
    }

    #[test]
    fn a_summary_has_the_mean_and_percentiles_in_milliseconds() {
        let summary = Summary::of((1..=100).map(|ms| f64::from(ms) / 1e3));
        assert!((summary.mean - 50.5).abs() < 0.1 && (summary.p50 - 50.0).abs() < 1.0);
        assert!((summary.p90 - 90.0).abs() < 1.0 && (summary.p99 - 99.0).abs() < 1.0);
        assert_eq!(Summary::of(std::iter::empty()), Summary::default());
    }
}

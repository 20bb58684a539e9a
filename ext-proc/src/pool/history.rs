//! Ten minutes of a pool: a sample of its traffic every few seconds, for the charts of the live page.
//!
//! A monitoring system keeps weeks of the metrics. The history is for the operator who opens the page after something
//! happened, and it costs a bounded amount of memory for each pool.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use isotherm_router::{Counters, Stats};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::{CountedTokens, Pool};
use crate::decision_log::unix_ms;

/// Time between two samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Samples that are kept: ten minutes.
const SAMPLES_MAX: usize = 120;
/// The longest time that a sample tells apart: twenty minutes, in microseconds.
const FIRST_BYTE_MAX_US: u64 = 1_200_000_000;
/// Digits of a time that a sample keeps: the error of a quantile is below 1 %.
const SIGNIFICANT_DIGITS: u8 = 2;

/// The last samples of a pool.
#[derive(Debug)]
pub(crate) struct PoolHistory {
    first_bytes: Mutex<Histogram<u32>>,
    samples: Mutex<VecDeque<HistorySample>>,
}

/// The traffic of a pool since the sample before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HistorySample {
    /// End of the interval, in milliseconds since 1970.
    pub(crate) time_unix_ms: u64,
    /// Length of the interval.
    pub(crate) seconds: f64,
    /// Dispatched requests by reason.
    pub(crate) decisions: BTreeMap<&'static str, u64>,
    /// Rejected requests.
    pub(crate) rejected: u64,
    /// Requests without a good response.
    pub(crate) failed: u64,
    /// Prompt tokens whose cache hits are known.
    pub(crate) prompt_tokens: u64,
    /// Prompt tokens that engines found in their caches.
    pub(crate) cached_tokens: u64,
    /// Median time to the first byte, in milliseconds.
    pub(crate) ttft_p50_ms: Option<f64>,
    /// 95th percentile of the time to the first byte, in milliseconds.
    pub(crate) ttft_p95_ms: Option<f64>,
    /// Requests in flight at the end of the interval.
    pub(crate) in_flight: usize,
    /// Waiting requests at the end of the interval.
    pub(crate) waiting: usize,
}

impl Default for PoolHistory {
    #[expect(clippy::expect_used, reason = "the bounds are constants")]
    fn default() -> Self {
        let times = Histogram::new_with_max(FIRST_BYTE_MAX_US, SIGNIFICANT_DIGITS)
            .expect("the bounds of the histogram are valid");
        Self {
            first_bytes: Mutex::new(times),
            samples: Mutex::default(),
        }
    }
}

impl PoolHistory {
    /// Counts the time from a request to the first byte of its response.
    pub(crate) fn first_byte(&self, us: u64) {
        self.first_bytes.lock().saturating_record(us);
    }

    /// The samples, the oldest first.
    pub(crate) fn samples(&self) -> Vec<HistorySample> {
        self.samples.lock().iter().cloned().collect()
    }

    /// Adds the sample of the interval between two looks at the pool.
    fn push(&self, before: &Look, now: &Look) {
        let mut times = self.first_bytes.lock();
        let (p50, p95) = (quantile_ms(&times, 0.5), quantile_ms(&times, 0.95));
        times.reset();
        drop(times);
        let sample = HistorySample {
            ttft_p50_ms: p50,
            ttft_p95_ms: p95,
            ..sample(before, now)
        };
        let mut samples = self.samples.lock();
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}

/// The quantile in milliseconds; `None` without times.
fn quantile_ms(times: &Histogram<u32>, share: f64) -> Option<f64> {
    (!times.is_empty()).then(|| times.value_at_quantile(share) as f64 / 1e3)
}

/// The counters of a pool at a time.
struct Look {
    at: Instant,
    stats: Stats,
    counted: CountedTokens,
}

impl Look {
    fn at(pool: &Pool) -> Self {
        Self {
            at: Instant::now(),
            stats: pool.stats(),
            counted: pool.counted_tokens(),
        }
    }
}

fn sample(before: &Look, now: &Look) -> HistorySample {
    let (old, new) = (&before.stats.counters, &now.stats.counters);
    let growth = |count: fn(&Counters) -> u64| count(new).saturating_sub(count(old));
    let decisions = new.decisions.iter().map(|(reason, count)| {
        let before = old.decisions.get(reason).copied().unwrap_or_default();
        ((*reason).into(), count.saturating_sub(before))
    });
    let mut prompt_tokens = growth(|counters| counters.measured_prompt_tokens);
    let mut cached_tokens = growth(|counters| counters.measured_cached_tokens);
    if prompt_tokens == 0 {
        // A cast from float saturates.
        prompt_tokens = (now.counted.prompt - before.counted.prompt) as u64;
        cached_tokens = (now.counted.cached - before.counted.cached) as u64;
    }
    HistorySample {
        time_unix_ms: unix_ms(),
        seconds: now.at.duration_since(before.at).as_secs_f64(),
        decisions: decisions.filter(|(_, count)| *count > 0).collect(),
        rejected: growth(|counters| counters.rejects.values().sum()),
        failed: growth(|counters| counters.finished_failed),
        prompt_tokens,
        cached_tokens,
        in_flight: now.stats.in_flight,
        waiting: now.stats.queue_length,
        ..HistorySample::default()
    }
}

/// Samples a pool until it is gone. Also keeps the start of each replica's failure, which only a look can see.
pub(crate) async fn keep(pool: Weak<Pool>) {
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut before: Option<Look> = None;
    loop {
        ticks.tick().await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let now = Look::at(&pool);
        if let Some(before) = &before {
            pool.history().push(before, &now);
        }
        pool.failures().look(&pool.replicas());
        before = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use isotherm_router::Reason;

    use super::*;

    fn look(at: Instant, prefix: u64, cached: u64) -> Look {
        let counters = Counters {
            decisions: [(Reason::Prefix, prefix)].into(),
            measured_prompt_tokens: 100 * prefix,
            measured_cached_tokens: cached,
            ..Counters::default()
        };
        Look {
            at,
            stats: Stats {
                counters,
                ..Stats::default()
            },
            counted: CountedTokens::default(),
        }
    }

    #[test]
    fn a_sample_has_the_growth_of_its_interval() {
        let start = Instant::now();
        let history = PoolHistory::default();
        for us in [10_000, 20_000, 30_000, 40_000] {
            history.first_byte(us);
        }
        let before = look(start, 10, 0);
        let now = look(start + Duration::from_secs(5), 30, 1_500);
        history.push(&before, &now);
        let sample = history.samples().remove(0);
        assert_eq!(sample.decisions[Reason::Prefix.as_ref()], 20);
        assert_eq!((sample.prompt_tokens, sample.cached_tokens), (2_000, 1_500));
        assert!((sample.seconds - 5.0).abs() < 1e-9);
        let (p50, p95) = (sample.ttft_p50_ms.unwrap(), sample.ttft_p95_ms.unwrap());
        assert!(
            (p50 / 20.0 - 1.0).abs() < 0.1 && (p95 / 40.0 - 1.0).abs() < 0.1,
            "{p50} {p95}"
        );
        history.push(&now, &now);
        assert_eq!(history.samples()[1].ttft_p50_ms, None, "times start anew");
        assert!(history.samples()[1].decisions.is_empty());
    }

    #[test]
    fn the_history_is_bounded() {
        let history = PoolHistory::default();
        let same = look(Instant::now(), 1, 1);
        for _ in 0..1_000 {
            history.push(&same, &same);
        }
        assert_eq!(history.samples().len(), SAMPLES_MAX);
    }

    #[test]
    fn a_time_beyond_the_longest_counts_as_the_longest() {
        let history = PoolHistory::default();
        for us in [0, u64::MAX] {
            history.first_byte(us);
        }
        let same = look(Instant::now(), 1, 1);
        history.push(&same, &same);
        let sample = history.samples().remove(0);
        assert_eq!(sample.ttft_p50_ms, Some(0.0));
        let longest = sample.ttft_p95_ms.unwrap() * 1e3 / FIRST_BYTE_MAX_US as f64;
        assert!((longest - 1.0).abs() < 0.01, "{longest}");
    }
}

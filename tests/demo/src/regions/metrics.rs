//! Metrics of the requests of one region, or of all regions.
//!
//! All times and rates are the engines' own: with engines ten times faster than life, a measured second counts as ten,
//! as does the injected delay between regions. Whatever else takes time (Envoy, the service, this machine) counts ten
//! times too much then, in every run alike.

use std::time::Duration;

use serde::Serialize;

use super::record::{RequestRecord, Window};
use crate::client::Usage;
use crate::stats::{Summary, Times, round};

/// The figures of the clients of one region (or of all regions).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestMetrics {
    /// Complete answers to requests that were sent in the part of the run that counts.
    pub requests: usize,
    /// Requests without a complete answer, in the whole run.
    pub failed: usize,
    /// Complete answers in the part that counts.
    pub requests_per_s: f64,
    /// Tokens of these answers.
    pub output_tokens_per_s: f64,
    /// Time to the first token.
    pub ttft_ms: Summary,
    /// Cached tokens over prompt tokens, as the engines report them.
    pub cache_hit_ratio: f64,
    /// Share of the requests that another region answered than the client's.
    pub forwarded_share: f64,
    /// How warm the later turns of conversations were.
    pub follow_ups: FollowUps,
}

/// Cache hits of turns after the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FollowUps {
    /// Later turns that the client's own region served.
    pub local: usize,
    /// Cached tokens over prompt tokens of local turns.
    pub local_hit_ratio: f64,
    /// Later turns that another region served.
    pub forwarded: usize,
    /// Cached tokens over prompt tokens of forwarded turns.
    pub forwarded_hit_ratio: f64,
    /// Of the forwarded ones, those whose turn before was forwarded as well.
    pub stayed: usize,
    /// Cached tokens over prompt tokens of these turns.
    pub stayed_hit_ratio: f64,
}

impl FollowUps {
    /// How warm forwarded turns are compared with those at region; nothing when there are none.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.forwarded > 0 && self.local_hit_ratio > 0.0)
            .then(|| self.forwarded_hit_ratio / self.local_hit_ratio)
    }
}

/// Prompt tokens and those of them that were cached.
#[derive(Default)]
struct CacheHits {
    turns: usize,
    prompt: u64,
    cached: u64,
}

impl CacheHits {
    fn count(&mut self, usage: Usage) {
        self.turns += 1;
        self.prompt += usage.prompt;
        self.cached += usage.cached;
    }

    fn ratio(&self) -> f64 {
        if self.prompt == 0 {
            0.0
        } else {
            round(self.cached as f64 / self.prompt as f64)
        }
    }
}

impl RequestMetrics {
    /// The figures of the records that `of` chooses, with engines `speed` times faster than life.
    #[must_use]
    pub fn of(
        records: &[RequestRecord],
        window: Window,
        speed: f64,
        chosen: impl Fn(&RequestRecord) -> bool,
    ) -> Self {
        let mut figures = Self::default();
        let (mut ttft, mut all) = (Times::default(), CacheHits::default());
        let (mut local, mut forwarded, mut stayed) = (
            CacheHits::default(),
            CacheHits::default(),
            CacheHits::default(),
        );
        let (mut completed, mut output, mut elsewhere) = (0_usize, 0_u64, 0_usize);
        for record in records.iter().filter(|record| chosen(record)) {
            let Some(outcome) = record.outcome else {
                figures.failed += 1;
                continue;
            };
            if window.holds(record.ended) {
                completed += 1;
                output += outcome.usage.output;
            }
            if !window.holds(record.sent) {
                continue;
            }
            figures.requests += 1;
            ttft.record(scaled(outcome.ttft, speed));
            all.count(outcome.usage);
            elsewhere += usize::from(record.is_forwarded());
            if record.follow_up && record.is_forwarded() {
                forwarded.count(outcome.usage);
                if record.after_forwarded {
                    stayed.count(outcome.usage);
                }
            } else if record.follow_up {
                local.count(outcome.usage);
            }
        }
        let seconds = window.seconds() * speed;
        let per_second = |count: f64| {
            if seconds > 0.0 {
                round(count / seconds)
            } else {
                0.0
            }
        };
        figures.requests_per_s = per_second(completed as f64);
        figures.output_tokens_per_s = per_second(output as f64);
        figures.ttft_ms = ttft.summary();
        figures.cache_hit_ratio = all.ratio();
        figures.forwarded_share = round(elsewhere as f64 / figures.requests.max(1) as f64);
        figures.follow_ups = FollowUps {
            local: local.turns,
            local_hit_ratio: local.ratio(),
            forwarded: forwarded.turns,
            forwarded_hit_ratio: forwarded.ratio(),
            stayed: stayed.turns,
            stayed_hit_ratio: stayed.ratio(),
        };
        figures
    }
}

fn scaled(time: Duration, speed: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * speed).unwrap_or(Duration::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::Outcome;
    use super::*;

    /// A request of `region` that `served` answered, from and to these seconds, with half its prompt cached if it was
    /// served at region and nothing otherwise.
    pub(in super::super) fn record(
        region: usize,
        served: usize,
        sent: u64,
        ended: u64,
    ) -> RequestRecord {
        RequestRecord {
            region,
            served: Some(served),
            sent: Duration::from_secs(sent),
            ended: Duration::from_secs(ended),
            follow_up: true,
            after_forwarded: region != served,
            outcome: Some(Outcome {
                ttft: Duration::from_millis(100),
                usage: Usage {
                    prompt: 100,
                    cached: if region == served { 50 } else { 40 },
                    output: 30,
                },
            }),
        }
    }

    const WINDOW: Window = Window {
        from: Duration::from_secs(2),
        to: Duration::from_secs(12),
    };

    #[test]
    fn times_and_rates_are_the_engines_own() {
        let records = [record(0, 0, 3, 4), record(0, 1, 5, 6)];
        let figures = RequestMetrics::of(&records, WINDOW, 10.0, |_| true);
        assert_eq!((figures.requests, figures.failed), (2, 0));
        assert!((figures.ttft_ms.p50 - 1_000.0).abs() < 1.0);
        assert!((figures.requests_per_s - 0.02).abs() < 1e-9); // 2 in 100 s
        assert!((figures.output_tokens_per_s - 0.6).abs() < 1e-9);
    }

    #[test]
    fn an_answer_counts_where_it_ended_and_a_wait_where_it_began() {
        let records = [record(0, 0, 1, 4), record(0, 0, 11, 13)];
        let figures = RequestMetrics::of(&records, WINDOW, 1.0, |_| true);
        assert_eq!(figures.requests, 1, "the second was sent in time");
        assert!(
            (figures.requests_per_s - 0.1).abs() < 1e-9,
            "the first ended in time"
        );
    }

    #[test]
    fn failures_count_whenever_they_happen() {
        let mut lost = record(0, 0, 0, 1);
        lost.outcome = None;
        let figures = RequestMetrics::of(&[lost], WINDOW, 1.0, |_| true);
        assert_eq!((figures.requests, figures.failed), (0, 1));
    }

    #[test]
    fn forwarded_turns_are_compared_with_those_at_home() {
        let mut first_away = record(0, 1, 5, 6);
        first_away.after_forwarded = false;
        let records = [
            record(0, 0, 3, 4),
            record(0, 1, 5, 6),
            first_away,
            record(1, 1, 5, 6),
        ];
        let figures = RequestMetrics::of(&records, WINDOW, 1.0, |record| record.region == 0);
        assert!((figures.forwarded_share - 0.667).abs() < 1e-9);
        let turns = figures.follow_ups;
        assert_eq!((turns.local, turns.forwarded, turns.stayed), (1, 2, 1));
        assert!((turns.ratio().unwrap() - 0.8).abs() < 1e-9);
        assert_eq!(FollowUps::default().ratio(), None);
    }
}

//! The figures of a run, as papers give them.
//!
//! The requests after the warm-up count. A request that was refused, or that the run's limit cut off, is a failure: it misses
//! every objective, and its times are infinite (`null` in JSON). So a policy cannot improve a percentile by refusing requests.
//! Percentiles are exact (nearest rank over the counted requests); means are of the answered requests.
//!
//! Goodput is measured at fixed objectives over the time in which clients send. By its own objective, a policy that orders its queue by it would be
//! judged by its own rule; until the last answer, one long answer would decide it.

mod distribution;

use core::time::Duration;

use serde::Serialize;

use self::distribution::{Times, mean_cv, ratio};
use crate::record::{Outcome, ReplicaSample, RequestRecord};

/// Objectives of the time to first token at which goodput is measured.
pub const GOODPUT_SLOS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// The figures of a run. Times are in seconds, shares from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Requests counted.
    pub requests: usize,
    /// Counted requests that were rejected or cut off.
    pub failed: usize,
    /// Prompt tokens found in caches, of all prompt tokens of answered requests.
    pub hit_ratio: f64,
    /// Time to first token at the client, mean over the answered requests.
    pub ttft_mean_s: f64,
    /// 10th percentile.
    pub ttft_p10_s: f64,
    /// 25th percentile.
    pub ttft_p25_s: f64,
    /// Median.
    pub ttft_p50_s: f64,
    /// 75th percentile.
    pub ttft_p75_s: f64,
    /// 90th percentile.
    pub ttft_p90_s: f64,
    /// 99th percentile.
    pub ttft_p99_s: f64,
    /// From sending to the end of the answer, mean over the answered requests.
    pub e2e_mean_s: f64,
    /// 10th percentile.
    pub e2e_p10_s: f64,
    /// 25th percentile.
    pub e2e_p25_s: f64,
    /// Median.
    pub e2e_p50_s: f64,
    /// 75th percentile.
    pub e2e_p75_s: f64,
    /// 90th percentile.
    pub e2e_p90_s: f64,
    /// 99th percentile.
    pub e2e_p99_s: f64,
    /// Prompt and output tokens of the answers that ended while clients sent, over the time from the first sending to the last
    /// one (or to when the clients were told to stop). Where that is no half of the answers, as in a burst, until half have
    /// ended.
    pub throughput_tokens_per_s: f64,
    /// Output tokens alone.
    pub output_tokens_per_s: f64,
    /// Answered requests over the same time.
    pub throughput_requests_per_s: f64,
    /// Length of that time in seconds.
    pub span_s: f64,
    /// Requests whose first token came within the objective, of all counted: DualMap's effective request capacity.
    pub slo_attainment: f64,
    /// Number of requests whose first token came within the objective.
    pub within_slo: usize,
    /// Goodput at an objective of 1 s: requests whose first token came within it, over the time in which clients sent.
    pub goodput_1s_per_s: f64,
    /// Goodput at an objective of 2 s.
    pub goodput_2s_per_s: f64,
    /// Goodput at an objective of 5 s.
    pub goodput_5s_per_s: f64,
    /// Goodput at an objective of 10 s.
    pub goodput_10s_per_s: f64,
    /// Length of the time in which clients sent, in seconds.
    pub sending_s: f64,
    /// Standard deviation over mean of the replicas' pending prefill tokens, mean over the samples in which there are any.
    pub load_cv: f64,
    /// Standard deviation over mean of the replicas' outstanding requests, mean over the samples in which there are any.
    pub outstanding_cv: f64,
    /// Wait in routers' queues, median.
    pub queued_p50_s: f64,
    /// 90th percentile.
    pub queued_p90_s: f64,
    /// Answered requests that waited in a router, of all answered ones.
    pub queued_share: f64,
    /// Answered requests that were served in another region than their own.
    pub forwarded_share: f64,
}

impl Summary {
    /// Goodput at each of [`GOODPUT_SLOS`], in requests a second.
    pub fn goodputs(&self) -> [f64; 4] {
        [
            self.goodput_1s_per_s,
            self.goodput_2s_per_s,
            self.goodput_5s_per_s,
            self.goodput_10s_per_s,
        ]
    }

    /// The share of the counted requests whose first token came within one of [`GOODPUT_SLOS`].
    pub fn share_within(&self, slo: Duration) -> Option<f64> {
        let at = GOODPUT_SLOS.iter().position(|other| *other == slo)?;
        let goodput = self.goodputs().get(at).copied()?;
        Some(ratio(goodput * self.sending_s, self.requests as f64))
    }
}

impl Outcome {
    /// Figures of the run without its warm-up.
    pub fn summary(&self, slo: Duration) -> Summary {
        let counted = self.requests.iter().filter(|request| !request.warmup);
        let counted: Vec<&RequestRecord> = counted.collect();
        let answered = counted
            .iter()
            .copied()
            .filter(|request| request.is_answered());
        let answered: Vec<&RequestRecord> = answered.collect();
        let first_sent = counted.iter().map(|request| request.sent).min();
        let last_sent = counted.iter().map(|request| request.sent).max();
        // Until the last end, the length of a single last answer would decide.
        let ends = Times::new(answered.iter().filter_map(|request| request.ended));
        let until = self.sends_until.or(last_sent).max(ends.percentile(50));
        let until = until.map(|until| until.min(ends.last()));
        let span = until
            .zip(first_sent)
            .map(|(until, first)| until.saturating_sub(first));
        let span_s = span.unwrap_or_default().as_secs_f64();
        let per_s = |total: f64| ratio(total, span_s);
        let in_span = answered
            .iter()
            .copied()
            .filter(|request| request.ended <= until);
        let in_span: Vec<&RequestRecord> = in_span.collect();
        let sum_of = |requests: &[&RequestRecord], of: fn(&RequestRecord) -> u32| -> f64 {
            requests.iter().map(|request| f64::from(of(request))).sum()
        };
        let sum = |of| sum_of(&answered, of);
        let in_span_sum = |of| sum_of(&in_span, of);
        let prompt = sum(|request| request.prompt_tokens);
        let span_prompt = in_span_sum(|request| request.prompt_tokens);
        let span_output = in_span_sum(|request| request.output_tokens);
        let within = |slo: Duration| {
            let is_within = |request: &&&RequestRecord| request.ttft() <= Some(slo);
            answered.iter().filter(is_within).count()
        };
        let within_slo = within(slo);
        // Until the same moment for every policy; a burst in one instant has no time but that of its answers.
        let sends_until = self.sends_until.or(last_sent).max(first_sent);
        let sending = sends_until
            .zip(first_sent)
            .map(|(until, first)| until.saturating_sub(first))
            .filter(|sending| !sending.is_zero());
        let sending_s = sending.map_or(span_s, |sending| sending.as_secs_f64());
        let goodputs = GOODPUT_SLOS.map(|slo| ratio(within(slo) as f64, sending_s));
        let [
            goodput_1s_per_s,
            goodput_2s_per_s,
            goodput_5s_per_s,
            goodput_10s_per_s,
        ] = goodputs;
        let forwarded = answered.iter().filter(|request| request.forwarded).count();
        let failed = counted.len() - answered.len();
        let ttft = answered.iter().filter_map(|request| request.ttft());
        let ttft = Times::new(ttft).with_failures(failed);
        let e2e = answered.iter().filter_map(|request| request.e2e());
        let e2e = Times::new(e2e).with_failures(failed);
        let waited = answered.iter().filter(|request| !request.queued.is_zero());
        let waited = waited.count() as f64;
        let queued = Times::new(answered.iter().map(|request| request.queued));
        let sent = first_sent.zip(last_sent);
        let cv = |of: fn(&ReplicaSample) -> f64| mean_cv(&self.samples, sent, of);
        Summary {
            requests: counted.len(),
            failed,
            hit_ratio: ratio(sum(|request| request.cached_tokens), prompt),
            ttft_mean_s: ttft.mean_s(),
            ttft_p10_s: ttft.percentile_s(10),
            ttft_p25_s: ttft.percentile_s(25),
            ttft_p50_s: ttft.percentile_s(50),
            ttft_p75_s: ttft.percentile_s(75),
            ttft_p90_s: ttft.percentile_s(90),
            ttft_p99_s: ttft.percentile_s(99),
            e2e_mean_s: e2e.mean_s(),
            e2e_p10_s: e2e.percentile_s(10),
            e2e_p25_s: e2e.percentile_s(25),
            e2e_p50_s: e2e.percentile_s(50),
            e2e_p75_s: e2e.percentile_s(75),
            e2e_p90_s: e2e.percentile_s(90),
            e2e_p99_s: e2e.percentile_s(99),
            throughput_tokens_per_s: per_s(span_prompt + span_output),
            output_tokens_per_s: per_s(span_output),
            throughput_requests_per_s: per_s(in_span.len() as f64),
            span_s,
            slo_attainment: ratio(within_slo as f64, counted.len() as f64),
            within_slo,
            goodput_1s_per_s,
            goodput_2s_per_s,
            goodput_5s_per_s,
            goodput_10s_per_s,
            sending_s,
            load_cv: cv(|replica| replica.pending_prefill_tokens as f64),
            outstanding_cv: cv(|replica| f64::from(replica.outstanding)),
            queued_p50_s: queued.percentile_s(50),
            queued_p90_s: queued.percentile_s(90),
            queued_share: ratio(waited, answered.len() as f64),
            forwarded_share: ratio(forwarded as f64, answered.len() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sample;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Sent at `sent`, with its first token after `ttft` seconds, and its end two seconds later.
    fn answered(sent: u64, ttft: u64) -> RequestRecord {
        RequestRecord {
            sent: s(sent),
            dispatched: Some(s(sent)),
            first_token: Some(s(sent + ttft)),
            ended: Some(s(sent + ttft + 2)),
            replica: Some(0),
            prompt_tokens: 100,
            cached_tokens: 25,
            output_tokens: 10,
            queued: s(ttft / 2),
            forwarded: sent.is_multiple_of(2),
            ..RequestRecord::default()
        }
    }

    fn refused(sent: u64) -> RequestRecord {
        RequestRecord {
            first_token: None,
            cached_tokens: 0,
            output_tokens: 0,
            refused: Some(isotherm_router::RejectReason::QueueFull),
            ..answered(sent, 1)
        }
    }

    fn sample(at: u64, pending: [u64; 4]) -> Sample {
        let replicas = (0..).zip(pending).map(|(replica, tokens)| ReplicaSample {
            replica,
            outstanding: 2,
            waiting: 0,
            pending_prefill_tokens: tokens,
            blocks_held: 0,
        });
        Sample {
            at: s(at),
            queued: 0,
            replicas: replicas.collect(),
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn figures_leave_out_the_warmup() {
        let mut requests: Vec<RequestRecord> = (1..=10).map(|i| answered(10 + i, i)).collect();
        requests.push(refused(15));
        requests.push(RequestRecord {
            warmup: true,
            ..answered(0, 100)
        });
        let outcome = Outcome {
            requests,
            ..Outcome::default()
        };
        let summary = outcome.summary(s(5));
        assert_eq!((summary.requests, summary.failed), (11, 1));
        assert_eq!(summary.within_slo, 5);
        assert!(
            near(summary.slo_attainment, 5.0 / 11.0),
            "a refusal misses it"
        );
        assert!(near(summary.ttft_p50_s, 6.0) && near(summary.ttft_p90_s, 10.0));
        assert!(summary.ttft_p99_s.is_infinite(), "a refusal is in the tail");
        assert!(near(summary.ttft_mean_s, 5.5), "of the answered requests");
        assert!(near(summary.e2e_p50_s, 8.0));
        // Clients send from 11 to 20 s.
        assert!(near(summary.goodput_1s_per_s, 1.0 / 9.0));
        assert!(near(summary.goodput_5s_per_s, 5.0 / 9.0));
        assert!(near(summary.goodput_10s_per_s, 10.0 / 9.0));
        assert!(near(summary.share_within(s(5)).unwrap(), 5.0 / 11.0));
        assert_eq!(summary.share_within(s(3)), None);
        assert!(near(summary.hit_ratio, 0.25));
        // Half of the answers end at 14, 16, 18, 20, 22 s; the last request is sent at 20 s.
        assert!(near(summary.span_s, 11.0));
        assert!(near(summary.throughput_tokens_per_s, 550.0 / 11.0));
        assert!(near(summary.throughput_requests_per_s, 5.0 / 11.0));
        assert!(near(summary.queued_p90_s, 4.0));
        assert!(near(summary.forwarded_share, 0.5));
    }

    #[test]
    fn a_policy_that_refuses_has_no_better_percentiles() {
        let figures = |requests: Vec<RequestRecord>| {
            let outcome = Outcome {
                requests,
                ..Outcome::default()
            };
            outcome.summary(s(5))
        };
        let mut late: Vec<RequestRecord> = (0..10).map(|i| answered(i, 1)).collect();
        late.extend((10..20).map(|i| answered(i, 60)));
        let mut refusing = late.clone();
        for request in refusing.iter_mut().skip(10) {
            *request = refused(request.sent.as_secs());
        }
        let (late, refusing) = (figures(late), figures(refusing));
        assert!(near(late.ttft_p90_s, 60.0) && refusing.ttft_p90_s.is_infinite());
        assert!(near(late.goodput_1s_per_s, refusing.goodput_1s_per_s));
        assert!(
            serde_json::to_value(&refusing)
                .unwrap()
                .get("ttft_p90_s")
                .is_some_and(serde_json::Value::is_null)
        );
    }

    #[test]
    fn throughput_counts_responses_that_end_while_clients_send() {
        let mut requests: Vec<RequestRecord> = (0..100).map(|i| answered(i, 1)).collect();
        let throughput = |requests: &[RequestRecord], sends_until| {
            let outcome = Outcome {
                requests: requests.to_vec(),
                sends_until,
                ..Outcome::default()
            };
            outcome.summary(s(5)).throughput_tokens_per_s
        };
        // Each ends three seconds after it was sent, the last one is sent at 99 s.
        assert!(near(throughput(&requests, None), 97.0 * 110.0 / 99.0));
        assert!(near(
            throughput(&requests, Some(s(80))),
            78.0 * 110.0 / 80.0
        ));
        if let Some(last) = requests.last_mut() {
            last.ended = Some(s(1_000));
        }
        assert!(near(throughput(&requests, None), 97.0 * 110.0 / 99.0));
        let burst: Vec<RequestRecord> = (1..=10).map(|ttft| answered(0, ttft)).collect();
        assert!(near(throughput(&burst, None), 5.0 * 110.0 / 7.0));
        assert!(near(throughput(&burst[..1], None), 110.0 / 3.0));
    }

    #[test]
    fn balance_is_the_mean_over_samples_with_pending_work() {
        let outcome = Outcome {
            requests: vec![answered(10, 1), answered(20, 1)],
            samples: vec![
                sample(5, [9, 0, 0, 0]),
                sample(12, [10, 10, 10, 10]),
                sample(14, [0, 0, 0, 0]),
                sample(16, [40, 0, 0, 0]),
                sample(25, [9, 0, 0, 0]),
            ],
            ..Outcome::default()
        };
        let summary = outcome.summary(s(5));
        // All on one of four: the deviation is the square root of 3 times the mean.
        assert!(
            near(summary.load_cv, 3.0_f64.sqrt() / 2.0),
            "{}",
            summary.load_cv
        );
        assert!(near(summary.outstanding_cv, 0.0));
    }

    #[test]
    fn an_empty_run_has_default_figures() {
        assert_eq!(Outcome::default().summary(s(5)), Summary::default());
    }
}

//! History of a pool's demand: minutes of the last hours, and means of five minutes of the last ten days.
//!
//! A minute without a report is missing, not zero: after an outage of the service, a forecast from zeros would remove the replicas
//! that the returning clients need. Reports stay apart by service until a minute is old, since siblings report late, and twice
//! after a reconnection.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use isotherm_router::Time;

use crate::demand::finite;
use crate::{DemandSample, DemandSums, Signal};

const MINUTE_NANOS: u64 = 60_000_000_000;
const MINUTE_S: f64 = 60.0;
/// Minutes of a bucket.
pub(crate) const BUCKET_MINUTES: u64 = 5;
/// Buckets of a day.
pub(crate) const DAY_BUCKETS: u64 = 288;
/// Minutes kept with their reports.
const MINUTES_MAX: u64 = 180;
/// Buckets kept: the week of the season, the two days over which forecasts are scored, and one more.
const BUCKETS_MAX: u64 = 10 * DAY_BUCKETS;
/// Services whose reports of one minute are kept.
const REPORTERS_MAX: usize = 65;
/// Minutes with a report that a bucket needs.
const BUCKET_MINUTES_MIN: u32 = 3;

/// Demand of a pool at a time, by both signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Demand {
    /// Work of interactive requests, in busy replicas.
    work: f64,
    /// Input tokens of interactive requests a second.
    tokens_per_s: f64,
    /// Work of non-interactive requests, in busy replicas.
    batch_work: f64,
    /// Input tokens of non-interactive requests a second.
    batch_tokens_per_s: f64,
}

impl Demand {
    /// Interactive demand, in the unit of the signal.
    pub(crate) fn interactive(&self, signal: Signal) -> f64 {
        match signal {
            Signal::Work => self.work,
            Signal::InputTokens => self.tokens_per_s,
        }
    }

    /// Non-interactive demand, in the unit of the signal.
    pub(crate) fn batch(&self, signal: Signal) -> f64 {
        match signal {
            Signal::Work => self.batch_work,
            Signal::InputTokens => self.batch_tokens_per_s,
        }
    }

    fn add(&mut self, other: &Self) {
        self.work += other.work;
        self.tokens_per_s += other.tokens_per_s;
        self.batch_work += other.batch_work;
        self.batch_tokens_per_s += other.batch_tokens_per_s;
    }

    fn over(&self, count: f64) -> Self {
        Self {
            work: self.work / count,
            tokens_per_s: self.tokens_per_s / count,
            batch_work: self.batch_work / count,
            batch_tokens_per_s: self.batch_tokens_per_s / count,
        }
    }

    fn sanitized(&self) -> Self {
        Self {
            work: finite(self.work),
            tokens_per_s: finite(self.tokens_per_s),
            batch_work: finite(self.batch_work),
            batch_tokens_per_s: finite(self.batch_tokens_per_s),
        }
    }
}

/// Report of one service about one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct MinuteReport {
    interactive: DemandSums,
    batch: DemandSums,
    waiting_s: f64,
}

/// Sum of the minutes of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Bucket {
    sum: Demand,
    minutes: u32,
}

impl Bucket {
    fn add(&mut self, demand: &Demand) {
        self.sum.add(demand);
        self.minutes += 1;
    }

    fn mean(&self) -> Option<Demand> {
        (self.minutes >= BUCKET_MINUTES_MIN).then(|| self.sum.over(f64::from(self.minutes)))
    }
}

/// Demand of a pool over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct History {
    minutes: BTreeMap<u64, BTreeMap<String, MinuteReport>>,
    buckets: BTreeMap<u64, Bucket>,
    /// Capacity of a replica's KV cache, in tokens.
    kv_tokens: Option<f64>,
}

impl History {
    /// Takes the report of a minute. Reports about the future, or about minutes that are already summed up, are dropped.
    pub(crate) fn report(&mut self, now: Time, sample: DemandSample) {
        self.advance(now);
        let minute = minute_of(sample.minute);
        let current = minute_of(now);
        if minute > current || minute + MINUTES_MAX <= current {
            return;
        }
        let reports = self.minutes.entry(minute).or_default();
        if reports.len() >= REPORTERS_MAX && !reports.contains_key(&sample.reporter) {
            return;
        }
        reports.insert(
            sample.reporter,
            MinuteReport {
                interactive: sanitized(&sample.interactive),
                batch: sanitized(&sample.batch),
                waiting_s: finite(sample.waiting_s),
            },
        );
    }

    /// Tells the capacity of a replica's KV cache.
    pub(crate) fn set_kv_tokens(&mut self, kv_tokens: Option<f64>) {
        if let Some(kv_tokens) = kv_tokens.filter(|tokens| tokens.is_finite() && *tokens >= 1.0) {
            self.kv_tokens = Some(kv_tokens);
        }
    }

    /// Sums up old minutes and forgets old buckets, and minutes of a future that a clock took back.
    pub(crate) fn advance(&mut self, now: Time) {
        let current = minute_of(now);
        self.minutes.split_off(&(current + 1));
        let kept_from = (current + 1).saturating_sub(MINUTES_MAX);
        while let Some((&minute, _)) = self
            .minutes
            .first_key_value()
            .filter(|(minute, _)| **minute < kept_from)
        {
            if let Some(demand) = self.minute(minute) {
                self.buckets
                    .entry(minute / BUCKET_MINUTES)
                    .or_default()
                    .add(&demand);
            }
            self.minutes.remove(&minute);
        }
        let bucket = current / BUCKET_MINUTES;
        self.buckets.split_off(&(bucket + 1));
        self.buckets = self.buckets.split_off(&bucket.saturating_sub(BUCKETS_MAX));
    }

    /// Demand of a minute, if a service reported it.
    fn minute(&self, minute: u64) -> Option<Demand> {
        let reports = self.minutes.get(&minute)?;
        let mut interactive = DemandSums::default();
        let mut batch = DemandSums::default();
        for report in reports.values() {
            interactive.merge(&report.interactive);
            batch.merge(&report.batch);
        }
        let work_s = interactive.work_s + self.waiting_growth_s(minute, reports);
        Some(Demand {
            work: finite(work_s / MINUTE_S).max(self.memory(interactive.kv_token_s)),
            tokens_per_s: interactive.input_tokens / MINUTE_S,
            batch_work: (batch.work_s / MINUTE_S).max(self.memory(batch.kv_token_s)),
            batch_tokens_per_s: batch.input_tokens / MINUTE_S,
        })
    }

    /// Growth of the waiting work in a minute: demand that arrived and that no replica served. Negative if the queue shrank,
    /// since what left the queue arrived before.
    fn waiting_growth_s(&self, minute: u64, reports: &BTreeMap<String, MinuteReport>) -> f64 {
        let before = minute
            .checked_sub(1)
            .and_then(|before| self.minutes.get(&before));
        let Some(before) = before else {
            return 0.0;
        };
        let waiting = |reports: &BTreeMap<String, MinuteReport>| -> f64 {
            reports.values().map(|report| report.waiting_s).sum()
        };
        waiting(reports) - waiting(before)
    }

    /// Replicas whose KV cache the token-seconds of a minute fill.
    fn memory(&self, kv_token_s: f64) -> f64 {
        self.kv_tokens
            .map_or(0.0, |capacity| finite(kv_token_s / MINUTE_S / capacity))
    }

    /// Demand of the last `count` complete minutes, oldest first, without the missing ones.
    pub(crate) fn last_minutes(&self, now: Time, count: u64) -> Vec<Demand> {
        let current = minute_of(now);
        (current.saturating_sub(count)..current)
            .filter_map(|minute| self.minute(minute))
            .collect()
    }

    /// Sums of the latest complete minute with a report, and its number.
    pub(crate) fn last_sums(&self, now: Time) -> Option<(u64, DemandSums)> {
        let (&minute, reports) = self.minutes.range(..minute_of(now)).next_back()?;
        let mut sums = DemandSums::default();
        for report in reports.values() {
            sums.merge(&report.interactive);
        }
        Some((minute, sums))
    }

    /// Means of all complete buckets that have one, by their number.
    pub(crate) fn buckets(&self, now: Time) -> BTreeMap<u64, Demand> {
        let mut buckets = self.buckets.clone();
        for &minute in self.minutes.keys() {
            if let Some(demand) = self.minute(minute) {
                buckets
                    .entry(minute / BUCKET_MINUTES)
                    .or_default()
                    .add(&demand);
            }
        }
        let current = bucket_of(now);
        buckets
            .into_iter()
            .filter(|(bucket, _)| *bucket < current)
            .filter_map(|(bucket, sums)| Some((bucket, sums.mean()?)))
            .collect()
    }

    /// History without values that are no numbers, within its bounds.
    pub(crate) fn sanitized(mut self) -> Self {
        self.kv_tokens = self
            .kv_tokens
            .filter(|tokens| tokens.is_finite() && *tokens >= 1.0);
        for bucket in self.buckets.values_mut() {
            bucket.sum = bucket.sum.sanitized();
        }
        for reports in self.minutes.values_mut() {
            while reports.len() > REPORTERS_MAX {
                reports.pop_last();
            }
            for report in reports.values_mut() {
                report.interactive = sanitized(&report.interactive);
                report.batch = sanitized(&report.batch);
                report.waiting_s = finite(report.waiting_s);
            }
        }
        while self.minutes.len() > MINUTES_MAX as usize {
            self.minutes.pop_first();
        }
        while self.buckets.len() > BUCKETS_MAX as usize {
            self.buckets.pop_first();
        }
        self
    }
}

fn sanitized(sums: &DemandSums) -> DemandSums {
    let mut clean = DemandSums::default();
    clean.merge(sums);
    clean
}

fn minute_of(time: Time) -> u64 {
    time.as_nanos() / MINUTE_NANOS
}

/// Number of the bucket that contains a time.
pub(crate) fn bucket_of(time: Time) -> u64 {
    minute_of(time) / BUCKET_MINUTES
}

/// Buckets that a duration touches, at least one.
pub(crate) fn buckets_in(duration: core::time::Duration) -> u64 {
    duration.as_secs().div_ceil(60 * BUCKET_MINUTES).max(1)
}

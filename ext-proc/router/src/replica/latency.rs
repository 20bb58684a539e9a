//! Speed of a replica and of its pool. A pool has two lines, which finished requests and the engines' counters fit; a replica has
//! the prefill line of its pool, multiplied.
//!
//! *Prefill* is the time to first token by the tokens computed before it. *Decode* is the time per output token by the
//! requests outstanding. `docs/design/learning.md` says which signal teaches which line.

use super::counter_sums::CounterSums;
pub(crate) use super::latency_model::{LatencyModel, SpeedRatios};
pub(crate) use super::least_squares::Measurement;
use super::least_squares::{DecayingLeastSquares, LinearModel, PRESUMED_WEIGHT};
use super::log_ratio::{LogRatioMean, shrunk};
use crate::Time;
use crate::constant::constants;

constants! {
    /// Second presumed point of the prefill line, in tokens.
    PREFILL_AT: f64 = 4_000.0;
    /// Weight of each point of a line that counters scale.
    COUNTED_WEIGHT: f64 = 1.5;
    /// Presumed variance of the logarithm of a prompt's times in an engine's counters.
    COUNTED_VARIANCE: f64 = 1.0;
}

/// Second presumed point of the decode line, in requests. No cost reads this line: the planner does, and the presumed length of an answer without usage.
const DECODE_AT: f64 = 20.0;
/// Bounds of the time per prompt token, in seconds: noise can push a fitted line beyond them.
const TOKEN_S: core::ops::RangeInclusive<f64> = 2e-6..=2e-2;

/// Measurements of a finished request, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestMeasurement {
    /// The time to first token, if the replica computed the prompt.
    pub(crate) prompt: Option<Measurement>,
    /// The time per token of the answer.
    pub(crate) output: Option<Measurement>,
}

/// The line with a time per prompt token within its bounds.
fn bounded(line: LinearModel) -> LinearModel {
    let each_s = line.each_s.clamp(*TOKEN_S.start(), *TOKEN_S.end());
    LinearModel { each_s, ..line }
}

impl Measurement {
    /// Logarithm of the time in multiples of a line's.
    fn log(&self, line: LinearModel) -> Option<f64> {
        let log = (self.seconds / line.at(self.number)).ln();
        log.is_finite().then_some(log)
    }
}

/// Speed of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolLatency {
    prefill: DecayingLeastSquares,
    decode: DecayingLeastSquares,
    /// Mean logarithm of times to first token in multiples of the line, which fits their sum.
    offset: LogRatioMean,
    /// The last ratios that counters showed; they hold while nothing newer is known.
    counted: SpeedRatios,
    pub(crate) model: LatencyModel,
}

impl PoolLatency {
    /// Whether anything has taught the prefill line.
    pub(crate) const fn is_measured(&self) -> bool {
        self.prefill.is_measured() || self.counted.prefill.is_some()
    }

    pub(crate) fn learn(&mut self, measured: RequestMeasurement, now: Time) {
        if let Some(prompt) = measured.prompt {
            if let Some(log) = prompt.log(self.model.prefill) {
                self.offset.learn_lasting(log);
            }
            self.prefill.learn(prompt, self.model.prefill, now);
        }
        if let Some(output) = measured.output {
            self.decode.learn(output, self.model.decode, now);
        }
        self.refresh();
    }

    /// Forgets how long answers took to write.
    pub(crate) fn forget_decode(&mut self) {
        self.decode = DecayingLeastSquares::default();
        self.refresh();
    }

    /// Takes over ratios to the presumed model, as the counters of all engines show them.
    pub(crate) fn learn_counted(&mut self, counted: SpeedRatios) {
        self.counted.prefill = counted.prefill.or(self.counted.prefill);
        self.counted.decode = counted.decode.or(self.counted.decode);
        self.refresh();
    }

    /// Fits the lines to the presumed ones, which count more where the ratios that counters showed scale them.
    fn refresh(&mut self) {
        let line = |fit: &DecayingLeastSquares, line: LinearModel, at: f64, ratio: Option<f64>| {
            let scaled = ratio.map(|ratio| (line.scaled(ratio), COUNTED_WEIGHT.get()));
            let (presumed, weight) = scaled.unwrap_or((line, PRESUMED_WEIGHT.get()));
            fit.line(presumed, at, weight)
        };
        let (LatencyModel { prefill, decode }, counted) = (LatencyModel::default(), self.counted);
        let prefill = line(&self.prefill, prefill, PREFILL_AT.get(), counted.prefill);
        self.model = LatencyModel {
            prefill: bounded(prefill),
            decode: line(&self.decode, decode, DECODE_AT, counted.decode),
        };
    }
}

/// Speed of a replica: its prefill line, relative to the pool's.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaLatency {
    /// Mean logarithm of its times to first token in multiples of the pool's.
    relative: LogRatioMean,
    /// The replica's line, or the pool's.
    pub(crate) prefill: LinearModel,
    /// Whether the line differs from the pool's.
    is_own: bool,
}

impl ReplicaLatency {
    pub(crate) fn new(pool: LinearModel) -> Self {
        Self {
            relative: LogRatioMean::default(),
            prefill: pool,
            is_own: false,
        }
    }

    /// The replica's own line, while it is known to differ from the pool's.
    pub(crate) fn own(&self) -> Option<LinearModel> {
        self.is_own.then_some(self.prefill)
    }

    /// Learns a time to first token.
    pub(crate) fn learn(&mut self, prompt: Measurement, pool: &PoolLatency, now: Time) {
        if let Some(log) = prompt.log(pool.model.prefill) {
            self.relative.learn(log - pool.offset.mean(), now);
        }
    }

    /// Computes the line from the pool's, the engine's counters and the replica's measurements. What is not confirmed drifts back to
    /// the pool's line.
    pub(crate) fn age(&mut self, pool: LinearModel, counted: Option<&CounterSums>, now: Time) {
        let own = self.relative.says_something(now);
        // Counters tell what a replica's own times do not.
        let ratio = match counted {
            _ if own => Some(self.relative.known(now).exp()),
            Some(sums) => sums.prefill_ratio(pool).and_then(|ratio| {
                // Equal engines differ, too, by the noise of the means of so many prompts.
                let log = shrunk(ratio.ln(), COUNTED_VARIANCE.get() / sums.weight(now));
                (log != 0.0).then(|| log.exp())
            }),
            None => None,
        };
        let line = ratio.map_or(pool, |ratio| pool.scaled(ratio));
        self.is_own = line != pool;
        self.prefill = bounded(line);
    }
}

impl Default for ReplicaLatency {
    fn default() -> Self {
        Self::new(LatencyModel::default().prefill)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::{EngineCounters, Source, Total};

    fn at(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    fn prompt(number: f64, token_s: f64, source: Source) -> Measurement {
        Measurement {
            number,
            seconds: 0.05 + number * token_s,
            source,
        }
    }

    fn of(prompt: Measurement) -> RequestMeasurement {
        RequestMeasurement {
            prompt: Some(prompt),
            output: None,
        }
    }

    /// A replica that measured so many prompts, one each 100 ms.
    fn measured(prompts: u32, token_s: f64, source: Source) -> ReplicaLatency {
        let pool = PoolLatency::default();
        let mut speed = ReplicaLatency::default();
        for i in 0..prompts {
            let tokens = f64::from(i * 700 % 3_000);
            let now = at(100 * u64::from(i));
            speed.learn(prompt(tokens, token_s, source), &pool, now);
            speed.age(pool.model.prefill, None, now);
        }
        speed
    }

    #[test]
    fn a_replica_of_its_own_speed_is_told_apart_from_its_pool() {
        for (prompts, source) in [(20, Source::Usage), (20, Source::FirstTokens)] {
            let speed = measured(prompts, 0.000_3, source);
            let learned = speed.own().unwrap().each_s;
            assert!(
                (learned / 0.000_3 - 1.0).abs() < 0.2,
                "{learned} {source:?}"
            );
        }
        assert!(measured(2, 0.000_3, Source::Usage).own().is_none());
        assert!(measured(2, 0.000_3, Source::FirstTokens).own().is_none());
    }

    #[test]
    fn a_slow_replica_that_nothing_confirms_is_back_at_the_pools_speed_within_a_minute() {
        let mut speed = measured(100, 0.000_4, Source::Usage);
        let slow = speed.prefill.each_s;
        assert!(slow > 0.000_3);
        let pool = LatencyModel::default().prefill;
        speed.age(pool, None, at(10_000 + 15_000));
        assert!(speed.prefill.each_s > 0.5 * slow, "not at once");
        speed.age(pool, None, at(10_000 + 60_000));
        assert_eq!(speed.prefill, pool);
    }

    /// Counters of an engine that computed so many prompts of 1,000 tokens a second for 30 s, in this time each.
    fn counters(prompts: f64, prefill_s: f64) -> CounterSums {
        let mut counted = CounterSums::default();
        for s in 0..30 {
            let total = |seconds| Total {
                seconds: prompts * seconds,
                count: prompts,
            };
            let grown = EngineCounters {
                prompt_tokens: Some(prompts * 1_000.0),
                cache_hits: Some(0.0),
                generation_tokens: Some(prompts * 100.0),
                prefill: Some(total(prefill_s)),
                ttft: Some(total(1.0)),
                ..EngineCounters::default()
            };
            counted.on_counters(&grown, at(1_000 * s));
        }
        counted
    }

    #[test]
    fn counters_tell_a_replica_from_its_pool_until_its_own_times_do() {
        let counted = counters(2.0, 0.09 + 1_000.0 * 0.000_3);
        let pool = PoolLatency::default();
        let mut speed = ReplicaLatency::default();
        let ratio = |speed: &ReplicaLatency| speed.prefill.each_s / 0.000_1;
        speed.age(pool.model.prefill, Some(&counted), at(30_000));
        let by_counters = ratio(&speed);
        assert!((2.4..3.1).contains(&by_counters), "{by_counters}");
        for i in 0..40 {
            let measured = prompt(f64::from(i * 700 % 3_000), 0.000_3, Source::FirstTokens);
            speed.learn(measured, &pool, at(30_000));
        }
        speed.age(pool.model.prefill, Some(&counted), at(30_000));
        assert!((2.0..3.2).contains(&ratio(&speed)), "{}", ratio(&speed));
    }

    #[test]
    fn counters_of_a_few_prompts_do_not_tell_a_replica_from_its_pool() {
        let pool = LatencyModel::default().prefill;
        let mut speed = ReplicaLatency::new(pool);
        let twice = 2.0 * pool.at(1_000.0);
        speed.age(pool, Some(&counters(0.3, twice)), at(30_000));
        assert_eq!(speed.prefill, pool);
        speed.age(pool, Some(&counters(3.0, twice)), at(30_000));
        assert!(speed.prefill.each_s > 1.7 * pool.each_s);
    }

    #[test]
    fn counters_do_not_tell_a_replica_whose_own_times_are_the_pools_from_it() {
        let pool = PoolLatency::default();
        let counted = counters(2.0, 2.0 * pool.model.prefill.at(1_000.0));
        let mut speed = ReplicaLatency::default();
        for i in 0..40 {
            let number = f64::from(i * 700 % 3_000);
            let measured = Measurement {
                number,
                seconds: pool.model.prefill.at(number),
                source: Source::FirstTokens,
            };
            speed.learn(measured, &pool, at(30_000));
        }
        speed.age(pool.model.prefill, Some(&counted), at(30_000));
        assert_eq!(speed.prefill, pool.model.prefill);
    }

    #[test]
    fn an_idle_pool_keeps_its_speed() {
        let mut pool = PoolLatency::default();
        for i in 0..100_u32 {
            let measured = prompt(f64::from(i * 700 % 3_000), 0.001, Source::Usage);
            pool.learn(of(measured), at(100 * u64::from(i)));
        }
        let before = pool.model;
        pool.learn(of(prompt(1_000.0, 0.001, Source::Usage)), at(3_600_000));
        assert!((pool.model.prefill.each_s / before.prefill.each_s - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_cold_engines_first_answer_moves_nothing() {
        let mut pool = PoolLatency::default();
        let cold = Measurement {
            number: 100.0,
            seconds: 60.0,
            source: Source::Usage,
        };
        pool.learn(of(cold), at(0));
        let moved = pool.model.prefill.at(100.0) / LatencyModel::default().prefill.at(100.0);
        assert!((moved - 1.0).abs() < 1e-9, "{moved}");
    }
}

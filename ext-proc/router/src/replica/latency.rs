//! Speed of a replica and of its pool. A pool has two lines, which finished requests and the engines' counters fit; a replica has
//! the same lines, multiplied.
//!
//! *Prefill* is the time to first token by the tokens computed before it. *Decode* is the time per output token by the
//! requests outstanding. `docs/design/learning.md` says which signal teaches which line.

use super::counter_sums::CounterSums;
use super::latency_model::{LatencyModel, SpeedRatios};
use super::least_squares::{DecayingLeastSquares, LinearModel, Measurement, PRESUMED_WEIGHT};
use super::log_ratio::{LogRatioMean, shrunk};
use crate::constant::constants;
use crate::{Source, Time};

constants! {
    /// Second presumed point of the prefill line, in tokens.
    PREFILL_AT: f64 = 4_000.0;
    /// Second presumed point of the decode line, in requests.
    DECODE_AT: f64 = 20.0;
    /// Weight of each point of a line that counters scale.
    COUNTED_WEIGHT: f64 = 1.5;
    /// Presumed variance of the logarithm of a prompt's times in an engine's counters.
    COUNTED_VARIANCE: f64 = 1.0;
    /// Time after which a replica's model is computed anew, since what it learned ages.
    REFRESHED_AFTER: core::time::Duration = core::time::Duration::from_secs(1);
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestMeasurement {
    /// Measurements of the prompt, if the replica computed it.
    pub(crate) prompt: Option<PromptMeasurement>,
    /// Measurements of the answer, if known.
    pub(crate) output: Option<AnswerMeasurement>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptMeasurement {
    /// Tokens computed before its first output token, those of earlier requests included.
    pub(crate) tokens: f64,
    /// Time to first token, in seconds.
    pub(crate) ttft_s: f64,
    /// Source of the number of tokens.
    pub(crate) source: Source,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerMeasurement {
    /// Requests outstanding at the same time.
    pub(crate) outstanding: f64,
    pub(crate) tokens: f64,
    /// Time from first to last token, in seconds.
    pub(crate) seconds: f64,
    /// Source of the time.
    pub(crate) source: Source,
}

/// Fits of both lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatencyFit {
    prefill: DecayingLeastSquares,
    decode: DecayingLeastSquares,
}

impl LatencyFit {
    fn learn(&mut self, measured: RequestMeasurement, known: &LatencyModel, now: Time) {
        if let Some(prompt) = measured.prompt {
            let measurement = Measurement {
                number: prompt.tokens,
                seconds: prompt.ttft_s,
                weight: weight_of(prompt.source),
            };
            self.prefill.learn(measurement, known.prefill, now);
        }
        if let Some(output) = measured.output {
            let measurement = Measurement {
                number: output.outstanding,
                seconds: output.seconds / output.tokens,
                weight: weight_of(output.source),
            };
            self.decode.learn(measurement, known.decode, now);
        }
    }

    /// The lines: fitted to the presumed ones, which count more where the ratios that counters showed scale them.
    fn model(&self, counted: SpeedRatios) -> LatencyModel {
        let line = |fit: &DecayingLeastSquares, line: LinearModel, at: f64, ratio: Option<f64>| {
            let scaled = ratio.map(|ratio| (line.scaled(ratio), COUNTED_WEIGHT.get()));
            let (presumed, weight) = scaled.unwrap_or((line, PRESUMED_WEIGHT.get()));
            fit.line(presumed, at, weight)
        };
        let LatencyModel { prefill, decode } = LatencyModel::default();
        let model = LatencyModel {
            prefill: line(&self.prefill, prefill, PREFILL_AT.get(), counted.prefill),
            decode: line(&self.decode, decode, DECODE_AT.get(), counted.decode),
        };
        model.bounded()
    }
}

/// Logarithms of the times of a request in multiples of a model's: of the prompt, and of the answer.
type Logs = [Option<f64>; 2];

impl RequestMeasurement {
    /// The logarithms that tell replicas apart. An answer whose first token was not seen includes the wait in the engine.
    fn logs(&self, model: &LatencyModel) -> Logs {
        let log = |seconds: f64, expected: f64| {
            let log = (seconds / expected).ln();
            log.is_finite().then_some(log)
        };
        let is_whole = |output: &AnswerMeasurement| {
            self.prompt.is_none() && matches!(output.source, Source::Answers)
        };
        let output = self.output.filter(|output| !is_whole(output));
        [
            self.prompt
                .and_then(|prompt| log(prompt.ttft_s, model.prefill.at(prompt.tokens))),
            output.and_then(|output| {
                let expected = model.decode.at(output.outstanding);
                log(output.seconds, output.tokens * expected)
            }),
        ]
    }
}

/// Speed of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolLatency {
    fit: LatencyFit,
    /// Mean logarithms of times in multiples of the lines, which fit their sums: of prompts, and of answers.
    offsets: [LogRatioMean; 2],
    /// The last ratios that counters showed; they hold while nothing newer is known.
    counted: SpeedRatios,
    pub(crate) model: LatencyModel,
}

impl PoolLatency {
    /// Whether anything has taught the prefill line.
    pub(crate) const fn is_measured(&self) -> bool {
        self.fit.prefill.is_measured() || self.counted.prefill.is_some()
    }

    pub(crate) fn learn(&mut self, measured: RequestMeasurement, now: Time) {
        for (offset, log) in self.offsets.iter_mut().zip(measured.logs(&self.model)) {
            if let Some(log) = log {
                offset.learn_lasting(log);
            }
        }
        self.fit.learn(measured, &self.model, now);
        self.refresh();
    }

    /// Forgets how long answers took to write.
    pub(crate) fn forget_decode(&mut self) {
        self.fit.decode = DecayingLeastSquares::default();
        self.offsets[1] = LogRatioMean::default();
        self.refresh();
    }

    /// Takes over ratios to the presumed model, as the counters of all engines show them.
    pub(crate) fn learn_counted(&mut self, counted: SpeedRatios) {
        self.counted.prefill = counted.prefill.or(self.counted.prefill);
        self.counted.decode = counted.decode.or(self.counted.decode);
        self.refresh();
    }

    fn refresh(&mut self) {
        self.model = self.fit.model(self.counted);
    }
}

/// Speed of a replica.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaLatency {
    /// Mean logarithms of times in multiples of the pool's: of prompts, and of answers.
    relative: [LogRatioMean; 2],
    /// The replica's model, or the pool's.
    pub(crate) model: LatencyModel,
    /// Whether the model differs from the pool's.
    is_own: bool,
    refreshed: Time,
}

impl ReplicaLatency {
    pub(crate) fn new(pool: LatencyModel) -> Self {
        Self {
            relative: <[LogRatioMean; 2]>::default(),
            model: pool,
            is_own: false,
            refreshed: Time::ZERO,
        }
    }

    /// The replica's own model, while it is known to differ from the pool's.
    pub(crate) fn own(&self) -> Option<&LatencyModel> {
        self.is_own.then_some(&self.model)
    }

    pub(crate) fn learn(
        &mut self,
        measured: RequestMeasurement,
        pool: &PoolLatency,
        counted: Option<&CounterSums>,
        now: Time,
    ) {
        let logs = measured.logs(&pool.model);
        for ((relative, log), offset) in self.relative.iter_mut().zip(logs).zip(&pool.offsets) {
            if let Some(log) = log {
                relative.learn(log - offset.mean(), now);
            }
        }
        self.refresh(pool.model, counted, now);
    }

    /// Forgets how long answers took to write.
    pub(crate) fn forget_decode(&mut self) {
        self.relative[1] = LogRatioMean::default();
    }

    /// Computes the model anew if that was long ago. What is not confirmed drifts back to the pool's model.
    pub(crate) fn age(&mut self, pool: LatencyModel, counted: Option<&CounterSums>, now: Time) {
        if !self.is_own && counted.is_none() {
            self.model = pool;
        } else if now.since(self.refreshed) >= REFRESHED_AFTER.get() {
            self.refresh(pool, counted, now);
        }
    }

    /// Computes the model from the pool's, the engine's counters and the replica's measurements.
    pub(crate) fn refresh(&mut self, pool: LatencyModel, counted: Option<&CounterSums>, now: Time) {
        self.refreshed = now;
        let counted = counted.map(|sums| sums.speed(&pool).beyond_noise(sums.weight(now)));
        let counted = counted.unwrap_or_default();
        // Counters tell what a replica's own times do not.
        let scale = |line: LinearModel, own: &LogRatioMean, counted: Option<f64>| {
            let own = own.says_something(now).then(|| own.known(now).exp());
            let ratio = own.or(counted);
            ratio.map_or(line, |ratio| line.scaled(ratio))
        };
        let [prefill, decode] = &self.relative;
        self.model = LatencyModel {
            prefill: scale(pool.prefill, prefill, counted.prefill),
            decode: scale(pool.decode, decode, counted.decode),
        };
        self.is_own = self.model != pool;
        self.model = self.model.bounded();
    }
}

impl Default for ReplicaLatency {
    fn default() -> Self {
        Self::new(LatencyModel::default())
    }
}

impl SpeedRatios {
    /// The ratios as far as they exceed the noise of the means of so many prompts, in which equal engines differ, too.
    fn beyond_noise(self, prompts: f64) -> Self {
        let beyond = |ratio: f64| {
            let log = shrunk(ratio.ln(), COUNTED_VARIANCE.get() / prompts);
            (log != 0.0).then(|| log.exp())
        };
        Self {
            prefill: self.prefill.and_then(beyond),
            decode: self.decode.and_then(beyond),
        }
    }
}

/// Weight of a measurement: a presumed part makes it worth less.
const fn weight_of(source: Source) -> f64 {
    match source {
        Source::Usage | Source::Counters => 1.0,
        Source::FirstTokens | Source::Answers | Source::Presumed => 0.25,
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::{EngineCounters, Total};

    fn at(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    fn prompt(tokens: f64, token_s: f64, source: Source) -> RequestMeasurement {
        RequestMeasurement {
            prompt: Some(PromptMeasurement {
                tokens,
                ttft_s: 0.05 + tokens * token_s,
                source,
            }),
            output: None,
        }
    }

    /// A replica that measured so many prompts, one each 100 ms.
    fn measured(prompts: u32, token_s: f64, source: Source) -> ReplicaLatency {
        let pool = PoolLatency::default();
        let mut speed = ReplicaLatency::new(pool.model);
        for i in 0..prompts {
            let tokens = f64::from(i * 700 % 3_000);
            let now = at(100 * u64::from(i));
            speed.learn(prompt(tokens, token_s, source), &pool, None, now);
        }
        speed
    }

    #[test]
    fn a_replica_of_its_own_speed_is_told_apart_from_its_pool() {
        for (prompts, source) in [(20, Source::Usage), (20, Source::FirstTokens)] {
            let speed = measured(prompts, 0.000_3, source);
            let learned = speed.own().unwrap().prefill.each_s;
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
        let slow = speed.model.prefill.each_s;
        assert!(slow > 0.000_3);
        let pool = LatencyModel::default();
        speed.age(pool, None, at(10_000 + 15_000));
        assert!(speed.model.prefill.each_s > 0.5 * slow, "not at once");
        speed.age(pool, None, at(10_000 + 60_000));
        assert_eq!(speed.model, pool);
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
        let mut speed = ReplicaLatency::new(pool.model);
        let ratio = |speed: &ReplicaLatency| speed.model.prefill.each_s / 0.000_1;
        speed.refresh(pool.model, Some(&counted), at(30_000));
        let by_counters = ratio(&speed);
        assert!((2.4..3.1).contains(&by_counters), "{by_counters}");
        for i in 0..40 {
            let measured = prompt(f64::from(i * 700 % 3_000), 0.000_3, Source::FirstTokens);
            speed.learn(measured, &pool, Some(&counted), at(30_000));
        }
        assert!((2.0..3.2).contains(&ratio(&speed)), "{}", ratio(&speed));
    }

    #[test]
    fn counters_of_a_few_prompts_do_not_tell_a_replica_from_its_pool() {
        let pool = LatencyModel::default();
        let mut speed = ReplicaLatency::new(pool);
        let twice = 2.0 * pool.prefill.at(1_000.0);
        speed.refresh(pool, Some(&counters(0.3, twice)), at(30_000));
        assert_eq!(speed.model.prefill, pool.prefill);
        speed.refresh(pool, Some(&counters(3.0, twice)), at(30_000));
        assert!(speed.model.prefill.each_s > 1.7 * pool.prefill.each_s);
    }

    #[test]
    fn counters_do_not_tell_a_replica_whose_own_times_are_the_pools_from_it() {
        let pool = PoolLatency::default();
        let counted = counters(2.0, 2.0 * pool.model.prefill.at(1_000.0));
        let mut speed = ReplicaLatency::new(pool.model);
        for i in 0..40 {
            let tokens = f64::from(i * 700 % 3_000);
            let ttft_s = pool.model.prefill.at(tokens);
            let measured = RequestMeasurement {
                prompt: Some(PromptMeasurement {
                    tokens,
                    ttft_s,
                    source: Source::FirstTokens,
                }),
                output: None,
            };
            speed.learn(measured, &pool, Some(&counted), at(30_000));
        }
        assert_eq!(speed.model.prefill, pool.model.prefill);
    }

    #[test]
    fn an_idle_pool_keeps_its_speed() {
        let mut pool = PoolLatency::default();
        for i in 0..100_u32 {
            let measured = prompt(f64::from(i * 700 % 3_000), 0.001, Source::Usage);
            pool.learn(measured, at(100 * u64::from(i)));
        }
        let before = pool.model;
        pool.learn(prompt(1_000.0, 0.001, Source::Usage), at(3_600_000));
        assert!((pool.model.prefill.each_s / before.prefill.each_s - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_cold_engines_first_answer_moves_nothing() {
        let mut pool = PoolLatency::default();
        let cold = RequestMeasurement {
            prompt: Some(PromptMeasurement {
                tokens: 100.0,
                ttft_s: 60.0,
                source: Source::Usage,
            }),
            output: None,
        };
        pool.learn(cold, at(0));
        let moved = pool.model.prefill.at(100.0) / LatencyModel::default().prefill.at(100.0);
        assert!((moved - 1.0).abs() < 1e-9, "{moved}");
    }
}

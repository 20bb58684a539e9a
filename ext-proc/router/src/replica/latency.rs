//! Speed of a replica and of its pool: two lines that finished requests and the engine's counters fit.
//!
//! *Prefill* is the time to first token by the tokens computed before it. *Decode* is the time per output token by the
//! requests outstanding. `docs/design/default-policy.md` says which signal teaches which line.

use super::counter_sums::CounterSums;
use super::latency_model::{LatencyModel, SpeedRatios};
use super::least_squares::{DecayingLeastSquares, LinearModel, Measurement, PRESUMED_WEIGHT};
use crate::{Source, Time};

/// Second presumed point of the prefill line, in tokens.
const PREFILL_AT: f64 = 4_000.0;
/// Second presumed point of the decode line, in requests.
const DECODE_AT: f64 = 20.0;
/// Weight of each point of a line that counters scale.
const COUNTED_WEIGHT: f64 = 1.5;

/// Weight up to which a replica's own measurements do not count: so few cannot tell a slow replica from long prompts.
const OWN_WEIGHT_MIN: f64 = 3.0;
/// Weight from which a replica's own measurements replace the pool's model.
const OWN_WEIGHT_FULL: f64 = 8.0;
/// Weight that time leaves of the pool's measurements: a pool that idles keeps its lines.
const POOL_WEIGHT_MIN: f64 = 4.0;
/// Time after which a replica's model is computed anew, since confidence falls.
const REFRESHED_AFTER: core::time::Duration = core::time::Duration::from_secs(1);

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
    fn learn(
        &mut self,
        measured: RequestMeasurement,
        known: &LatencyModel,
        weight_min: f64,
        now: Time,
    ) {
        if let Some(prompt) = measured.prompt {
            let measurement = Measurement {
                number: prompt.tokens,
                seconds: prompt.ttft_s,
                weight: weight_of(prompt.source),
            };
            self.prefill
                .learn(measurement, known.prefill, weight_min, now);
        }
        if let Some(output) = measured.output {
            let measurement = Measurement {
                number: output.outstanding,
                seconds: output.seconds / output.tokens,
                weight: weight_of(output.source),
            };
            self.decode
                .learn(measurement, known.decode, weight_min, now);
        }
    }

    /// Forgets how long answers took to write.
    fn forget_decode(&mut self) {
        self.decode = DecayingLeastSquares::default();
    }

    /// The larger weight of both lines, before time takes its share.
    const fn weight_max(&self) -> f64 {
        self.prefill
            .weight_before()
            .max(self.decode.weight_before())
    }

    fn model(&self, presumed: Presumption) -> LatencyModel {
        let Presumption { model, weights } = presumed;
        let [prefill, decode] = weights;
        let model = LatencyModel {
            prefill: self.prefill.line(model.prefill, PREFILL_AT, prefill),
            decode: self.decode.line(model.decode, DECODE_AT, decode),
        };
        model.bounded()
    }
}

/// The model that holds before any request is measured, and the weight of each of its lines.
#[derive(Clone, Copy, Debug)]
struct Presumption {
    model: LatencyModel,
    weights: [f64; 2],
}

impl Presumption {
    const fn of(model: LatencyModel) -> Self {
        Self {
            model,
            weights: [PRESUMED_WEIGHT; 2],
        }
    }
}

impl SpeedRatios {
    fn scale(self, presumed: Presumption) -> Presumption {
        let weight = |ratio: Option<f64>| ratio.map_or(PRESUMED_WEIGHT, |_| COUNTED_WEIGHT);
        let by = |line: LinearModel, ratio: Option<f64>| ratio.map_or(line, |by| line.scaled(by));
        Presumption {
            model: LatencyModel {
                prefill: by(presumed.model.prefill, self.prefill),
                decode: by(presumed.model.decode, self.decode),
            },
            weights: [weight(self.prefill), weight(self.decode)],
        }
    }
}

/// Speed of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolLatency {
    fit: LatencyFit,
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
        self.fit.learn(measured, &self.model, POOL_WEIGHT_MIN, now);
        self.refresh();
    }

    /// Forgets how long answers took to write.
    pub(crate) fn forget_decode(&mut self) {
        self.fit.forget_decode();
        self.refresh();
    }

    /// Takes over ratios to the presumed model, as the counters of all engines show them.
    pub(crate) fn learn_counted(&mut self, counted: SpeedRatios) {
        self.counted.prefill = counted.prefill.or(self.counted.prefill);
        self.counted.decode = counted.decode.or(self.counted.decode);
        self.refresh();
    }

    fn refresh(&mut self) {
        let presumed = Presumption::of(LatencyModel::default());
        self.model = self.fit.model(self.counted.scale(presumed));
    }
}

/// Speed of a replica.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaLatency {
    fit: LatencyFit,
    /// The replica's model, or the pool's.
    pub(crate) model: LatencyModel,
    /// Whether the model differs from the pool's.
    is_own: bool,
    refreshed: Time,
}

impl ReplicaLatency {
    pub(crate) fn new(pool: LatencyModel) -> Self {
        Self {
            fit: LatencyFit::default(),
            model: pool,
            is_own: false,
            refreshed: Time::ZERO,
        }
    }

    /// The replica's own model, while it is confident of one.
    pub(crate) fn own(&self) -> Option<&LatencyModel> {
        self.is_own.then_some(&self.model)
    }

    pub(crate) fn learn(
        &mut self,
        measured: RequestMeasurement,
        pool: LatencyModel,
        counted: Option<&CounterSums>,
        now: Time,
    ) {
        self.fit.learn(measured, &self.model, 0.0, now);
        self.refresh(pool, counted, now);
    }

    /// Forgets how long answers took to write.
    pub(crate) fn forget_decode(&mut self) {
        self.fit.forget_decode();
    }

    /// Computes the model anew if that was long ago. What is not confirmed drifts back to the pool's model.
    pub(crate) fn age(&mut self, pool: LatencyModel, counted: Option<&CounterSums>, now: Time) {
        if !self.is_own && counted.is_none() {
            self.model = pool;
        } else if now.since(self.refreshed) >= REFRESHED_AFTER {
            self.refresh(pool, counted, now);
        }
    }

    /// Computes the model from the pool's, the engine's counters and the replica's measurements.
    pub(crate) fn refresh(&mut self, pool: LatencyModel, counted: Option<&CounterSums>, now: Time) {
        self.refreshed = now;
        if counted.is_none() && self.fit.weight_max() <= OWN_WEIGHT_MIN {
            // No confidence, and nothing to compute.
            self.is_own = false;
            self.model = pool;
            return;
        }
        let mut base = Presumption::of(pool);
        if let Some(sums) = counted {
            let speed = sums.speed(&pool);
            base = speed.toward_one(sums.confidence(now)).scale(base);
        }
        let own = self.fit.model(base);
        let (prefill, decode) = (
            confidence(self.fit.prefill.weight(now)),
            confidence(self.fit.decode.weight(now)),
        );
        self.is_own = prefill > 0.0 || decode > 0.0 || base.model != pool;
        self.model = LatencyModel {
            prefill: base.model.prefill.toward(own.prefill, prefill),
            decode: base.model.decode.toward(own.decode, decode),
        };
        self.model = self.model.bounded();
    }
}

impl Default for ReplicaLatency {
    fn default() -> Self {
        Self::new(LatencyModel::default())
    }
}

impl SpeedRatios {
    /// The ratios, drawn towards 1 as far as confidence lacks.
    fn toward_one(self, confidence: f64) -> Self {
        let toward = |ratio: f64| 1.0 + confidence * (ratio - 1.0);
        let is_known = confidence > 0.01;
        Self {
            prefill: self.prefill.filter(|_| is_known).map(toward),
            decode: self.decode.filter(|_| is_known).map(toward),
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

fn confidence(weight: f64) -> f64 {
    ((weight - OWN_WEIGHT_MIN) / (OWN_WEIGHT_FULL - OWN_WEIGHT_MIN)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

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
        let pool = LatencyModel::default();
        let mut speed = ReplicaLatency::new(pool);
        for i in 0..prompts {
            let tokens = f64::from(i * 700 % 3_000);
            let now = at(100 * u64::from(i));
            speed.learn(prompt(tokens, token_s, source), pool, None, now);
        }
        speed
    }

    #[test]
    fn a_replica_of_its_own_speed_is_told_apart_from_its_pool() {
        for (prompts, source) in [(20, Source::Usage), (60, Source::FirstTokens)] {
            let speed = measured(prompts, 0.000_3, source);
            let learned = speed.own().unwrap().prefill.each_s;
            assert!(
                (learned / 0.000_3 - 1.0).abs() < 0.2,
                "{learned} {source:?}"
            );
        }
        assert!(measured(2, 0.000_3, Source::Usage).own().is_none());
        assert!(measured(8, 0.000_3, Source::FirstTokens).own().is_none());
    }

    #[test]
    fn a_slow_replica_that_nothing_confirms_is_back_at_the_pools_speed_within_a_minute() {
        let mut speed = measured(100, 0.003, Source::Usage);
        let slow = speed.model.prefill.each_s;
        assert!(slow > 0.002);
        let pool = LatencyModel::default();
        speed.age(pool, None, at(10_000 + 15_000));
        assert!(speed.model.prefill.each_s > 0.5 * slow, "not at once");
        speed.age(pool, None, at(10_000 + 60_000));
        assert_eq!(speed.model, pool);
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

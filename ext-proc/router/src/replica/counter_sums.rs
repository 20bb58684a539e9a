//! Decaying sums of an engine's counters, beside what this service sent it.
//!
//! Counters are totals over all requests of an engine, from all its clients, and each counter moves at its own moment: a
//! prompt counts at its first token, its times at its end. Over a while both are means of the same kind of request, so
//! everything here is a ratio of decaying sums, per prompt or per token.

use super::latency_model::{LatencyModel, SpeedRatios};
use super::least_squares::{LinearModel, share_left};
use crate::constant::constants;
use crate::{EngineCounters, Time, Total};

constants! {
    /// Time after which half of a sum is left.
    HALF_LIFE_S: f64 = 30.0;
    /// Prompts from which means say something.
    PROMPTS_MIN: f64 = 8.0;
    /// Time without a prompt that halves what a replica's means are worth; see [`share_left`].
    HALVED_AFTER_S: f64 = 20.0;
    /// Predicted tokens from which the hits of an engine are judged.
    PREDICTED_MIN: f64 = 4_000.0;
    /// Share of the predicted hits from which a prediction counts as right: blocks do not align, and caches evict.
    CREDITED_SHARE: f64 = 0.7;
}
/// Bounds of the ratio of an engine's speed to a presumed one.
const RATIO: core::ops::RangeInclusive<f64> = 1e-3..=1e3;

/// A prompt that an engine answered, as this service saw it; or sums over such prompts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServedPrompt {
    /// Number of the prompts.
    pub(crate) prompts: f64,
    /// Tokens, by the estimate of the filter.
    pub(crate) estimated_tokens: f64,
    /// Tokens that the index predicted to be cached.
    pub(crate) predicted_tokens: f64,
    /// Tokens of earlier answers that were remembered behind them.
    pub(crate) answer_tokens: f64,
    /// Tokens of other prompts that had to be computed first.
    pub(crate) ahead_tokens: f64,
    /// Requests outstanding at the same time.
    pub(crate) outstanding: f64,
}

impl ServedPrompt {
    /// The sums, of which a share is left, with a further prompt.
    fn with(&self, left: f64, prompt: &Self) -> Self {
        Self {
            prompts: self.prompts * left + prompt.prompts,
            estimated_tokens: self.estimated_tokens * left + prompt.estimated_tokens,
            predicted_tokens: self.predicted_tokens * left + prompt.predicted_tokens,
            answer_tokens: self.answer_tokens * left + prompt.answer_tokens,
            ahead_tokens: self.ahead_tokens * left + prompt.ahead_tokens,
            outstanding: self.outstanding * left + prompt.outstanding,
        }
    }
}

/// Decaying sums of an engine's counters, and of what was sent to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterSums {
    at: Time,
    /// Time of the last prompt that the engine admitted.
    grown_at: Time,
    counted: EngineCounters,
    /// Prompts that got their first token, by the best counter of each report.
    prompts: Option<f64>,
    sent: ServedPrompt,
}

impl CounterSums {
    /// Adds what an engine did between two reports.
    pub(crate) fn on_counters(&mut self, grown: &EngineCounters, now: Time) {
        let total = grown.ttft.or(grown.prefill).or(grown.decode);
        let prompts = total.map(|total| total.count);
        self.add(grown, &ServedPrompt::default(), now);
        if let Some(prompts) = prompts {
            self.prompts = Some(self.prompts.unwrap_or_default() + prompts);
            if prompts > 0.0 {
                self.grown_at = now;
            }
        }
    }

    /// Adds a prompt that this service sent and the engine answered.
    pub(crate) fn served(&mut self, prompt: &ServedPrompt, now: Time) {
        self.add(&EngineCounters::default(), prompt, now);
    }

    fn add(&mut self, grown: &EngineCounters, sent: &ServedPrompt, now: Time) {
        let left = (-now.since(self.at).as_secs_f64() / HALF_LIFE_S.get()).exp2();
        self.at = self.at.max(now);
        self.counted.add_fading(left, grown);
        self.prompts = self.prompts.map(|prompts| prompts * left);
        self.sent = self.sent.with(left, sent);
    }

    /// Prompts that the means of one replica are worth: what is left of the sums, less with time.
    pub(crate) fn weight(&self, now: Time) -> f64 {
        share_left(self.grown_at, HALVED_AFTER_S.get(), now) * self.prompts.unwrap_or_default()
    }

    /// Ratios of the engines' speed to a model.
    pub(crate) fn speed(&self, model: &LatencyModel) -> SpeedRatios {
        SpeedRatios {
            prefill: self.prefill_ratio(model.prefill),
            decode: self.decode_s(model.decode).and_then(ratio),
        }
    }

    /// Ratio of the engine's time to a line's, of prompts.
    pub(crate) fn prefill_ratio(&self, line: LinearModel) -> Option<f64> {
        self.prefill_s(line).and_then(ratio)
    }

    /// Time of a prefill and the line's time for it, in seconds.
    fn prefill_s(&self, line: LinearModel) -> Option<(f64, f64)> {
        let uncached = self.uncached_tokens()?;
        let mean_s = |total: Option<Total>| {
            let known = total.filter(|total| total.count >= PROMPTS_MIN.get());
            known.map(|total| total.seconds / total.count)
        };
        if let Some(prefill_s) = mean_s(self.counted.prefill) {
            return Some((prefill_s, line.at(uncached)));
        }
        let ttft_s = self.counted.ttft?.seconds / self.enough_prompts()?;
        // Without the time in the engine's queue, the prompts in front of each one count, as this service knows them.
        Some(match mean_s(self.counted.queue) {
            Some(queue_s) => (ttft_s - queue_s, line.at(uncached)),
            None => {
                let ahead = self.of_sent(self.sent.ahead_tokens)?;
                (ttft_s, line.at(ahead + uncached))
            }
        })
    }

    /// Time of an output token and the line's time for it, in seconds.
    fn decode_s(&self, line: LinearModel) -> Option<(f64, f64)> {
        self.enough_prompts()?;
        let seconds = self.counted.decode?.seconds;
        let outstanding = self.of_sent(self.sent.outstanding).unwrap_or(1.0);
        Some((
            seconds / self.counted.generation_tokens?,
            line.at(outstanding),
        ))
    }

    /// Tokens that the engine computed of a prompt.
    fn uncached_tokens(&self) -> Option<f64> {
        let prompts = self.enough_prompts()?;
        let tokens = self.counted.prompt_tokens? / prompts;
        let cached = match self.counted.cache_hits {
            Some(hits) => hits / prompts,
            None => self.of_sent(self.sent.predicted_tokens).unwrap_or_default(),
        };
        Some((tokens - cached).max(0.0))
    }

    /// Mean answer length, in tokens.
    pub(crate) fn answer_tokens(&self) -> Option<f64> {
        Some(self.counted.generation_tokens? / self.enough_prompts()?)
    }

    /// Tokens of a prompt, in multiples of the filter's estimate.
    pub(crate) fn tokens_per_estimate(&self) -> Option<f64> {
        let estimated = self.of_sent(self.sent.estimated_tokens)?;
        let tokens = self.counted.prompt_tokens? / self.enough_prompts()?;
        (estimated > 0.0 && tokens > 0.0).then(|| tokens / estimated)
    }

    /// Share of the predicted cache hits that the engine finds, from 0 to 1. Without predictions, 1.
    pub(crate) fn hit_credit(&self, now: Time) -> f64 {
        let Some((hits, predicted)) = self.hits() else {
            return 1.0;
        };
        let share = (hits / (CREDITED_SHARE.get() * predicted)).min(1.0);
        1.0 - share_left(self.grown_at, HALVED_AFTER_S.get(), now) * (1.0 - share)
    }

    /// Cached tokens that the engine finds beyond the predicted ones, as a share of the remembered tokens of answers.
    pub(crate) fn answer_hit_share(&self) -> Option<f64> {
        let (hits, predicted) = self.hits()?;
        let remembered = self.of_sent(self.sent.answer_tokens)?;
        (remembered > 1.0).then(|| ((hits - predicted) / remembered).clamp(0.0, 1.0))
    }

    /// Whether the engine reports its cache hits.
    pub(crate) const fn has_hits(&self) -> bool {
        self.counted.cache_hits.is_some()
    }

    /// Cached tokens of a prompt: found by the engine, and predicted.
    fn hits(&self) -> Option<(f64, f64)> {
        let hits = self.counted.cache_hits? / self.enough_prompts()?;
        let predicted = self.of_sent(self.sent.predicted_tokens)?;
        (self.sent.predicted_tokens >= PREDICTED_MIN.get()).then_some((hits, predicted))
    }

    fn enough_prompts(&self) -> Option<f64> {
        self.prompts.filter(|prompts| *prompts >= PROMPTS_MIN.get())
    }

    /// A sum over the prompts that this service sent, per prompt.
    fn of_sent(&self, sum: f64) -> Option<f64> {
        let prompts = self.sent.prompts;
        (prompts >= PROMPTS_MIN.get()).then(|| sum / prompts)
    }
}

fn ratio((seconds, expected): (f64, f64)) -> Option<f64> {
    let ratio = seconds / expected;
    let is_known = seconds > 0.0 && expected > 0.0 && ratio.is_finite();
    is_known.then(|| ratio.clamp(*RATIO.start(), *RATIO.end()))
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    /// An engine that answers two prompts a second: 1,000 tokens each, 400 of them cached, at 0.5 ms a token.
    fn means(seconds: u64) -> CounterSums {
        let mut means = CounterSums::default();
        for s in 0..seconds {
            means.on_counters(
                &EngineCounters {
                    started_ms: None,
                    prompt_tokens: Some(2_000.0),
                    generation_tokens: Some(200.0),
                    cache_queries: Some(2_000.0),
                    cache_hits: Some(800.0),
                    prefill: Some(Total {
                        seconds: 2.0 * (0.15 + 600.0 * 0.000_5),
                        count: 2.0,
                    }),
                    decode: Some(Total {
                        seconds: 10.0,
                        count: 2.0,
                    }),
                    queue: None,
                    ttft: Some(Total {
                        seconds: 2.0,
                        count: 2.0,
                    }),
                },
                at(s),
            );
            for _ in 0..2 {
                let prompt = ServedPrompt {
                    prompts: 1.0,
                    estimated_tokens: 1_250.0,
                    predicted_tokens: 400.0,
                    answer_tokens: 0.0,
                    ahead_tokens: 100.0,
                    outstanding: 6.0,
                };
                means.served(&prompt, at(s));
            }
        }
        means
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.01 * b
    }

    #[test]
    fn counters_give_speed_lengths_and_hits_per_request() {
        let means = means(60);
        let speed = means.speed(&LatencyModel::default());
        assert!(near(speed.prefill.unwrap(), 5.0), "{speed:?}");
        assert!(near(speed.decode.unwrap(), 0.05 / 0.023), "{speed:?}");
        assert!(near(means.answer_tokens().unwrap(), 100.0));
        assert!(near(means.tokens_per_estimate().unwrap(), 0.8));
        assert!(near(means.hit_credit(at(60)), 1.0));
    }

    #[test]
    fn a_few_prompts_say_nothing() {
        let means = means(3);
        assert!(means.speed(&LatencyModel::default()).prefill.is_none());
        assert!(means.tokens_per_estimate().is_none());
    }

    #[test]
    fn means_are_worth_less_when_no_prompt_comes() {
        let means = means(60);
        assert!(means.weight(at(60)) > 30.0);
        assert!(means.weight(at(120)) < 1.0);
    }

    #[test]
    fn an_engine_without_hits_gets_no_credit_until_that_is_old() {
        let mut means = means(60);
        means.counted.cache_hits = Some(0.0);
        assert!(means.hit_credit(at(60)) < 0.01);
        assert!(means.hit_credit(at(130)) > 0.99);
    }
}

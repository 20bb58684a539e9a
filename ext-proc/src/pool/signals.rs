//! Warns once when a pool still presumes what its engines could tell.
//!
//! Many engines tell how long prompts are, and what was cached, only when they are asked to. The service works without, but
//! selects worse replicas. The warning names the option of the engine that gives what is missing.

use std::sync::atomic::{AtomicU64, Ordering};

use isotherm_router::{Signals, Source};
use parking_lot::Mutex;

use super::Pool;
use crate::config::Engine;

/// Answers after which the service judges what a pool has learned.
const ANSWERS: u64 = 50;

/// Answers of a pool, and the engine that its probes have found.
#[derive(Debug, Default)]
pub(super) struct SignalCheck {
    answers: AtomicU64,
    engine: Mutex<Option<Engine>>,
}

impl Pool {
    /// Notes the engine of a replica.
    pub(crate) fn engine_found(&self, engine: Engine) {
        *self.signal_check.engine.lock() = Some(engine);
    }

    /// Counts an answer. After enough of them, the service logs what the pool still presumes.
    pub(super) fn check_signals(&self) {
        let before = self.signal_check.answers.fetch_add(1, Ordering::Relaxed);
        if before + 1 != ANSWERS {
            return;
        }
        let signals = self.estimates().signals;
        let configured = self.config.borrow().engine;
        let engine = configured.or(*self.signal_check.engine.lock());
        let presumed = presumed(&signals);
        if !presumed.is_empty() {
            tracing::warn!(
                pool = %self.name,
                presumed = presumed.join(", "),
                "{ANSWERS} answers have not told all that policies need: {}", advice(&signals, engine)
            );
        }
    }
}

/// Returns each quantity that a pool learns, by name, with its source.
pub(crate) fn sources(signals: &Signals) -> [(&'static str, Source); 5] {
    [
        ("prompt_speed", signals.prompt_speed),
        ("decode_speed", signals.decode_speed),
        ("token_length", signals.token_length),
        ("cache_hits", signals.cache_hits),
        ("answer_length", signals.answer_length),
    ]
}

fn presumed(signals: &Signals) -> Vec<&'static str> {
    let sources = sources(signals).into_iter();
    let presumed = sources.filter(|(_, source)| *source == Source::Presumed);
    presumed.map(|(name, _)| name).collect()
}

/// Says which options of the engine and of clients tell what is presumed.
fn advice(signals: &Signals, engine: Option<Engine>) -> String {
    let counters = match engine {
        Some(Engine::Trtllm) => Some("configure TensorRT-LLM with `return_perf_metrics: true`"),
        _ => None,
    };
    let cached = match engine {
        Some(Engine::Vllm) => Some("start vLLM with --enable-prompt-tokens-details"),
        Some(Engine::Sglang) => Some("start SGLang with --enable-cache-report"),
        _ => None,
    };
    let usage = match engine {
        Some(Engine::Vllm) => {
            "have clients send `stream_options.include_usage`, or start vLLM with --enable-force-include-usage"
        }
        Some(Engine::Sglang) => {
            "have clients send `stream_options.include_usage`, or start SGLang with --stream-response-default-include-usage"
        }
        _ => "have clients send `stream_options.include_usage`",
    };
    let is_presumed = |source| source == Source::Presumed;
    let lacks_usage = is_presumed(signals.token_length) || is_presumed(signals.answer_length);
    let mut hints = Vec::from_iter(counters);
    hints.extend(cached.filter(|_| is_presumed(signals.cache_hits)));
    hints.extend(lacks_usage.then_some(usage));
    hints.push("docs/engines.md lists what each engine tells");
    hints.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEARNED: Signals = Signals {
        prompt_speed: Source::Counters,
        decode_speed: Source::Counters,
        token_length: Source::Counters,
        cache_hits: Source::Counters,
        answer_length: Source::Counters,
    };

    #[test]
    fn the_advice_names_the_option_of_the_pools_engine() {
        let signals = Signals {
            cache_hits: Source::Presumed,
            ..LEARNED
        };
        assert_eq!(presumed(&signals), ["cache_hits"]);
        let vllm = advice(&signals, Some(Engine::Vllm));
        assert!(vllm.contains("--enable-prompt-tokens-details"), "{vllm}");
        assert!(!vllm.contains("include_usage"), "{vllm}");
        let sglang = advice(&signals, Some(Engine::Sglang));
        assert!(sglang.contains("--enable-cache-report"), "{sglang}");
    }

    #[test]
    fn clients_are_named_where_usage_is_missing() {
        let signals = Signals {
            answer_length: Source::Presumed,
            ..LEARNED
        };
        for engine in [None, Some(Engine::Tgi), Some(Engine::Vllm)] {
            let advice = advice(&signals, engine);
            assert!(advice.contains("stream_options.include_usage"), "{advice}");
        }
    }

    #[test]
    fn a_pool_that_has_learned_everything_presumes_nothing() {
        assert!(presumed(&LEARNED).is_empty());
        assert_eq!(presumed(&Signals::default()).len(), 5);
    }
}

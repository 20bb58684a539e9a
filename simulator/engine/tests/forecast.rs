//! The forecast of a first token against what the engine then does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use core::time::Duration;

use isotherm_engine::model::{
    Arrival, BlockHash, Config, Engine, EventKind, Preset, Request, RequestId,
};
use proptest::prelude::*;

fn engine(blocks: u32) -> Engine {
    Engine::new(Config {
        blocks,
        step_tokens_max: 128,
        sequences_max: 6,
        ..Preset::Llama31_8b2xA100.config()
    })
}

fn request(id: u64, prompt_tokens: u32, output_tokens: u32) -> Request {
    let full = u64::from((prompt_tokens + output_tokens) / 16);
    Request {
        id: RequestId(id),
        prompt_tokens,
        output_tokens,
        blocks: (0..full).map(|depth| BlockHash(id << 32 | depth)).collect(),
        adapter: None,
        stream_interval_tokens: None,
    }
}

/// When the request has its first token, if nothing else comes.
fn first_token(engine: &mut Engine, id: RequestId) -> Duration {
    loop {
        while let Some(event) = engine.poll_event() {
            if event.id == id && matches!(event.kind, EventKind::FirstToken { .. }) {
                return event.at;
            }
        }
        let at = engine.poll_timeout().expect("it has work to do");
        engine.handle_timeout(at);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn is_exact_while_memory_does_not_decide(
        load in prop::collection::vec((0_u64..80_000, 1_u32..600, 1_u32..80), 0..20),
        prompt_tokens in 1_u32..900,
    ) {
        let mut engine = engine(4_096);
        let mut now = Duration::ZERO;
        for (id, &(pause_us, prompt, output)) in (1..).zip(&load) {
            now += Duration::from_micros(pause_us);
            engine.submit(now, request(id, prompt, output));
        }
        now += Duration::from_micros(load.first().map_or(0, |first| first.0));
        engine.handle_timeout(now);
        let asked = request(1_000, prompt_tokens, 10);
        let arrival = Arrival { prompt_tokens, blocks: &asked.blocks, ahead_tokens: 0 };
        let uncached = |id: RequestId| load[usize::try_from(id.0).unwrap() - 1].1;
        let forecast = engine.forecast(now, &arrival, uncached);
        engine.submit(now, asked);
        let real = first_token(&mut engine, RequestId(1_000)) - now;
        prop_assert_eq!(forecast.first_token, real);
    }

    #[test]
    fn is_near_where_memory_decides(
        load in prop::collection::vec((1_u32..300, 1_u32..40), 6..14),
    ) {
        let mut engine = engine(60);
        let now = Duration::from_millis(1);
        for (id, &(prompt, output)) in (1..).zip(&load) {
            engine.submit(Duration::ZERO, request(id, prompt, output));
        }
        engine.handle_timeout(now);
        let asked = request(1_000, 200, 10);
        let arrival = Arrival { prompt_tokens: 200, blocks: &asked.blocks, ahead_tokens: 0 };
        let uncached = |id: RequestId| load[usize::try_from(id.0).unwrap() - 1].0;
        let forecast = engine.forecast(now, &arrival, uncached).first_token.as_secs_f64();
        engine.submit(now, asked);
        let real = (first_token(&mut engine, RequestId(1_000)) - now).as_secs_f64();
        prop_assert!((forecast / real - 1.0).abs() < 0.75, "{} s, in truth {} s", forecast, real);
    }
}

#[test]
fn the_forecast_leaves_out_cached_tokens() {
    let mut engine = engine(4_096);
    let first = request(1, 800, 1);
    engine.submit(Duration::ZERO, first.clone());
    let now = first_token(&mut engine, RequestId(1));
    let ask = |blocks, ahead_tokens| {
        let arrival = Arrival {
            prompt_tokens: 800,
            blocks,
            ahead_tokens,
        };
        engine.forecast(now, &arrival, |_| 0)
    };
    let warm = ask(&first.blocks, 0);
    let cold = ask(&[], 0);
    assert_eq!((warm.cached_tokens, cold.cached_tokens), (784, 0));
    assert!(warm.first_token * 4 < cold.first_token);
    assert!(ask(&first.blocks, 500).first_token > 3 * warm.first_token);
}

#[test]
fn the_forecast_of_an_oversized_request_is_never() {
    let engine = engine(4);
    let arrival = Arrival {
        prompt_tokens: 800,
        blocks: &[],
        ahead_tokens: 0,
    };
    let forecast = engine.forecast(Duration::ZERO, &arrival, |_| 0);
    assert!(forecast.first_token > Duration::from_secs(1 << 32));
}

//! The L4 preset against the figures of SkyLB's paper.

use core::time::Duration;
use std::sync::Arc;

use isotherm_engine::model::{Engine, Event, EventKind, Preset, Request, RequestId};

#[test]
fn the_l4_preset_is_the_replica_of_skylb() {
    let mut engine = Engine::new(Preset::Llama31_8bL4.config());
    let request = Request {
        id: RequestId(0),
        prompt_tokens: 512,
        output_tokens: 2,
        blocks: Arc::from([]),
        adapter: None,
        stream_interval_tokens: None,
    };
    engine.submit(Duration::ZERO, request);
    while let Some(at) = engine.poll_timeout() {
        engine.handle_timeout(at);
    }
    let is_first = |event: &Event| matches!(event.kind, EventKind::FirstToken { .. });
    let first = std::iter::from_fn(|| engine.poll_event()).find(is_first);
    let first_s = first.map_or(f64::NAN, |event| event.at.as_secs_f64());
    assert!(
        (first_s - 0.3).abs() < 0.01,
        "512 tokens take about 300 ms (section 2.1), not {first_s}"
    );
    let config = Preset::Llama31_8bL4.config();
    let requests = |tokens| config.blocks * config.block_tokens / tokens;
    assert!(
        requests(1_700) >= 19 && requests(650) <= 53,
        "20 to 50 chats fit the cache (section 3.3)"
    );
}

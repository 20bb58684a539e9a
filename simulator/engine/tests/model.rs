//! Invariants of the engine model under random loads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_engine::model::{
    AdapterConfig, AdapterId, BlockHash, Config, Engine, Event, EventKind, Preset, Rejection,
    Request, RequestId, Usage,
};
use proptest::prelude::*;

const BLOCK_TOKENS: u32 = 16;

/// A small engine, so that a few requests fill it.
fn small(blocks: u32) -> Config {
    Config {
        blocks,
        step_tokens_max: 128,
        sequences_max: 8,
        context_tokens_max: 1_024,
        waiting_max: 1_000,
        ..Preset::Llama31_8b2xA100.config()
    }
}

/// A request whose blocks are named by `family` up to `shared` blocks, and by its own id from there on.
fn request(id: u64, family: u64, shared: u64, prompt_tokens: u32, output_tokens: u32) -> Request {
    let full = u64::from((prompt_tokens + output_tokens) / BLOCK_TOKENS);
    let blocks = (0..full).map(|depth| match depth < shared {
        true => BlockHash(family << 32 | depth),
        false => BlockHash(1 << 63 | id << 32 | depth),
    });
    Request {
        id: RequestId(id),
        prompt_tokens,
        output_tokens,
        blocks: blocks.collect(),
        adapter: None,
        stream_interval_tokens: None,
    }
}

/// An engine with slots for adapters, which it loads in 200 ms.
fn with_adapter_slots(slots: u32) -> Engine {
    Engine::new(Config {
        adapters: AdapterConfig {
            slots,
            load_ns: 200_000_000,
        },
        ..small(200)
    })
}

fn for_adapter(id: u64, adapter: u32) -> Request {
    Request {
        adapter: Some(AdapterId(adapter)),
        ..request(id, id, 0, 32, 20)
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs until nothing is left to do.
fn drain(engine: &mut Engine) -> Vec<Event> {
    while let Some(at) = engine.poll_timeout() {
        engine.handle_timeout(at);
    }
    core::iter::from_fn(|| engine.poll_event()).collect()
}

fn usages(events: &[Event]) -> BTreeMap<u64, Usage> {
    let usage = |event: &Event| match event.kind {
        EventKind::Finished(usage) => Some((event.id.0, usage)),
        _ => None,
    };
    events.iter().filter_map(usage).collect()
}

#[test]
fn a_prompt_seen_before_is_computed_from_its_last_block_on() {
    let mut engine = Engine::new(small(64));
    engine.submit(ms(0), request(1, 7, 100, 100, 4));
    let first = usages(&drain(&mut engine))[&1];
    assert_eq!(first.cached_tokens, 0);
    engine.submit(ms(1_000), request(2, 7, 100, 100, 4));
    let second = usages(&drain(&mut engine))[&2];
    assert_eq!(second.cached_tokens, 96, "six full blocks of sixteen");
    let totals = engine.stats().totals;
    assert_eq!(totals.prefix_query_tokens, 200);
    assert_eq!(totals.prefix_hit_tokens, 96);
}

#[test]
fn a_prompt_that_is_cached_whole_still_computes_its_last_token() {
    let mut engine = Engine::new(small(64));
    for id in 1..=2 {
        engine.submit(ms(id * 1_000), request(id, 7, 100, 96, 2));
        let usage = usages(&drain(&mut engine))[&id];
        assert_eq!(usage.cached_tokens, if id == 1 { 0 } else { 80 });
    }
}

#[test]
fn the_next_turn_finds_prompt_and_reply() {
    let mut engine = Engine::new(small(64));
    engine.submit(ms(0), request(1, 7, 100, 64, 33));
    drain(&mut engine);
    engine.submit(ms(5_000), request(2, 7, 100, 120, 4));
    // The last generated token was never computed, but 96 of the 97 were.
    assert_eq!(usages(&drain(&mut engine))[&2].cached_tokens, 96);
}

#[test]
fn requests_of_one_instant_share_the_first_step_and_their_common_prefix() {
    let mut engine = Engine::new(small(64));
    engine.submit(ms(3), request(1, 7, 100, 64, 2));
    engine.submit(ms(3), request(2, 7, 100, 65, 2));
    let usages = usages(&drain(&mut engine));
    let cached = [1, 2].map(|id| usages[&id].cached_tokens);
    assert_eq!(cached, [0, 64]);
}

#[test]
fn a_long_prompt_is_computed_in_chunks_while_others_decode() {
    let mut engine = Engine::new(small(80));
    let streamed = Request {
        stream_interval_tokens: Some(1),
        ..request(1, 1, 0, 16, 40)
    };
    engine.submit(ms(0), streamed);
    engine.handle_timeout(ms(100));
    engine.submit(ms(100), request(2, 2, 0, 900, 2));
    let events = drain(&mut engine);
    let is_first = |e: &Event| e.id.0 == 2 && matches!(e.kind, EventKind::FirstToken { .. });
    let events = events.split(is_first).next().unwrap();
    let is_decode = |e: &&Event| e.id.0 == 1 && e.at > ms(110);
    let between = events.iter().filter(is_decode).count();
    // 900 tokens need eight steps of 127, and each step gives the other request a token.
    assert!(between >= 7, "{between}");
}

#[test]
fn preemption_restarts_the_youngest_sequence_which_still_finishes() {
    let mut engine = Engine::new(small(12));
    engine.submit(ms(0), request(1, 1, 0, 64, 100));
    engine.submit(ms(0), request(2, 2, 0, 64, 100));
    let usages = usages(&drain(&mut engine));
    assert_eq!(usages[&1].preemptions, 0);
    assert!(usages[&2].preemptions >= 1);
    assert_eq!(usages[&2].completion_tokens, 100);
    assert!(engine.stats().totals.preemptions >= 1);
}

#[test]
fn a_request_that_arrives_during_a_step_is_not_yet_waiting() {
    let mut engine = Engine::new(Config {
        sequences_max: 1,
        ..small(64)
    });
    engine.submit(ms(0), request(1, 1, 0, 100, 50));
    engine.handle_timeout(ms(0));
    engine.submit(ms(1), request(2, 2, 0, 16, 5));
    let load = |engine: &Engine| {
        let stats = engine.stats();
        (stats.running, stats.waiting, stats.arrived)
    };
    // vLLM reads its gauge after a scheduling pass.
    assert_eq!(load(&engine), (1, 0, 1));
    let end = engine.poll_timeout().unwrap();
    engine.handle_timeout(end);
    assert_eq!(load(&engine), (1, 1, 0));
}

#[test]
fn an_aborted_request_frees_its_blocks_at_once() {
    let mut engine = Engine::new(Config {
        sequences_max: 1,
        ..small(64)
    });
    engine.submit(ms(0), request(1, 1, 0, 100, 500));
    engine.submit(ms(0), request(2, 2, 0, 100, 5));
    engine.handle_timeout(ms(200));
    while engine.poll_event().is_some() {}
    assert!(engine.abort(ms(200), RequestId(1)));
    assert_eq!(engine.stats().blocks_held, 0);
    assert!(!engine.abort(ms(200), RequestId(1)), "it is gone");
    let events = drain(&mut engine);
    assert!(usages(&events).contains_key(&2));
    let is_other = |event: &Event| event.id.0 == 2;
    assert!(
        events.iter().all(is_other),
        "no event of the aborted request"
    );
}

#[test]
fn requests_that_cannot_be_served_are_rejected() {
    let mut engine = Engine::new(Config {
        waiting_max: 1,
        ..small(16)
    });
    let mut reason = |request: Request| {
        engine.submit(ms(0), request);
        match engine.poll_event().map(|event| event.kind) {
            Some(EventKind::Rejected(rejection)) => Some(rejection),
            _ => None,
        }
    };
    assert_eq!(reason(request(1, 1, 0, 0, 1)), Some(Rejection::Empty));
    // Sixteen blocks hold less than the context would allow.
    let too_long = Rejection::TooLong {
        tokens: 257,
        tokens_max: 256,
    };
    assert_eq!(reason(request(1, 1, 0, 256, 1)), Some(too_long));
    assert_eq!(reason(request(1, 1, 0, 10, 1)), None);
    let queue_full = Rejection::QueueFull { requests_max: 1 };
    assert_eq!(reason(request(2, 1, 0, 10, 1)), Some(queue_full));
}

#[test]
fn a_slower_engine_takes_longer_from_the_next_step_on() {
    let run = |factor: f64| {
        let mut engine = Engine::new(small(64));
        let timing = engine.config().timing;
        engine.submit(ms(0), request(1, 1, 0, 100, 101));
        engine.handle_timeout(ms(0));
        engine.set_timing(ms(1), timing.slowed(factor));
        drain(&mut engine).last().unwrap().at
    };
    let ratio = run(3.0).as_secs_f64() / run(1.0).as_secs_f64();
    assert!(2.0 < ratio && ratio < 3.0, "{ratio}");
}

#[test]
fn the_l4_preset_is_the_replica_of_skylb() {
    let mut engine = Engine::new(Preset::Llama31_8bL4.config());
    let request = Request {
        id: RequestId(0),
        prompt_tokens: 512,
        output_tokens: 2,
        blocks: [].into(),
        adapter: None,
        stream_interval_tokens: None,
    };
    engine.submit(Duration::ZERO, request);
    while let Some(at) = engine.poll_timeout() {
        engine.handle_timeout(at);
    }
    let is_first = |event: &Event| matches!(event.kind, EventKind::FirstToken { .. });
    let first = core::iter::from_fn(|| engine.poll_event()).find(is_first);
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

/// Operation on an engine.
#[derive(Debug, Clone)]
enum Op {
    /// Family, shared blocks, prompt tokens, output tokens, and whether the response is a stream.
    Submit(u64, u64, u32, u32, bool),
    /// Id of the request.
    Abort(u64),
    /// Microseconds.
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (0..4_u64, 0..20_u64, 1..300_u32, 1..80_u32, any::<bool>())
            .prop_map(|(family, shared, prompt, output, stream)| Op::Submit(family, shared, prompt, output, stream)),
        1 => (1..=40_u64).prop_map(Op::Abort),
        4 => (0..400_000_u64).prop_map(Op::Wait),
    ]
}

/// All events, the number of requests, and the ids of ended and aborted ones.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    submitted: u64,
    aborted: Vec<u64>,
    ends: Vec<u64>,
}

/// Plays operations, and polls the engine each `poll_us` beside its own timeouts.
fn play(config: Config, ops: &[Op], poll_us: Option<u64>) -> Outcome {
    let mut engine = Engine::new(config);
    let mut outcome = Outcome::default();
    let mut now = Duration::ZERO;
    for op in ops {
        match *op {
            Op::Submit(family, shared, prompt_tokens, output_tokens, stream) => {
                outcome.submitted += 1;
                let id = outcome.submitted;
                let request = request(id, family, shared, prompt_tokens, output_tokens);
                let stream_interval_tokens = stream.then_some(3);
                engine.submit(
                    now,
                    Request {
                        adapter: None,
                        stream_interval_tokens,
                        ..request
                    },
                );
            }
            Op::Abort(id) => {
                if engine.abort(now, RequestId(id)) {
                    outcome.aborted.push(id);
                }
            }
            Op::Wait(us) => {
                let until = now + Duration::from_micros(us);
                if let Some(step) = poll_us.map(Duration::from_micros) {
                    while now + step < until {
                        now += step;
                        engine.handle_timeout(now);
                        check_state(&engine);
                    }
                }
                now = until;
                engine.handle_timeout(now);
            }
        }
        check_state(&engine);
    }
    outcome.events = drain(&mut engine);
    let stats = engine.stats();
    let requests = stats.waiting + stats.arrived + stats.running;
    assert_eq!((requests, stats.blocks_held), (0, 0), "{stats:?}");
    let is_end = |e: &&Event| matches!(e.kind, EventKind::Finished(_) | EventKind::Rejected(_));
    let ends = outcome.events.iter().filter(is_end);
    outcome.ends = ends.map(|e| e.id.0).collect();
    outcome
}

fn check_state(engine: &Engine) {
    let stats = engine.stats();
    assert!(stats.blocks_held <= stats.blocks, "{stats:?}");
    assert!(stats.running <= engine.config().sequences_max as usize);
    assert!(stats.running > 0 || stats.blocks_held == 0, "{stats:?}");
}

/// The prefix cache of an engine that serves one request at a time, written down naively: the free list as a list.
struct NaiveCache {
    /// Content and age of each free block, least recently used first.
    free: Vec<Option<(BlockHash, u64)>>,
    named: u64,
}

impl NaiveCache {
    fn new(blocks: u32) -> Self {
        Self {
            free: vec![None; blocks as usize],
            named: 0,
        }
    }

    /// Serves a request and tells how many blocks it found.
    fn serve(&mut self, request: &Request) -> u32 {
        let findable = ((request.prompt_tokens - 1) / BLOCK_TOKENS) as usize;
        let mut held = Vec::new();
        for hash in request.blocks.iter().take(findable) {
            let free = self.free.iter().enumerate();
            let copies = free.filter(|(_, block)| block.is_some_and(|(held, _)| held == *hash));
            let Some((at, _)) = copies.min_by_key(|(_, block)| block.map(|(_, named)| named))
            else {
                break;
            };
            held.push(self.free.remove(at));
        }
        let found = held.len();
        // The last token is generated and never computed.
        let computed = request.prompt_tokens + request.output_tokens - 1;
        let needed = computed.div_ceil(BLOCK_TOKENS) as usize;
        self.free.drain(..needed - found);
        for at in found..needed {
            let is_full = at < (computed / BLOCK_TOKENS) as usize;
            self.named += 1;
            let hash = request.blocks.get(at).filter(|_| is_full);
            held.push(hash.map(|&hash| (hash, self.named)));
        }
        self.free.extend(held.into_iter().rev());
        u32::try_from(found).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_exactly_once_and_in_full(ops in prop::collection::vec(op(), 1..60), blocks in 24..120_u32) {
        let outcome = play(small(blocks), &ops, None);
        let mut ends = outcome.ends.clone();
        ends.extend(&outcome.aborted);
        ends.sort_unstable();
        prop_assert_eq!(ends, (1..=outcome.submitted).collect::<Vec<_>>(), "lost or doubled");
        for (id, usage) in usages(&outcome.events) {
            let firsts = outcome.events.iter().filter(|e| e.id.0 == id && matches!(e.kind, EventKind::FirstToken { .. }));
            prop_assert_eq!(firsts.count(), 1);
            prop_assert!(usage.cached_tokens < usage.prompt_tokens);
            prop_assert_eq!(usage.cached_tokens % BLOCK_TOKENS, 0);
        }
        prop_assert!(outcome.events.is_sorted_by_key(|event| event.at));
    }

    #[test]
    fn how_often_the_engine_is_asked_changes_nothing(
        ops in prop::collection::vec(op(), 1..40), blocks in 24..120_u32, poll_us in 500..60_000_u64,
    ) {
        let (rarely, often) = (play(small(blocks), &ops, None), play(small(blocks), &ops, Some(poll_us)));
        prop_assert_eq!(rarely, often);
    }

    #[test]
    fn the_cache_remembers_what_a_naive_one_remembers(
        sizes in prop::collection::vec((0..4_u64, 0..12_u64, 1..200_u32, 1..60_u32), 1..60), blocks in 20..60_u32,
    ) {
        let mut engine = Engine::new(small(blocks));
        let mut naive = NaiveCache::new(blocks);
        for (id, &(family, shared, prompt, output)) in sizes.iter().enumerate() {
            let request = request(id as u64, family, shared, prompt, output);
            let expected = naive.serve(&request) * BLOCK_TOKENS;
            engine.submit(ms(100_000 * id as u64), request);
            prop_assert_eq!(usages(&drain(&mut engine))[&(id as u64)].cached_tokens, expected, "request {}", id);
        }
    }

    #[test]
    fn streaming_changes_no_time(
        sizes in prop::collection::vec((1..300_u32, 1..80_u32, 0..50_000_u64), 1..20), blocks in 30..120_u32,
    ) {
        let ends = |interval: Option<u32>| {
            let mut engine = Engine::new(small(blocks));
            let mut now = Duration::ZERO;
            for (id, &(prompt, output, gap)) in sizes.iter().enumerate() {
                now += Duration::from_micros(gap);
                engine.submit(now, Request { stream_interval_tokens: interval, ..request(id as u64, 1, 12, prompt, output) });
            }
            let mut events = drain(&mut engine);
            events.retain(|event| !matches!(event.kind, EventKind::Tokens { .. }));
            events
        };
        // One token at a time is the model without any jump over steps.
        prop_assert_eq!(ends(None), ends(Some(1)));
    }
}

#[test]
fn an_adapter_is_loaded_once_and_the_load_delays_the_step() {
    let run = |requests: Vec<Request>| {
        let mut engine = with_adapter_slots(2);
        for request in requests {
            engine.submit(Duration::ZERO, request);
        }
        let ended = drain(&mut engine).last().unwrap().at;
        (ended, engine.stats().totals.adapter_loads)
    };
    let (base, loads) = run(vec![request(1, 1, 0, 32, 20), request(2, 2, 0, 32, 20)]);
    assert_eq!(loads, 0);
    let (ended, loads) = run(vec![for_adapter(1, 7), for_adapter(2, 7)]);
    assert_eq!((ended, loads), (base + ms(200), 1));
    let (ended, loads) = run(vec![for_adapter(1, 7), for_adapter(2, 8)]);
    assert_eq!((ended, loads), (base + ms(400), 2));
}

#[test]
fn a_request_without_a_slot_is_skipped_until_a_running_adapter_ends() {
    let mut engine = with_adapter_slots(1);
    for request in [for_adapter(1, 7), for_adapter(2, 8), for_adapter(3, 7)] {
        engine.submit(Duration::ZERO, request);
    }
    engine.handle_timeout(ms(1));
    let used = engine.adapter_use();
    assert_eq!(
        (used.running, used.waiting),
        (vec![AdapterId(7)], vec![AdapterId(8)])
    );
    assert_eq!((engine.stats().running, engine.stats().waiting), (2, 1));
    let events = drain(&mut engine);
    assert_eq!(usages(&events).len(), 3);
    assert_eq!(engine.stats().totals.adapter_loads, 2);
}

#[test]
fn the_least_recently_used_adapter_is_evicted() {
    let mut engine = with_adapter_slots(2);
    let loads = [7, 8, 7, 9, 7, 8].map(|adapter| {
        let id = engine.stats().totals.finished;
        let now = engine
            .poll_timeout()
            .unwrap_or(Duration::from_secs(10 * (id + 1)));
        engine.submit(now, for_adapter(id, adapter));
        drain(&mut engine);
        engine.stats().totals.adapter_loads
    });
    assert_eq!(loads, [1, 2, 2, 3, 3, 4]);
}

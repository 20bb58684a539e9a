//! Claims of engines that cannot be true, or that hold for one API alone.

use isotherm_fingerprint::Api;
use isotherm_router::{
    End, Event, Load, Push, Request, RequestId, RouterConfig, ServedBy, TenantId, TenantLimits,
};

use crate::support::request;
use crate::support::script::Script;

fn script(replicas: u32) -> Script {
    let config = RouterConfig {
        push: Push::Blind,
        ..RouterConfig::default()
    };
    Script::new(config, replicas)
}

/// Usage of an answer: tokens of the prompt, cached ones, and tokens of the answer.
fn answer(script: &mut Script, id: u64, tokens: [Option<u32>; 3]) {
    let [prompt_tokens, cached_tokens, completion_tokens] = tokens;
    script.event(Event::Finished {
        id: RequestId(id),
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: Some(100_000),
        prompt_tokens,
        cached_tokens,
        completion_tokens,
    });
}

/// Sends a request and answers it after a second.
fn play(script: &mut Script, request: Request, tokens: [Option<u32>; 3]) {
    let id = request.id.0;
    script.arrive(request);
    assert_eq!(script.sent().len(), 1);
    script.sleep(1_000);
    answer(script, id, tokens);
}

#[test]
fn no_answer_is_longer_than_its_engine_can_write() {
    let mut script = script(1);
    for id in 0..50 {
        play(
            &mut script,
            request(id, id, &[id]),
            [Some(64), None, Some(100)],
        );
    }
    let before = script.router.estimates().output_tokens;
    for (id, wild) in (100..).zip([u32::MAX, u32::MAX - 1, 1 << 31, 1_000_000, 100_000, 30_000]) {
        play(
            &mut script,
            request(id, id, &[id]),
            [Some(64), None, Some(wild)],
        );
    }
    assert_eq!(script.router.estimates().output_tokens, before);
}

#[test]
fn no_answer_is_longer_than_the_memory_of_its_engine() {
    let mut script = script(1);
    let load = Load {
        kv_capacity_tokens: Some(8_000),
        ..Load::default()
    };
    script.probe_load(0, load);
    play(
        &mut script,
        request(0, 0, &[0]),
        [Some(64), None, Some(100)],
    );
    let before = script.router.estimates().output_tokens;
    play(
        &mut script,
        request(1, 1, &[1]),
        [Some(64), None, Some(9_000)],
    );
    assert_eq!(script.router.estimates().output_tokens, before);
}

/// A pool of four at 5 % of 320,000 tokens, of which the last one claims another capacity, all of it in use.
fn pool_beside_a_claim(capacity: u64) -> Script {
    let config = RouterConfig {
        push: Push::Blind,
        tenants: Some(TenantLimits {
            share_max: Some(0.1),
            token_share_max: Some(0.1),
            in_flight_max: None,
            weights: std::collections::BTreeMap::new(),
            tracked_max: TenantLimits::TRACKED_MAX,
        }),
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 4);
    for id in 0..4 {
        let (capacity, usage) = if id == 3 {
            (capacity, 1.0)
        } else {
            (320_000, 0.05)
        };
        let load = Load {
            running: Some(0),
            kv_usage: Some(usage),
            kv_capacity_tokens: Some(capacity),
            ..Load::default()
        };
        script.probe_load(id, load);
    }
    script
}

#[test]
fn one_replica_that_claims_a_vast_cache_does_not_make_the_pool_busy() {
    for capacity in [320_000, 1 << 40, 1 << 60, u64::MAX, 1] {
        let mut script = pool_beside_a_claim(capacity);
        for id in 0..20 {
            let tenant = TenantId(1 + id % 2);
            script.arrive(Request {
                tenant,
                ..request(id, id, &[id])
            });
        }
        assert_eq!(script.sent().len(), 20, "{capacity}");
    }
}

/// Requests of one API, each longer by a block, answered without a number of cached tokens where `named` is none.
fn conversation(script: &mut Script, ids: core::ops::Range<u64>, api: Api, named: Option<u32>) {
    for id in ids {
        let blocks: Vec<u64> = (0..20).map(|block| 1_000 * (id / 4) + block).collect();
        let turn = Request {
            api: Some(api),
            ..request(id, id / 4, &blocks[..10 + id as usize % 4])
        };
        let prompt = turn.prompt_tokens;
        play(script, turn, [Some(prompt), named, Some(20)]);
    }
}

#[test]
fn an_api_that_names_cached_tokens_says_nothing_of_another() {
    let mut script = script(1);
    conversation(&mut script, 0..40, Api::ChatCompletions, None);
    let before = script.router.stats(script.now);
    assert_eq!(before.counters.false_hits, 0);
    conversation(&mut script, 40..41, Api::Responses, Some(0));
    conversation(&mut script, 44..84, Api::ChatCompletions, None);
    assert_eq!(script.router.stats(script.now).counters.false_hits, 0);
}

#[test]
fn an_api_that_has_named_cached_tokens_leaves_zeros_out() {
    let mut script = script(1);
    conversation(&mut script, 0..1, Api::ChatCompletions, Some(0));
    conversation(&mut script, 1..4, Api::ChatCompletions, None);
    assert!(script.router.stats(script.now).counters.false_hits > 0);
}

#[test]
fn stored_history_is_plausible_where_an_api_stores_it() {
    for (api, implausible) in [(Api::Responses, 0), (Api::ChatCompletions, 1)] {
        let mut script = script(1);
        let follow_up = Request {
            api: Some(api),
            ..request(0, 0, &[0])
        };
        play(
            &mut script,
            follow_up,
            [Some(20_000), Some(19_968), Some(20)],
        );
        let stats = script.router.stats(script.now);
        assert_eq!(stats.counters.implausible_usage, implausible, "{api:?}");
    }
}

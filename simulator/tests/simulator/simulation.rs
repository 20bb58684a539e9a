//! The simulator on small cases whose outcome is known.

use core::time::Duration;

use isotherm_policies::{BlockCost, LMetric, PolicyName, SMetric, TokenLoad};
use isotherm_router::{PolicyFactory, Push, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::{Arrangement, Setup, run};

use crate::support::{chats, config, engine, run_checked, single, workload};

#[test]
fn a_single_request_takes_the_time_of_engine_and_network() {
    let prompt = Prompt::new([Piece::new(1, 512)]);
    let workload = workload([single(1, Duration::from_secs(1), prompt)]);
    let arrangement = Arrangement::Router(config(PolicyName::PrefixTree));
    let setup = Setup::one_region(engine(), 1, arrangement);
    let outcome = run_checked("one", &setup, &workload);
    let ttft = outcome.requests[0].ttft().unwrap();
    // The preset: 512 tokens in about 300 ms; and four ways of 0.25 ms.
    let engine_s = 0.020 + 512.0 * 0.000_546 + 512.0 * 513.0 / 2.0 * 18e-9;
    assert!(
        (ttft.as_secs_f64() - engine_s - 0.001).abs() < 1e-6,
        "{ttft:?} against {engine_s} s"
    );
}

#[test]
fn every_request_ends_once_under_every_rival() {
    let workload = chats(40, 4);
    for policy in [
        PolicyFactory::new("token_load", |_| Box::new(TokenLoad)),
        PolicyFactory::new("lmetric", |_| Box::new(LMetric)),
        PolicyFactory::new("smetric", |_| Box::new(SMetric)),
        PolicyFactory::new("block_cost", |_| Box::new(BlockCost)),
    ] {
        for push in [Push::Pending, Push::Blind] {
            let config = RouterConfig {
                push,
                policy: policy.clone(),
                ..config(PolicyName::LeastOutstanding)
            };
            let setup = Setup::one_region(engine(), 3, Arrangement::RegionLocal(config));
            let outcome = run_checked(&format!("{policy} {push:?}"), &setup, &workload);
            let cached: u32 = outcome.requests.iter().map(|one| one.cached_tokens).sum();
            assert!(cached > 0, "{policy} {push:?} finds nothing in caches");
        }
    }
}

#[test]
fn a_later_turn_finds_the_earlier_one_and_its_answer_in_the_cache() {
    let workload = chats(1, 3);
    let arrangement = Arrangement::Router(config(PolicyName::PrefixTree));
    let outcome = run(&Setup::one_region(engine(), 2, arrangement), &workload);
    let cached: Vec<u32> = outcome.requests.iter().map(|r| r.cached_tokens).collect();
    // 350 tokens and an answer of 20, of which the last token was never computed: 369 tokens are 23 blocks.
    assert_eq!(cached, [0, 23 * 16, (350 + 20 + 150 + 19) / 16 * 16]);
    assert_eq!(
        outcome.requests[1].sent - outcome.requests[0].ended.unwrap(),
        Duration::from_millis(300)
    );
}

fn setup() -> Setup {
    let arrangement = Arrangement::Router(config(PolicyName::PrefixTree));
    Setup::one_region(engine(), 4, arrangement)
}

#[test]
fn two_services_serve_every_request_and_know_each_others_placements() {
    // All clients begin with the same prompt, which each service would otherwise compute on a replica of its own.
    let workload = chats(24, 3);
    let cached = |services| {
        let setup = Setup {
            services,
            ..setup()
        };
        let outcome = run_checked("siblings", &setup, &workload);
        outcome
            .requests
            .iter()
            .map(|one| one.cached_tokens)
            .sum::<u32>()
    };
    let (one, two) = (cached(1), cached(2));
    assert!(f64::from(two) > 0.9 * f64::from(one), "{two} of {one}");
}

#[test]
fn requests_past_the_router_count_in_no_figure_and_load_the_engines() {
    let workload = chats(40, 2);
    let setup = Setup {
        bypass_share: 0.5,
        ..setup()
    };
    let outcome = run(&setup, &workload);
    assert_eq!(outcome.requests.len(), workload.requests());
    assert!(outcome.requests.iter().all(|one| one.is_answered()));
    let counted = outcome.requests.iter().filter(|one| !one.warmup).count();
    assert!((20..60).contains(&counted), "{counted} of 80");
    assert_eq!(outcome, run(&setup, &workload), "the same again");
}

//! The forwarding cost: a warm cache at a peer against the round trip, once the pool has measured its prefill speed.

use crate::support::home::{ASIA, EU, config, no_free_capacity, region, roomy};
use crate::support::script::Script;
use crate::support::{request, traveller};
use isotherm_router::{
    Choice, End, Event, ForwardingRule, PeerId, PeerReport, PromptCost, Reason, RequestId, ServedBy,
};

/// Blocks of 256 bytes, the same for the same session.
fn turn(session: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|block| session << 8 | block).collect()
}

/// A region with one replica, which takes one request at a time and a second for 40 blocks of prompt.
fn measured() -> Script {
    let mut script = region(1);
    for (id, blocks) in [(1000, 40), (1001, 80), (1002, 10), (1003, 40)] {
        script.arrive(traveller(id, id, &turn(id, blocks), &[]));
        assert_eq!(script.sent(), [(id, 0)]);
        script.sleep(25 * blocks);
        answered(&mut script, id, blocks);
        script.probe(0, 0);
    }
    hear(&mut script);
    script
}

/// Ends a request without a cache hit; a block has 64 tokens.
fn answered(script: &mut Script, id: u64, blocks: u64) {
    script.event(Event::Finished {
        id: RequestId(id),
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: Some(25_000 * blocks),
        prompt_tokens: u32::try_from(64 * blocks).ok(),
        cached_tokens: Some(0),
        completion_tokens: None,
    });
}

/// Eu is 90 ms away, asia 200 ms, and both have room.
fn hear(script: &mut Script) {
    script.peer_at(EU, 90, roomy());
    script.peer_at(ASIA, 200, roomy());
}

/// A measured region where session 1 has had a turn in eu, and the local replica is free again.
fn after_a_turn_in_eu(blocks: u64) -> Script {
    let mut script = measured();
    script.arrive(traveller(1, 2, &turn(2, 4), &[]));
    script.arrive(traveller(2, 1, &turn(1, blocks), &[]));
    let effects = script.effects();
    assert_eq!(effects.len(), 2, "one here, one in eu: {effects:?}");
    script.finish(1);
    hear(&mut script);
    script
}

#[test]
fn a_conversation_continues_in_the_region_of_its_prefix_although_a_local_replica_is_free() {
    let mut script = after_a_turn_in_eu(20);
    let priced = PeerReport {
        prompt_cost: Some(PromptCost {
            prompt_token_s: 0.000_4,
            ..PromptCost::default()
        }),
        ..roomy()
    };
    script.peer_at(EU, 90, priced);
    let next = traveller(3, 1, &turn(1, 22), &[]);
    let told = script.router.explain(script.now, &next).choice;
    let expected = Choice::Forward {
        peer: PeerId(EU),
        reason: Reason::Prefix,
    };
    assert_eq!(told, expected);
    script.arrive(next);
    assert_eq!(
        script.forwarded(),
        [(3, EU)],
        "half a second saved by 90 ms"
    );
}

#[test]
fn a_request_stays_when_the_round_trip_exceeds_the_saved_prefill() {
    let mut script = after_a_turn_in_eu(20);
    script.peer_at(EU, 600, roomy());
    script.arrive(traveller(3, 1, &turn(1, 22), &[]));
    assert_eq!(script.sent(), [(3, 0)]);
    let mut script = after_a_turn_in_eu(3);
    script.arrive(traveller(3, 1, &turn(1, 4), &[]));
    assert_eq!(script.sent(), [(3, 0)], "75 ms saved by 90 ms");
}

#[test]
fn a_request_stays_before_prefill_was_measured() {
    let mut script = region(1);
    script.arrive(traveller(1, 2, &turn(2, 4), &[]));
    script.arrive(traveller(2, 1, &turn(1, 20), &[]));
    assert_eq!(script.effects().len(), 2);
    script.finish(1);
    hear(&mut script);
    script.arrive(traveller(3, 1, &turn(1, 22), &[]));
    assert_eq!(script.sent(), [(3, 0)]);
}

#[test]
fn a_request_waits_for_its_warm_cache_no_longer_than_prefill_at_a_peer_takes() {
    let mut script = measured();
    script.arrive(traveller(1, 1, &turn(1, 80), &[]));
    assert_eq!(script.sent(), [(1, 0)]);
    script.arrive(traveller(2, 1, &turn(1, 82), &[]));
    assert_eq!(script.effects(), [], "a second here, two and more in eu");
    script.sleep(1_500);
    hear(&mut script);
    assert_eq!(script.effects(), []);
    script.sleep(1_000);
    hear(&mut script);
    assert_eq!(script.forwarded(), [(2, EU)], "the estimate was wrong");
}

/// A region with two replicas, where session 1 has had a turn of 40 blocks in eu, and then one on the replica that is returned.
fn with_a_home_here() -> (Script, u32) {
    let mut script = region(2);
    for id in 1000..1004 {
        script.arrive(traveller(id, id, &turn(id, 40), &[]));
        script.sleep(1_000);
        answered(&mut script, id, 40);
        script.probe_all(0..2);
    }
    script.effects();
    hear(&mut script);
    script.arrive(traveller(1, 2, &turn(2, 4), &[]));
    script.arrive(traveller(2, 3, &turn(3, 4), &[]));
    script.arrive(traveller(3, 1, &turn(1, 40), &[]));
    assert_eq!(script.forwarded(), [(3, EU)], "both replicas are full");
    script.finish(1);
    script.finish(2);
    script.finish(3);
    script.peer_says(EU, no_free_capacity());
    script.arrive(traveller(4, 1, &turn(1, 42), &[]));
    let (_, home) = script.sent().remove(0);
    script.finish(4);
    // Short prompts, so that a turn at a busy replica is short.
    for id in 2000..2100 {
        script.sleep(500);
        script.arrive(traveller(id, id, &turn(id, 1), &[]));
        script.finish(id);
        script.probe_all(0..2);
    }
    script.effects();
    (script, home)
}

#[test]
fn a_conversation_waits_for_its_home_that_is_busy_for_a_moment() {
    let (mut script, home) = with_a_home_here();
    let mut id = 3_000;
    while script.sent().iter().all(|(_, replica)| *replica != home) {
        id += 1;
        script.arrive(request(id, id, &turn(id, 1)));
        assert!(id < 3_003, "one of two replicas is the home");
    }
    script.finish(id - 1);
    script.effects();
    script.peer_at(EU, 300, roomy());
    script.arrive(traveller(10, 1, &turn(1, 44), &[]));
    assert_eq!(
        script.effects(),
        [],
        "its cache here is free sooner than a way of 300 ms"
    );
    script.finish(id);
    assert_eq!(script.sent(), [(10, home)]);
}

#[test]
fn a_request_behind_a_request_that_stays_for_its_cache_leaves() {
    let mut script = measured();
    script.peer_says(EU, no_free_capacity());
    script.peer_says(ASIA, no_free_capacity());
    script.arrive(traveller(1, 1, &turn(1, 80), &[]));
    assert_eq!(script.sent(), [(1, 0)]);
    script.arrive(traveller(2, 1, &turn(1, 82), &[]));
    script.arrive(request(3, 3, &turn(3, 4)));
    script.arrive(traveller(4, 4, &turn(4, 40), &[]));
    assert_eq!(script.effects(), [], "no peer has room");
    script.peer_at(EU, 90, roomy());
    assert_eq!(script.forwarded(), [(4, EU)], "three seconds here");
}

/// The region of a script forwards as published from now on.
fn publish(script: &mut Script) {
    let mut published = config();
    published.region.forwarding = ForwardingRule::Published;
    script.router.reconfigure(script.now, published);
}

#[test]
fn as_published_a_request_stays_while_a_local_replica_is_free() {
    let mut script = after_a_turn_in_eu(20);
    publish(&mut script);
    script.arrive(traveller(3, 1, &turn(1, 22), &[]));
    assert_eq!(
        script.sent(),
        [(3, 0)],
        "half a second would be saved in eu"
    );
}

#[test]
fn as_published_a_request_leaves_when_all_local_replicas_are_full() {
    let mut script = measured();
    publish(&mut script);
    script.arrive(traveller(1, 1, &turn(1, 80), &[]));
    assert_eq!(script.sent(), [(1, 0)]);
    script.arrive(traveller(2, 1, &turn(1, 82), &[]));
    assert_eq!(
        script.forwarded(),
        [(2, EU)],
        "a second would be saved here"
    );
}

#[test]
fn a_cold_request_leaves_when_the_local_wait_exceeds_the_round_trip() {
    let mut script = measured();
    script.arrive(traveller(1, 1, &turn(1, 80), &[]));
    assert_eq!(script.sent(), [(1, 0)]);
    script.arrive(traveller(2, 2, &turn(2, 40), &[]));
    assert_eq!(script.forwarded(), [(2, EU)], "90 ms instead of a second");
}

/// Room for 100 requests, and a first token after so many seconds and a little for each token.
fn priced(first_token_s: f32) -> PeerReport {
    PeerReport {
        prompt_cost: Some(PromptCost {
            first_token_s,
            prompt_token_s: 0.000_01,
            ..PromptCost::default()
        }),
        ..roomy()
    }
}

#[test]
fn a_request_leaves_for_a_cheaper_region_although_a_local_replica_is_free() {
    let mut script = measured();
    script.peer_at(EU, 90, priced(0.1));
    script.peer_at(ASIA, 200, priced(0.1));
    let long = traveller(1, 1, &turn(1, 80), &[]);
    let told = script.router.explain(script.now, &long).choice;
    script.arrive(long);
    assert_eq!(script.forwarded(), [(1, EU)], "two seconds here");
    let expected = Choice::Forward {
        peer: PeerId(EU),
        reason: Reason::Soonest,
    };
    assert_eq!(told, expected);
}

#[test]
fn a_request_stays_for_a_small_advantage_that_grows_with_the_number_of_regions() {
    for (first_token_s, has_another, leaves) in [
        (0.09, false, true),
        (0.09, true, false),
        (0.11, false, false),
    ] {
        let mut script = measured();
        script.peer_at(EU, 90, priced(first_token_s));
        if !has_another {
            script.event(Event::PeerLost(PeerId(ASIA)));
        }
        script.arrive(traveller(1, 1, &turn(1, 8), &[]));
        let is_forwarded = !script.forwarded().is_empty();
        assert_eq!(
            is_forwarded, leaves,
            "a first token after {first_token_s} s there, another region: {has_another}, and a service time of 1 s"
        );
    }
}

#[test]
fn each_forwarded_request_makes_its_peer_dearer_until_the_next_report() {
    let mut script = measured();
    script.peer_at(EU, 90, priced(0.1));
    script.peer_at(ASIA, 90, priced(0.11));
    let mut peers = Vec::new();
    for id in 1..=4 {
        script.arrive(traveller(id, id, &turn(id, 80), &[]));
        peers.extend(script.forwarded().into_iter().map(|(_, peer)| peer));
    }
    assert_eq!(peers, [EU, ASIA, EU, ASIA]);
}

#[test]
fn as_published_a_cheaper_region_attracts_no_request_that_a_local_replica_can_start() {
    let mut script = measured();
    publish(&mut script);
    script.peer_at(EU, 90, priced(0.1));
    script.arrive(traveller(1, 1, &turn(1, 80), &[]));
    assert_eq!(script.sent(), [(1, 0)]);
}

#[test]
fn a_report_has_the_cost_of_a_prompt_while_a_replica_is_available() {
    let mut script = measured();
    let cost = script.router.report().prompt_cost.unwrap();
    let token_s = cost.prompt_token_s;
    assert!(
        (0.000_34..0.000_36).contains(&token_s),
        "0.35 ms for each token: {cost:?}"
    );
    script.arrive(traveller(1, 1, &turn(1, 80), &[]));
    assert_eq!(script.router.report().prompt_cost, None);
}

#[test]
fn a_long_prompt_stays_although_a_peer_in_the_same_state_has_room() {
    for (id, blocks) in [(1, 4), (2, 80), (3, 800), (4, 4_000)] {
        let mut script = measured();
        let same = PeerReport {
            prompt_cost: script.router.report().prompt_cost,
            ..roomy()
        };
        script.peer_at(EU, 90, same);
        script.arrive(traveller(id, id, &turn(id, blocks), &[]));
        assert_eq!(script.sent(), [(id, 0)], "{blocks} blocks");
    }
}

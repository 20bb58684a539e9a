//! Where prompts and sessions go, and what the engines' own figures change about it.

use crate::support::script::Script;
use crate::support::{BLOCK_BYTES, request};
use isotherm_policies::PolicyName;
use isotherm_router::{
    End, Event, Load, Push, Reason, ReplicaId, RequestId, RouterConfig, ServedBy,
};

fn script(policy: PolicyName, push: Push, replicas: u32) -> Script {
    let config = RouterConfig {
        policy: policy.into(),
        push,
        ..RouterConfig::default()
    };
    Script::new(config, replicas)
}

fn blind_tree(replicas: u32) -> Script {
    script(PolicyName::PrefixTree, Push::Blind, replicas)
}

/// Sends one request through; where it went, and how much of it was there.
fn send(script: &mut Script, id: u64, blocks: &[u64]) -> (u32, u32) {
    script.arrive(request(id, id, blocks));
    let (_, decision) = script.dispatches().remove(0);
    (decision.replica.0, decision.matched_bytes / BLOCK_BYTES)
}

#[test]
fn a_conversation_stays_where_it_began() {
    let mut script = blind_tree(8);
    let mut homes = Vec::new();
    for turn in 1..6 {
        for session in 0..8 {
            let id = 100 * turn + session;
            let blocks: Vec<u64> = (0..2 * turn).map(|i| 1_000 * session + i).collect();
            let (replica, matched) = send(&mut script, id, &blocks);
            script.finish(id);
            if turn == 1 {
                homes.push(replica);
            } else {
                assert_eq!(homes[usize::try_from(session).unwrap()], replica);
                assert_eq!(u64::from(matched), 2 * (turn - 1));
            }
        }
    }
    homes.sort_unstable();
    assert_eq!(homes, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_short_match_makes_no_hot_spot() {
    let mut script = blind_tree(4);
    let mut count = [0; 4];
    for id in 0..40 {
        let blocks = [1, 2, 10 * id, 10 * id + 1, 10 * id + 2];
        let (replica, _) = send(&mut script, id, &blocks);
        count[replica as usize] += 1;
    }
    assert_eq!(count, [10; 4]);
}

#[test]
fn the_best_available_match_is_taken_when_the_best_one_is_busy() {
    let mut script = script(PolicyName::PrefixTree, Push::Outstanding { max: 1 }, 3);
    let (long, _) = send(&mut script, 0, &[1, 2, 3, 4]);
    let (short, _) = send(&mut script, 1, &[1, 2, 3]);
    script.finish(1);
    assert_ne!(long, short);
    script.arrive(request(2, 2, &[1, 2, 3, 4]));
    let (_, decision) = script.dispatches().remove(0);
    assert_eq!(decision.replica, ReplicaId(short));
    assert_eq!(decision.reason, Reason::Prefix);
    assert_eq!(decision.matched_tokens, 3 * BLOCK_BYTES / 4);
}

#[test]
fn a_session_stays_on_its_replica_of_the_ring_and_returns_to_it() {
    let mut script = script(PolicyName::ConsistentHash, Push::Outstanding { max: 1 }, 5);
    let go = |script: &mut Script, id| {
        script.arrive(request(id, 42, &[id]));
        script.sent()[0].1
    };
    let home = go(&mut script, 0);
    let second = go(&mut script, 1);
    assert_ne!(home, second, "the home is taken");
    script.finish(0);
    assert_eq!(go(&mut script, 2), home);
    script.finish(1);
    assert_eq!(go(&mut script, 3), second, "always the same next one");
}

#[test]
fn only_the_sessions_of_a_replica_that_leaves_move() {
    let mut script = script(PolicyName::ConsistentHash, Push::Blind, 10);
    let homes = |script: &mut Script, from: u64| -> Vec<u32> {
        (0..500)
            .map(|session| {
                script.arrive(request(from + session, session, &[]));
                script.sent()[0].1
            })
            .collect()
    };
    let before = homes(&mut script, 0);
    script.event(Event::Removed(ReplicaId(3)));
    let after = homes(&mut script, 1_000);
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(*after, 3);
        assert!(*before == 3 || before == after);
    }
    let share = before.iter().filter(|home| **home == 3).count();
    assert!((20..100).contains(&share), "{share} of 500 on one of ten");
}

#[test]
fn a_failed_request_is_retracted_from_the_index() {
    let mut script = blind_tree(2);
    let (replica, _) = send(&mut script, 0, &[1, 2, 3]);
    script.finish_as(0, End::Failed, ServedBy::Unreported, None);
    assert_eq!(send(&mut script, 1, &[1, 2, 3]), (1 - replica, 0));
}

#[test]
fn a_retry_moves_the_prompt_to_the_replica_that_served_it() {
    let mut script = blind_tree(3);
    let (first, _) = send(&mut script, 0, &[1, 2, 3]);
    let served = (first + 1) % 3;
    script.finish_as(
        0,
        End::Answered,
        ServedBy::Replica(ReplicaId(served)),
        Some((192, 0)),
    );
    assert_eq!(send(&mut script, 1, &[1, 2, 3]), (served, 3));
    assert_eq!(script.stats().counters.retried_elsewhere, 1);
}

#[test]
fn a_prompt_that_no_replica_saw_is_taken_back_whatever_the_status() {
    for served_by in [ServedBy::Unreported, ServedBy::Overridden(None)] {
        let end = match served_by {
            ServedBy::Unreported => End::Unsent,
            _ => End::Answered,
        };
        let mut script = blind_tree(2);
        send(&mut script, 0, &[1, 2, 3]);
        script.finish_as(0, end, served_by, None);
        assert_eq!(send(&mut script, 1, &[1, 2, 3]).1, 0, "{end:?}");
    }
}

#[test]
fn a_route_that_overrides_the_choice_moves_the_prompt_and_is_no_retry() {
    let mut script = blind_tree(3);
    let (first, _) = send(&mut script, 0, &[1, 2, 3]);
    let served = (first + 1) % 3;
    let by_route = ServedBy::Overridden(Some(ReplicaId(served)));
    script.finish_as(0, End::Answered, by_route, Some((192, 0)));
    assert_eq!(send(&mut script, 1, &[1, 2, 3]), (served, 3));
    let counters = script.stats().counters;
    assert_eq!((counters.overridden, counters.retried_elsewhere), (1, 0));
}

#[test]
fn predictions_are_compared_with_measured_cache_hits() {
    let mut script = blind_tree(1);
    send(&mut script, 0, &[1, 2, 3]);
    script.finish_as(0, End::Answered, ServedBy::Unreported, Some((300, 0)));
    send(&mut script, 1, &[1, 2, 3, 4]);
    script.finish_as(1, End::Answered, ServedBy::Unreported, Some((400, 290)));
    let counters = script.stats().counters;
    assert_eq!(counters.predicted_cached_tokens, 300);
    assert_eq!(counters.measured_cached_tokens, 290);
    assert_eq!(counters.prediction_error_tokens, 10);
    assert_eq!(counters.measured_prompt_tokens, 700);
    assert_eq!(counters.false_hits, 0);
}

#[test]
fn a_false_hit_evicts_entries_of_the_same_age() {
    let mut script = blind_tree(1);
    send(&mut script, 0, &[1, 2, 3]);
    send(&mut script, 1, &[10, 20, 30]);
    for id in 0..2 {
        script.finish(id);
    }
    assert_eq!(send(&mut script, 2, &[10, 20, 30]), (0, 3));
    script.finish_as(2, End::Answered, ServedBy::Unreported, Some((192, 0)));
    assert_eq!(script.stats().counters.false_hits, 1);
    assert_eq!(
        send(&mut script, 3, &[1, 2, 3]),
        (0, 0),
        "evicted even before"
    );
    assert_eq!(send(&mut script, 4, &[10, 20, 30]), (0, 3), "just computed");
}

#[test]
fn an_engine_without_cache_hits_loses_its_predictions() {
    let mut script = blind_tree(2);
    let mut predicted = 0;
    for id in 0..40 {
        let blocks: Vec<u64> = (0..4).collect();
        let (_, matched) = send(&mut script, id, &blocks);
        script.finish_as(id, End::Answered, ServedBy::Unreported, Some((256, 0)));
        predicted += u32::from(id >= 20 && matched > 0);
    }
    assert!(predicted <= 10, "{predicted} of the last 20");
}

#[test]
fn the_index_holds_no_more_than_the_engines_cache() {
    let mut script = blind_tree(1);
    script.probe_load(
        0,
        Load {
            kv_capacity_tokens: Some(640),
            ..Load::default()
        },
    );
    for id in 0..20 {
        send(&mut script, id, &[100 * id, 100 * id + 1, 100 * id + 2]);
        script.finish(id);
    }
    let held = script
        .router
        .replicas(script.now)
        .next()
        .unwrap()
        .prefix_bytes;
    assert!(
        (2_000..=2_560).contains(&held),
        "{held} bytes for 640 tokens"
    );
}

#[test]
fn a_freed_replica_takes_the_request_that_it_is_warm_for_behind_a_long_queue() {
    const REPLICAS: u32 = 100;
    let push = Push::Outstanding { max: 1 };
    let mut script = script(PolicyName::Isotherm, push, REPLICAS);
    let of_kind = |kind: u64, id: u64| {
        let mut blocks: Vec<u64> = (0..300).map(|i| 1_000 * kind + i).collect();
        blocks.push(1_000_000 + id);
        request(id, id, &blocks)
    };
    let kinds = u64::from(REPLICAS);
    for kind in 0..kinds {
        script.arrive(of_kind(kind, kind));
    }
    let homes = script.sent();
    for (id, _) in &homes {
        script.finish(*id);
    }
    for kind in 0..kinds {
        script.arrive(of_kind(kind, kinds + kind));
    }
    let busy: Vec<(u64, u32)> = homes.iter().map(|(id, at)| (kinds + id, *at)).collect();
    assert_eq!(script.sent(), busy);
    for id in 200..400 {
        script.arrive(of_kind(id % 50, id));
    }
    let (kind, home) = homes[99];
    script.arrive(of_kind(kind, 400));
    script.finish(kinds + kind);
    assert_eq!(script.sent(), [(400, home)]);
}

/// A pool of two replicas that take one request each, where nearly every prompt was a new one.
fn mostly_cold() -> Script {
    let mut script = script(PolicyName::Isotherm, Push::Outstanding { max: 1 }, 2);
    for id in 0..2_000 {
        let blocks: Vec<u64> = (0..8).map(|block| 1_000_000 + 8 * id + block).collect();
        send(&mut script, id, &blocks);
        script.sleep(10);
        script.probe_all(0..2);
        script.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: Some(50_000),
            prompt_tokens: Some(512),
            cached_tokens: Some(0),
            completion_tokens: Some(1),
        });
    }
    script
}

#[test]
fn a_request_leaves_the_busy_holder_of_its_prompt_within_six_objectives() {
    let mut script = mostly_cold();
    let long: Vec<u64> = (0..200).collect();
    let (holder, _) = send(&mut script, 3_000, &long);
    script.arrive(request(3_001, 3_000, &long));
    assert_eq!(
        script.sent(),
        [],
        "it waits for the replica that holds its prompt"
    );
    let slo_s = 5;
    for _ in 0..6 * slo_s {
        script.sleep(1_000);
        script.probe_all(0..2);
        if let Some(sent) = script.sent().pop() {
            assert_eq!(sent, (3_001, 1 - holder));
            return;
        }
    }
    panic!("it waits for a replica that does not get free");
}

#[test]
fn a_cold_prompt_that_has_waited_goes_before_a_warm_one_that_has_just_arrived() {
    let mut script = mostly_cold();
    let warm: Vec<u64> = (0..20).collect();
    let (holder, _) = send(&mut script, 3_000, &warm);
    send(&mut script, 3_001, &[5_000]);
    script.arrive(request(3_002, 3_002, &[6_000, 6_001]));
    for _ in 0..4 {
        script.sleep(1_000);
        script.probe_all(0..2);
    }
    script.arrive(request(3_003, 3_000, &warm));
    assert_eq!(script.sent(), []);
    script.finish(3_000);
    assert_eq!(script.sent(), [(3_002, holder)]);
}

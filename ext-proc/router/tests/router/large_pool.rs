//! Bounded events in a large pool with a long queue: what one event leaves over is due at once, and nothing is lost by that.
use std::time::Duration;

use crate::support::script::Script;
use crate::support::{request, serves_in_order, traveller};
use isotherm_policies::PolicyName;
use isotherm_router::{
    Effect, Event, IndexLimits, Load, PeerReport, Push, QueueLimits, Reason, RejectReason,
    ReplicaId, Request, Role, RouterConfig,
};

const WAITING: u64 = 3_000;
/// Requests that one event rejects at most, and that it forwards at most.
const REJECTED_MAX: usize = 1_024;
const FORWARDED_MAX: usize = 64;
/// Index entries that one event evicts at most.
const EVICTED_MAX: u64 = 1_024;

/// Replicas take one request each.
fn config(policy: PolicyName) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push: Push::Outstanding { max: 1 },
        queue: QueueLimits {
            length_max: 100_000,
            wait_max: Duration::from_secs(30),
            ..QueueLimits::default()
        },
        probe_stale_after: Duration::from_secs(3_600),
        ..RouterConfig::default()
    }
}

fn pool(policy: PolicyName, replicas: u32) -> Script {
    Script::new(config(policy), replicas)
}

fn restricted(id: u64, replicas: &[u32]) -> Request {
    Request {
        subset: Some(replicas.iter().copied().map(ReplicaId).collect()),
        ..request(id, id, &[])
    }
}

/// The effects of each call of the router, while it is to be called again at once.
fn effects_of_calls(script: &mut Script) -> Vec<Vec<Effect>> {
    let mut calls = vec![script.effects()];
    for _ in 0..10_000 {
        let due = script.router.poll_timeout();
        if due.is_none_or(|due| due > script.now) {
            return calls;
        }
        script.router.handle_timeout(script.now);
        calls.push(script.effects());
    }
    panic!("the router is due at once for ever");
}

fn rejections(calls: &[Vec<Effect>], reason: RejectReason) -> usize {
    let is_such = |effect: &&Effect| matches!(effect, Effect::Reject { reason: other, .. } if *other == reason);
    calls.iter().flatten().filter(is_such).count()
}

fn longest(calls: &[Vec<Effect>]) -> usize {
    calls.iter().map(Vec::len).max().unwrap_or_default()
}

#[test]
fn requests_that_expire_together_are_all_rejected_in_bounded_calls() {
    let mut script = pool(PolicyName::Isotherm, 2);
    for id in 0..WAITING + 2 {
        script.arrive(request(id, id, &[]));
    }
    script.effects();
    script.sleep(30_000);
    let calls = effects_of_calls(&mut script);
    let expected = usize::try_from(WAITING).unwrap();
    assert_eq!(rejections(&calls, RejectReason::WaitedTooLong), expected);
    assert!(longest(&calls) <= REJECTED_MAX, "{}", longest(&calls));
}

#[test]
fn a_shutdown_rejects_all_waiting_requests_in_bounded_calls() {
    let mut script = pool(PolicyName::Isotherm, 2);
    for id in 0..WAITING + 2 {
        script.arrive(request(id, id, &[]));
    }
    script.effects();
    script.event(Event::Shutdown);
    let calls = effects_of_calls(&mut script);
    let expected = usize::try_from(WAITING).unwrap();
    assert_eq!(rejections(&calls, RejectReason::ShuttingDown), expected);
    assert!(longest(&calls) <= REJECTED_MAX, "{}", longest(&calls));
}

#[test]
fn a_peer_with_room_for_all_gets_a_bounded_number_in_each_call() {
    let mut script = pool(PolicyName::Isotherm, 2);
    script.add_peer(0);
    for id in 0..1_000 {
        script.arrive(traveller(id, id, &[], &[]));
    }
    script.effects();
    script.peer_says(
        0,
        PeerReport {
            available: 100,
            replicas: 100,
            free_capacity: 100_000,
            queue: 0,
            drain_per_s: 1_000.0,
            ..PeerReport::default()
        },
    );
    let calls = effects_of_calls(&mut script);
    assert!(longest(&calls) <= FORWARDED_MAX, "{}", longest(&calls));
    assert_eq!(calls.iter().flatten().count(), 998);
}

#[test]
fn a_removed_replica_leaves_thousands_of_restrictions_in_bounded_calls() {
    let mut script = pool(PolicyName::Isotherm, 3);
    for id in 0..WAITING + 3 {
        script.arrive(restricted(id, if id % 2 == 0 { &[0] } else { &[0, 1] }));
    }
    script.effects();
    let waiting = script.stats().queue_length;
    script.event(Event::Removed(ReplicaId(0)));
    let calls = effects_of_calls(&mut script);
    assert!(longest(&calls) <= REJECTED_MAX, "{}", longest(&calls));
    let rejected = rejections(&calls, RejectReason::EmptySubset);
    assert_eq!(rejected + script.stats().queue_length, waiting);
    assert!((1_400..1_600).contains(&rejected), "{rejected}");
}

#[test]
fn a_new_replica_gets_no_request_that_was_restricted_to_a_removed_one() {
    let mut script = pool(PolicyName::LeastOutstanding, 1);
    for id in 0..WAITING {
        script.arrive(restricted(id, &[0]));
    }
    assert_eq!(script.sent(), [(0, 0)]);
    script.event(Event::Removed(ReplicaId(0)));
    script.add(1);
    script.probe(1, 0);
    let calls = effects_of_calls(&mut script);
    let expected = usize::try_from(WAITING - 1).unwrap();
    assert_eq!(rejections(&calls, RejectReason::EmptySubset), expected);
    assert_eq!(calls.iter().flatten().count(), expected);
}

#[test]
fn a_replica_that_drains_and_resumes_at_once_gets_no_restricted_request_that_waited() {
    let mut script = pool(PolicyName::LeastOutstanding, 2);
    for id in 0..WAITING {
        script.arrive(restricted(id, &[0]));
    }
    assert_eq!(script.sent(), [(0, 0)]);
    script.event(Event::Draining(ReplicaId(0)));
    script.event(Event::Resumed(ReplicaId(0)));
    script.finish(0);
    let calls = effects_of_calls(&mut script);
    let expected = usize::try_from(WAITING - 1).unwrap();
    assert_eq!(rejections(&calls, RejectReason::EmptySubset), expected);
    assert_eq!(calls.iter().flatten().count(), expected);
}

/// Entries evicted by each call, while the router is to be called again at once.
fn evictions_of_calls(script: &mut Script, before: u64) -> Vec<u64> {
    let mut seen = before;
    let mut calls = Vec::new();
    for _ in 0..1_000 {
        let evicted = script.stats().index.evicted;
        calls.push(evicted - seen);
        seen = evicted;
        let due = script.router.poll_timeout();
        if due.is_none_or(|due| due > script.now) {
            return calls;
        }
        script.router.handle_timeout(script.now);
    }
    panic!("the router is due at once for ever");
}

/// A pool of one replica that was sent 20,000 blocks.
fn filled() -> Script {
    let mut script = pool(PolicyName::Isotherm, 1);
    for id in 0..100 {
        let blocks: Vec<u64> = (0..200).map(|block| 1_000 * (id + 1) + block).collect();
        script.arrive(request(id, id, &blocks));
        script.finish(id);
        script.effects();
    }
    assert_eq!(script.stats().index.entries, 20_000);
    script
}

#[test]
fn a_smaller_cache_of_a_replica_evicts_in_bounded_calls() {
    let mut script = filled();
    let before = script.stats().index.evicted;
    script.probe_load(
        0,
        Load {
            kv_capacity_tokens: Some(1_000),
            ..Load::default()
        },
    );
    let calls = evictions_of_calls(&mut script, before);
    assert!(*calls.iter().max().unwrap() <= EVICTED_MAX, "{calls:?}");
    assert!(script.stats().index.entries < 100, "{:?}", script.stats());
}

#[test]
fn less_memory_for_the_index_evicts_in_bounded_calls() {
    let mut script = filled();
    let before = script.stats().index.evicted;
    let index = IndexLimits {
        bytes_max: 1 << 16,
        ..RouterConfig::default().index
    };
    let config = RouterConfig {
        index,
        push: Push::Outstanding { max: 1 },
        ..RouterConfig::default()
    };
    script.router.reconfigure(script.now, config);
    let calls = evictions_of_calls(&mut script, before);
    assert!(*calls.iter().max().unwrap() <= EVICTED_MAX, "{calls:?}");
    assert!(
        script.stats().index.bytes <= 1 << 16,
        "{:?}",
        script.stats()
    );
}

#[test]
fn a_new_policy_decides_at_once_in_a_large_pool_with_a_long_queue() {
    let config = config(PolicyName::RoundRobin);
    let mut script = Script::new(config.clone(), 200);
    for id in 0..WAITING + 200 {
        script.arrive(request(id, id, &[id]));
    }
    script.effects();
    for (freed, policy, reason) in [
        (0, PolicyName::DualMap, Reason::LeastLoaded),
        (1, PolicyName::ConsistentHash, Reason::Ring),
        (2, PolicyName::LeastOutstanding, Reason::LeastLoaded),
    ] {
        let config = RouterConfig {
            policy: policy.into(),
            ..config.clone()
        };
        script.router.reconfigure(script.now, config);
        assert_eq!(script.dispatches().len(), 0, "all replicas are busy");
        script.finish(freed);
        let (_, next) = script.dispatches().remove(0);
        assert_eq!(next.reason, reason, "{policy}");
    }
}

#[test]
fn a_restricted_request_goes_to_its_free_replica_however_many_others_are_less_loaded() {
    for &policy in PolicyName::ALL {
        let mut script = pool(policy, 200);
        for id in 0..3 {
            script.arrive(restricted(id, &[7]));
            assert_eq!(script.sent(), [(id, 7)], "{policy}");
            script.finish(id);
        }
    }
}

#[test]
fn the_service_of_a_restricted_request_ends_at_once_in_a_large_pool() {
    for &policy in PolicyName::ALL {
        let mut script = pool(policy, 200);
        for id in 0..100 {
            script.arrive(restricted(id, &[7, 8]));
        }
        script.add_as(300, Role::Both);
        script.probe(300, 0);
        for id in 0..100 {
            script.finish(id);
            effects_of_calls(&mut script);
        }
        if serves_in_order(policy) {
            assert_eq!(script.stats().queue_length, 0, "{policy}");
        }
    }
}

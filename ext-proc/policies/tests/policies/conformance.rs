//! Invariants of every policy, under every push rule.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::script::Script;
use crate::support::{forwarded_request, request, serves_in_order, traveller};
use isotherm_policies::PolicyName;
use isotherm_router::{
    Choice, Effect, Event, PeerReport, Push, RejectReason, ReplicaId, Request, RouterConfig,
};

/// Requests that a replica is sent between two probes at most.
const SENT_BETWEEN_PROBES: u64 = 8;
const MODES: [Push; 3] = [Push::Pending, Push::Outstanding { max: 2 }, Push::Blind];

/// All policies in all modes, with as many idle replicas.
fn everywhere(replicas: u32, test: impl Fn(&str, Push, Script)) {
    for &policy in PolicyName::ALL {
        for push in MODES {
            let name = format!("{policy} {push:?}");
            test(&name, push, Script::new(config(policy, push), replicas));
        }
    }
}

/// All policies, with replicas that take two requests each: further ones wait.
fn where_requests_wait(replicas: u32, test: impl Fn(&str, PolicyName, Script)) {
    for &policy in PolicyName::ALL {
        let config = config(policy, Push::Outstanding { max: 2 });
        test(policy.as_ref(), policy, Script::new(config, replicas));
    }
}

fn config(policy: PolicyName, push: Push) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push,
        ..RouterConfig::default()
    }
}

/// A request of a session of its own.
fn single(id: u64) -> Request {
    request(id, id, &[id, id + 1, id + 2])
}

#[test]
fn an_idle_pool_takes_a_request_at_once() {
    everywhere(4, |name, _, mut script| {
        script.arrive(single(1));
        let sent = script.dispatches();
        assert_eq!(sent.len(), 1, "{name}");
        assert_eq!(sent[0].1.queued_for, Duration::ZERO, "{name}");
    });
}

#[test]
fn a_pool_of_one_replica_works() {
    everywhere(1, |name, _, mut script| {
        for id in 0..3 {
            script.sleep(100);
            script.probe(0, 0);
            script.arrive(single(id));
            assert_eq!(script.sent(), [(id, 0)], "{name}");
            script.finish(id);
        }
    });
}

#[test]
fn every_replica_gets_work() {
    everywhere(4, |name, _, mut script| {
        let mut used = BTreeSet::new();
        for id in 0..400 {
            script.sleep(10);
            script.probe_all(0..4);
            script.arrive(single(id));
            used.extend(script.sent().into_iter().map(|(_, replica)| replica));
            if id >= 4 {
                script.finish(id - 4);
            }
        }
        assert_eq!(used.len(), 4, "{name}");
    });
}

#[test]
fn a_replica_whose_probe_fails_gets_nothing_until_the_next_good_one() {
    everywhere(2, |name, _, mut script| {
        script.probe_fails(0);
        for id in 0..20 {
            script.arrive(single(id));
            assert_eq!(script.sent(), [(id, 1)], "{name}");
            script.finish(id);
        }
        script.probe_fails(1);
        script.probe(0, 0);
        script.arrive(single(20));
        assert_eq!(script.sent(), [(20, 0)], "{name}");
    });
}

#[test]
fn a_replica_whose_probes_stop_gets_nothing() {
    everywhere(2, |name, _, mut script| {
        script.sleep(2_900);
        script.probe(1, 0);
        script.sleep(200);
        for id in 0..20 {
            script.arrive(single(id));
            assert_eq!(script.sent(), [(id, 1)], "{name}");
            script.finish(id);
        }
    });
}

#[test]
fn a_draining_replica_gets_nothing_and_keeps_what_it_has() {
    everywhere(2, |name, _, mut script| {
        script.arrive(single(0));
        let at = script.sent()[0].1;
        let replica = ReplicaId(at);
        script.event(Event::Draining(replica));
        for id in 1..20 {
            script.arrive(single(id));
            assert_eq!(script.sent(), [(id, 1 - at)], "{name}");
            script.finish(id);
        }
        assert_eq!(script.stats().in_flight, 1, "{name}");
        script.event(Event::Removed(replica));
        script.finish(0);
        assert_eq!(script.stats().in_flight, 0, "{name}");
    });
}

#[test]
fn a_resumed_replica_gets_requests_again() {
    everywhere(2, |name, _, mut script| {
        script.event(Event::Draining(ReplicaId(0)));
        script.arrive(single(0));
        assert_eq!(script.sent(), [(0, 1)], "{name}");
        script.finish(0);
        script.event(Event::Draining(ReplicaId(1)));
        script.event(Event::Resumed(ReplicaId(0)));
        script.arrive(single(1));
        assert_eq!(script.sent(), [(1, 0)], "{name}");
        script.event(Event::Resumed(ReplicaId(9)));
    });
}

#[test]
fn a_subset_is_kept_to() {
    everywhere(4, |name, _, mut script| {
        for id in 0..20 {
            let mut request = single(id);
            request.subset = Some(Box::new([ReplicaId(2)]));
            script.arrive(request);
            let sent = script.dispatches();
            assert_eq!(sent[0].1.replica, ReplicaId(2), "{name}");
            assert!(sent[0].1.fallbacks.is_empty(), "{name}");
            script.finish(id);
        }
        let mut request = single(99);
        request.subset = Some(Box::new([ReplicaId(7)]));
        script.arrive(request);
        assert_eq!(script.rejects(), [(99, RejectReason::EmptySubset)]);
    });
}

#[test]
fn a_request_that_waits_for_a_subset_does_not_block_others() {
    where_requests_wait(2, |name, policy, mut script| {
        let pinned = |id| Request {
            subset: Some(Box::new([ReplicaId(0)])),
            ..single(id)
        };
        for id in 0..6 {
            script.arrive(pinned(id));
        }
        assert_eq!(script.sent(), [(0, 0), (1, 0)], "{name}");
        script.arrive(single(6));
        assert_eq!(script.sent(), [(6, 1)], "{name}");
        script.finish(0);
        let sent = script.sent();
        assert_eq!(sent.len(), 1, "{name}");
        assert_eq!(sent[0].1, 0, "{name}");
        assert!(!serves_in_order(policy) || sent[0].0 == 2, "{name}");
    });
}

#[test]
fn full_replicas_are_spared_and_the_queue_is_served_in_order() {
    where_requests_wait(2, |name, policy, mut script| {
        for id in 0..40 {
            script.arrive(single(id));
        }
        let mut order: Vec<u64> = script.sent().into_iter().map(|(id, _)| id).collect();
        assert_eq!(order.len(), 4, "{name}: two each");
        let mut running = order.clone();
        while !running.is_empty() {
            script.finish(running.remove(0));
            let sent = script.sent();
            order.extend(sent.iter().map(|(id, _)| *id));
            running.extend(sent.iter().map(|(id, _)| *id));
        }
        if !serves_in_order(policy) {
            order.sort_unstable();
        }
        assert_eq!(order, (0..40).collect::<Vec<_>>(), "{name}");
    });
}

#[test]
fn a_new_replica_serves_queued_requests() {
    where_requests_wait(1, |name, policy, mut script| {
        for id in 0..10 {
            script.arrive(single(id));
        }
        script.sent();
        script.add(1);
        script.probe(1, 0);
        let sent = script.sent();
        if serves_in_order(policy) {
            assert_eq!(sent, [(2, 1), (3, 1)], "{name}");
        }
        assert_eq!(sent.len(), 2, "{name}");
        assert!(sent.iter().all(|(_, replica)| *replica == 1), "{name}");
    });
}

/// A long prompt that begins as all of its kind do: a replica that holds it saves nearly two seconds.
fn of_kind(kind: u64, id: u64) -> Request {
    let mut blocks: Vec<u64> = (0..300).map(|i| 1_000 * kind + i).collect();
    blocks.push(1_000_000 + id);
    request(id, kind, &blocks)
}

#[test]
fn no_more_than_64_requests_with_a_warm_prefix_go_before_a_cold_one() {
    where_requests_wait(2, |name, policy, mut script| {
        let mut running = Vec::new();
        for id in 0..4 {
            script.arrive(of_kind(id % 2, id));
            running.extend(script.sent());
        }
        script.arrive(of_kind(7, 1_000));
        let mut passed = 0;
        for id in 4..400 {
            script.arrive(of_kind(id % 2, id));
            script.sleep(20);
            script.finish(running.remove(0).0);
            script.probe_all(0..2);
            for (sent, replica) in script.sent() {
                if sent == 1_000 {
                    assert!(!serves_in_order(policy) || passed == 0, "{name}: {passed}");
                    return;
                }
                passed += 1;
                assert!(passed <= 64, "{name}: {passed} went first");
                running.push((sent, replica));
            }
        }
        panic!("{name}: {passed} went first");
    });
}

#[test]
fn a_request_whose_warm_replica_leaves_goes_to_another_one() {
    where_requests_wait(2, |name, _, mut script| {
        script.arrive(of_kind(0, 0));
        let home = script.sent()[0].1;
        script.finish(0);
        // The affinity replica is filled, and requests that it is warm for arrive.
        let pinned = |id| Request {
            subset: Some(Box::new([ReplicaId(home)])),
            ..single(id)
        };
        for id in 1..3 {
            script.arrive(pinned(id));
        }
        assert_eq!(script.sent(), [(1, home), (2, home)], "{name}");
        for id in 3..5 {
            script.arrive(of_kind(0, id));
        }
        let mut sent = script.sent();
        script.event(Event::Removed(ReplicaId(home)));
        script.sleep(100);
        script.probe(1 - home, 0);
        sent.extend(script.sent());
        sent.sort_unstable();
        let other = 1 - home;
        assert_eq!(sent, [(3, other), (4, other)], "{name}");
    });
}

#[test]
fn a_request_is_rejected_at_the_wait_limit_and_not_before() {
    where_requests_wait(2, |name, _, mut script| {
        let wait_max = RouterConfig::default().queue.wait_max;
        for id in 0..20 {
            script.arrive(of_kind(id % 3, id));
        }
        let sent = script.sent().len();
        let mut refused = Vec::new();
        for _ in 0..1_000 {
            let Some(next) = script.router.poll_timeout() else {
                break;
            };
            let is_over = next >= isotherm_router::Time::ZERO.after(wait_max);
            script.now = script.now.max(next);
            script.probe(0, 1);
            script.probe(1, 1);
            script.router.handle_timeout(script.now);
            for effect in script.effects() {
                let Effect::Reject { id, .. } = effect else {
                    panic!("{name}: {effect:?} while both are full");
                };
                assert!(is_over, "{name}: {id:?} at {:?}", script.now);
                refused.push(id.0);
            }
            if script.stats().queue_length == 0 {
                break;
            }
        }
        assert_eq!(refused.len() + sent, 20, "{name}");
    });
}

#[test]
fn fallbacks_are_other_replicas_also_when_all_others_are_busy() {
    everywhere(3, |name, _, mut script| {
        for id in 0..6 {
            script.arrive(single(id));
        }
        for (_, decision) in script.dispatches() {
            let mut named: BTreeSet<ReplicaId> = decision.fallbacks.iter().copied().collect();
            named.insert(decision.replica);
            assert_eq!(named.len(), 3, "{name}: {decision:?}");
        }
    });
}

#[test]
fn an_explanation_is_what_happens() {
    everywhere(4, |name, _, mut script| {
        for id in 0..60 {
            let request = request(id, id % 5, &[id % 5, 1, 2, id]);
            let explanation = script.router.explain(script.now, &request);
            assert_eq!(explanation.candidates.len(), 4, "{name}");
            let waiting = script.stats().queue_length;
            script.arrive(request);
            match explanation.choice {
                Choice::Dispatch {
                    replica, reason, ..
                } => {
                    let (_, decision) = script.dispatches().remove(0);
                    assert_eq!((decision.replica, decision.reason), (replica, reason));
                }
                Choice::Wait { ahead, .. } => {
                    assert_eq!(ahead, waiting, "{name}");
                    assert_eq!(script.sent(), [], "{name}");
                }
                Choice::Forward { peer, .. } => panic!("{name}: {peer:?}"),
                Choice::Reject { reason } => panic!("{name}: {reason:?}"),
            }
            if id % 3 == 0 {
                script.sleep(50);
                script.probe_all(0..4);
                script.sent();
            }
        }
    });
}

/// Three peer regions with some room each.
fn with_peers(script: &mut Script) {
    for peer in 0..3 {
        script.add_peer(peer);
    }
    peers_report(script);
}

fn peers_report(script: &mut Script) {
    for peer in 0..3 {
        let report = PeerReport {
            available: 1,
            replicas: 1,
            free_capacity: 4,
            queue: 0,
            drain_per_s: 1.0,
            ..PeerReport::default()
        };
        script.peer_at(peer, 50 * (1 + u64::from(peer)), report);
    }
}

fn free(id: u64) -> Request {
    traveller(id, id, &[id, id + 1, id + 2], &[])
}

#[test]
fn only_requests_without_a_free_local_replica_are_forwarded() {
    everywhere(2, |name, push, mut script| {
        with_peers(&mut script);
        let (here, all) = match push {
            Push::Pending => (2 * SENT_BETWEEN_PROBES, 2 * SENT_BETWEEN_PROBES + 8),
            Push::Outstanding { .. } => (4, 12),
            Push::Blind => (12, 12),
        };
        for id in 0..all {
            script.arrive(free(id));
        }
        let (mut stayed, mut left) = (Vec::new(), Vec::new());
        for effect in script.effects() {
            match effect {
                Effect::Dispatch(id, _) => stayed.push(id.0),
                Effect::Forward(id, _) => left.push(id.0),
                Effect::Reject { .. } | Effect::Hung { .. } => panic!("{name}: {effect:?}"),
            }
        }
        assert_eq!(stayed, (0..here).collect::<Vec<_>>(), "{name}");
        assert_eq!(left, (here..all).collect::<Vec<_>>(), "{name}");
    });
}

#[test]
fn a_pool_without_replicas_forwards_until_the_peers_are_full() {
    everywhere(0, |name, _, mut script| {
        with_peers(&mut script);
        let mut used = BTreeSet::new();
        for id in 0..40 {
            script.arrive(free(id));
            used.extend(script.forwarded().into_iter().map(|(_, peer)| peer));
        }
        assert_eq!(used.len(), 3, "{name}");
        // Room for four, and tau and one more in the queue, at each.
        assert_eq!(script.stats().counters.forwarded, 3 * 9, "{name}");
        assert_eq!(script.stats().queue_length, 13, "{name}");
        script.sleep(1);
        peers_report(&mut script);
        assert_eq!(script.forwarded().len(), 13, "{name}");
    });
}

#[test]
fn an_explanation_is_what_happens_between_regions_too() {
    everywhere(2, |name, _, mut script| {
        with_peers(&mut script);
        for id in 0..60 {
            let blocks = [id % 5, 1, 2, id];
            let request = match id % 4 {
                0 => forwarded_request(id, id % 5, &blocks),
                1 => traveller(id, id % 5, &blocks, &[1]),
                2 => Request {
                    subset: Some(Box::new([ReplicaId(0)])),
                    ..traveller(id, id % 5, &blocks, &[])
                },
                _ => traveller(id, id % 5, &blocks, &[]),
            };
            let choice = script.router.explain(script.now, &request).choice;
            script.arrive(request);
            let happened = script.effects();
            let foretold = match (&choice, happened.first()) {
                (
                    Choice::Dispatch {
                        replica, reason, ..
                    },
                    Some(Effect::Dispatch(_, decision)),
                ) => (decision.replica, decision.reason) == (*replica, *reason),
                (Choice::Forward { peer, reason }, Some(Effect::Forward(_, forwarding))) => {
                    (forwarding.peer, forwarding.reason) == (*peer, *reason)
                }
                (Choice::Reject { reason }, Some(Effect::Reject { reason: why, .. })) => {
                    reason == why
                }
                (Choice::Wait { .. }, first) => first.is_none(),
                (_, _) => false,
            };
            assert!(foretold, "{name}: {choice:?}, but {happened:?}");
            if id % 7 == 6 {
                script.sleep(50);
                script.probe_all(0..2);
                peers_report(&mut script);
                script.effects();
            }
        }
    });
}

#[test]
fn an_aborted_request_is_not_sent() {
    where_requests_wait(1, |name, _, mut script| {
        for id in 0..5 {
            script.arrive(single(id));
        }
        script.abort(2);
        script.abort(0);
        script.finish(1);
        let mut sent = script.sent();
        sent.sort_unstable();
        assert_eq!(sent, [(0, 0), (1, 0), (3, 0), (4, 0)], "{name}");
        assert_eq!(script.stats().counters.aborted_waiting, 1, "{name}");
        assert_eq!(script.stats().counters.aborted_in_flight, 1, "{name}");
    });
}

#[test]
fn a_policy_can_be_changed_while_requests_wait() {
    everywhere(2, |name, push, mut script| {
        for &policy in PolicyName::ALL {
            let config = config(policy, push);
            script.router.reconfigure(script.now, config);
            script.arrive(single(1_000));
            script.sleep(1);
            assert_eq!(script.sent().len(), 1, "{name} to {policy}");
            script.finish(1_000);
            script.sleep(100);
            script.probe_all(0..2);
        }
        let asked = u64::try_from(PolicyName::ALL.len()).unwrap();
        assert_eq!(script.stats().counters.arrived, asked);
    });
}

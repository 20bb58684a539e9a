//! Adapters: a request goes where its adapter is listed, and mostly where it is loaded.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    AdapterKey, AdapterReport, AdapterState, Event, Push, Reason, ReplicaId, Request, RouterConfig,
};

fn config(policy: PolicyName) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push: Push::Blind,
        adapter_load: Duration::from_millis(500),
        ..RouterConfig::default()
    }
}

fn lists(script: &mut Script, replica: u32, adapters: &[u64]) {
    script.event(Event::AdaptersListed {
        replica: ReplicaId(replica),
        adapters: adapters.iter().copied().map(AdapterKey).collect(),
    });
}

fn reports(script: &mut Script, replica: u32, slots: u32, running: &[u64]) {
    script.event(Event::AdaptersReported {
        replica: ReplicaId(replica),
        report: AdapterReport {
            slots: Some(slots),
            running: running.iter().copied().map(AdapterKey).collect(),
            waiting: Vec::new(),
        },
        sent: script.now,
    });
}

/// A short request for an adapter, whose prompt no replica holds and whose session is new.
fn for_adapter(id: u64, adapter: u64) -> Request {
    Request {
        adapter: Some(AdapterKey(adapter)),
        ..request(id, id, &[1_000 + id])
    }
}

fn serve(script: &mut Script, id: u64, adapter: u64) -> u32 {
    script.sleep(1_000);
    script.arrive(for_adapter(id, adapter));
    let (_, replica) = script.sent().remove(0);
    script.finish(id);
    replica
}

#[test]
fn under_every_policy_a_request_goes_to_replicas_that_list_its_adapter() {
    for policy in PolicyName::ALL {
        let mut script = Script::new(config(*policy), 6);
        lists(&mut script, 0, &[]);
        lists(&mut script, 1, &[7]);
        lists(&mut script, 4, &[7, 8]);
        for id in 0..60 {
            script.arrive(for_adapter(id, 7));
        }
        let dispatches = script.dispatches();
        assert_eq!(dispatches.len(), 60, "{policy}");
        for (_, decision) in dispatches {
            let named = decision.fallbacks.iter().chain([&decision.replica]);
            for replica in named {
                assert!([1, 4].contains(&replica.0), "{policy}: {replica:?}");
            }
        }
    }
}

#[test]
fn an_adapter_that_no_replica_lists_may_go_to_any() {
    let mut script = Script::new(config(PolicyName::RoundRobin), 3);
    lists(&mut script, 0, &[8]);
    let replicas: BTreeSet<u32> = (0..3).map(|id| serve(&mut script, id, 7)).collect();
    assert_eq!(replicas.len(), 3);
}

#[test]
fn a_request_waits_for_a_replica_that_lists_its_adapter_beside_a_free_one() {
    for policy in PolicyName::ALL {
        let outstanding = RouterConfig {
            push: Push::Outstanding { max: 1 },
            ..config(*policy)
        };
        let mut script = Script::new(outstanding, 3);
        lists(&mut script, 2, &[7]);
        script.arrive(for_adapter(0, 7));
        assert_eq!(script.sent(), [(0, 2)], "{policy}");
        script.arrive(for_adapter(1, 7));
        script.sleep(200);
        assert_eq!(script.sent(), [], "{policy}");
        script.finish(0);
        assert_eq!(script.sent(), [(1, 2)], "{policy}");
    }
}

#[test]
fn the_requests_of_an_adapter_stay_on_its_replica_and_adapters_spread() {
    let mut script = Script::new(config(PolicyName::Isotherm), 4);
    for replica in 0..4 {
        lists(&mut script, replica, &[0, 1, 2, 3]);
        reports(&mut script, replica, 1, &[]);
    }
    let mut homes = Vec::new();
    for id in 0..40 {
        homes.push((id % 4, serve(&mut script, id, id % 4)));
    }
    let distinct: BTreeSet<_> = homes.iter().collect();
    assert_eq!(distinct.len(), 4, "one replica for each adapter: {homes:?}");
    let counters = script.stats().counters;
    assert_eq!((counters.adapter_requests, counters.adapter_loads), (40, 4));
}

#[test]
fn a_burst_for_a_cold_adapter_loads_it_once() {
    let mut script = Script::new(config(PolicyName::Isotherm), 4);
    for id in 0..4 {
        script.arrive(for_adapter(id, 7));
    }
    let dispatches = script.dispatches();
    let first = &dispatches[0].1;
    assert_eq!(first.reason, Reason::Spread);
    for (_, decision) in &dispatches[1..] {
        assert_eq!(decision.replica, first.replica);
        assert_eq!(decision.reason, Reason::Adapter);
    }
    assert_eq!(script.stats().counters.adapter_loads, 1);
}

#[test]
fn a_busy_holder_shares_its_adapter_with_others_in_the_end() {
    let mut script = Script::new(config(PolicyName::Isotherm), 4);
    for id in 0..400 {
        script.arrive(for_adapter(id, 7));
        script.sleep(5);
    }
    let replicas: BTreeSet<u32> = script.sent().iter().map(|(_, replica)| *replica).collect();
    assert!(replicas.len() > 1, "loading costs less than such a queue");
}

#[test]
fn a_full_replica_is_left_for_one_with_a_free_slot() {
    let mut script = Script::new(config(PolicyName::Isotherm), 2);
    reports(&mut script, 0, 1, &[5]);
    reports(&mut script, 1, 1, &[]);
    assert_eq!(serve(&mut script, 0, 7), 1);
    assert_eq!(serve(&mut script, 1, 5), 0, "it runs there");
}

#[test]
fn a_base_model_request_avoids_a_replica_that_loads() {
    let mut script = Script::new(config(PolicyName::Isotherm), 2);
    script.arrive(for_adapter(0, 7));
    let (_, loading) = script.sent()[0];
    script.finish(0);
    for id in 1..6 {
        script.arrive(request(id, id, &[9_000 + id]));
        assert_eq!(script.sent(), [(id, 1 - loading)]);
        script.finish(id);
    }
}

#[test]
fn an_explanation_has_the_state_of_the_adapter_on_each_candidate() {
    let mut script = Script::new(config(PolicyName::Isotherm), 3);
    lists(&mut script, 0, &[7]);
    lists(&mut script, 1, &[7]);
    reports(&mut script, 0, 1, &[7]);
    reports(&mut script, 1, 1, &[5]);
    let explanation = script.router.explain(script.now, &for_adapter(0, 7));
    let states: Vec<_> = explanation
        .candidates
        .iter()
        .map(|c| (c.replica.0, c.adapter))
        .collect();
    let expected = [
        (0, Some(AdapterState::Loaded)),
        (1, Some(AdapterState::Full)),
    ];
    assert_eq!(states, expected, "replica 2 does not list it");
    assert!(explanation.candidates[0].score > explanation.candidates[1].score);
}

#[test]
fn a_request_whose_only_listers_drain_is_rejected() {
    let mut script = Script::new(config(PolicyName::Isotherm), 2);
    lists(&mut script, 0, &[7]);
    script.event(Event::Draining(ReplicaId(0)));
    script.arrive(for_adapter(0, 7));
    assert_eq!(script.rejects().len(), 1);
}

//! `preble` and `min_ttft`: what a cache is worth against load, threshold by threshold and second by second.

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{End, Event, Push, Reason, ReplicaId, RouterConfig, ServedBy};

fn script(policy: PolicyName, replicas: u32) -> Script {
    let config = RouterConfig {
        policy: policy.into(),
        push: Push::Blind,
        ..RouterConfig::default()
    };
    Script::new(config, replicas)
}

/// Sends a request on its way: where it went, and why.
fn send(script: &mut Script, id: u64, blocks: &[u64]) -> (u32, Reason) {
    script.arrive(request(id, id, blocks));
    let (_, decision) = script.dispatches().remove(0);
    (decision.replica.0, decision.reason)
}

/// Dispatches a request and finishes it at once.
fn serve(script: &mut Script, id: u64, blocks: &[u64]) -> (u32, Reason) {
    let sent = send(script, id, blocks);
    script.finish(id);
    sent
}

/// A prompt of so many blocks, of 64 tokens each, that shares nothing with others.
fn long(name: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|i| 1_000_000 + 10_000 * name + i).collect()
}

/// A request that continues the first `kept` blocks of another one.
fn grown(name: u64, kept: u64, with: u64, blocks: u64) -> Vec<u64> {
    let mut both = long(name, kept);
    both.extend(long(with, blocks));
    both
}

/// Sends unknown prompts, until this replica has been sent one; they stay.
fn occupy(script: &mut Script, from: u64, replica: u32, blocks: u64) {
    for id in from..from + 100 {
        if send(script, id, &long(id, blocks)).0 == replica {
            return;
        }
        script.finish(id);
    }
    unreachable!("nothing goes to {replica}")
}

#[test]
fn preble_follows_a_match_of_more_than_half_and_weighs_half_of_one() {
    let mut script = script(PolicyName::Preble, 2);
    let (home, _) = serve(&mut script, 0, &long(0, 40));
    occupy(&mut script, 1, home, 100);
    assert_eq!(
        serve(&mut script, 200, &grown(0, 40, 200, 39)),
        (home, Reason::Prefix),
        "40 blocks of 79, whatever waits there"
    );
    assert_eq!(
        serve(&mut script, 201, &grown(0, 40, 201, 40)),
        (1 - home, Reason::Spread),
        "40 of 80, and 100 wait there"
    );
}

#[test]
fn preble_follows_a_short_match_while_that_saves_work() {
    let mut script = script(PolicyName::Preble, 3);
    let (home, _) = serve(&mut script, 0, &long(0, 40));
    for id in 1..4 {
        let found = serve(&mut script, id, &grown(0, 20, id, 80));
        assert_eq!(found, (home, Reason::Spread), "20 of 100 are saved");
    }
    // 19 blocks wait there, 20 are saved; then 21.
    send(&mut script, 5, &grown(0, 40, 5, 19));
    let found = serve(&mut script, 6, &grown(0, 20, 6, 80));
    assert_eq!(found, (home, Reason::Spread), "20 saved, 19 in front");
    send(&mut script, 7, &grown(0, 40, 7, 2));
    let (replica, _) = serve(&mut script, 8, &grown(0, 20, 8, 80));
    assert_ne!(replica, home, "20 saved, 21 in front");
}

#[test]
fn preble_takes_the_less_loaded_of_equal_matches() {
    let mut script = script(PolicyName::Preble, 2);
    let (first, _) = send(&mut script, 0, &long(0, 10));
    let subset = |id, replica| {
        let mut request = request(id, id, &long(0, 10));
        request.subset = Some(Box::new([ReplicaId(replica)]));
        request
    };
    script.arrive(subset(1, 1 - first));
    script.effects();
    script.finish(0);
    let went = send(&mut script, 2, &long(0, 10));
    assert_eq!(went, (first, Reason::Prefix), "it has nothing to do");
}

#[test]
fn min_ttft_follows_the_cache_until_the_queue_costs_more_than_it_saves() {
    for (later_ms, is_worth_it) in [(0, false), (1_000, true)] {
        let mut script = script(PolicyName::MinTtft, 2);
        let (home, reason) = serve(&mut script, 0, &long(0, 60));
        assert_eq!(reason, Reason::Soonest);
        // Each puts 10 blocks more in front of the next one at home, where 55 are saved.
        for id in 1..=6 {
            let (replica, _) = send(&mut script, id, &grown(0, 55, id, 10));
            assert_eq!(replica, home, "{id}: at most 50 in front");
        }
        script.sleep(later_ms);
        let (replica, _) = send(&mut script, 7, &grown(0, 55, 7, 10));
        assert_eq!(
            replica == home,
            is_worth_it,
            "60 in front, {later_ms} ms ago"
        );
    }
}

#[test]
fn a_replica_that_computes_faster_is_sent_more() {
    for policy in [PolicyName::Preble, PolicyName::MinTtft] {
        let mut script = script(policy, 2);
        let mut id = 0;
        let mut next = || {
            id += 1;
            id
        };
        // Both answer for a while: replica 1 takes four times as long for a token.
        for _ in 0..60 {
            for replica in 0..2 {
                let id = next();
                let mut request = request(id, id, &long(id, 10 + id % 50));
                request.subset = Some(Box::new([ReplicaId(replica)]));
                let tokens = request.prompt_tokens;
                script.arrive(request);
                script.effects();
                script.sleep(1_000);
                let token_us = if replica == 0 { 100 } else { 400 };
                script.event(Event::Finished {
                    id: isotherm_router::RequestId(id),
                    served_by: ServedBy::Unreported,
                    end: End::Answered,
                    ttft_us: Some(20_000 + u64::from(tokens) * token_us),
                    prompt_tokens: Some(tokens),
                    cached_tokens: Some(0),
                    completion_tokens: None,
                });
            }
        }
        let mut count = [0; 2];
        for _ in 0..50 {
            let id = next();
            let (replica, _) = send(&mut script, id, &long(id, 40));
            count[replica as usize] += 1;
        }
        assert!((38..=42).contains(&count[0]), "{policy}: {count:?} of 50");
    }
}

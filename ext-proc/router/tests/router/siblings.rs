//! Two services of one region push to the same replicas, and each weighs what the other has sent.
use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use crate::support::siblings::{pair, share};
use isotherm_policies::PolicyName;
use isotherm_router::{
    End, Event, Load, Placement, Push, RegionRules, ReplicaId, RequestId, RouterConfig, ServedBy,
    Target,
};

/// An engine that computes a prompt token in 0.4 ms behind 50 ms.
const TOKEN_S: f64 = 0.000_4;
const FIRST_S: f64 = 0.05;

fn config(policy: PolicyName) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push: Push::Blind,
        region: RegionRules {
            share: true,
            ..RouterConfig::default().region
        },
        ..RouterConfig::default()
    }
}

/// Blocks of a prompt that no other prompt has a part of.
fn cold(id: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|block| 10_000 * (id + 1) + block).collect()
}

/// A sibling sends a replica a cold prompt with this many tokens to compute.
fn sibling_sends(script: &mut Script, replica: u32, id: u64, uncached_tokens: Option<u32>) {
    let prompt = crate::support::prompt(&cold(id, 4));
    script.event(Event::Shared(Placement {
        target: Target::Replica(ReplicaId(replica)),
        parent: None,
        blocks: prompt.blocks().into(),
        uncached_tokens,
    }));
}

/// Estimated time to first token of a cold prompt, in seconds.
fn ttft_s(script: &Script, replica: usize) -> f64 {
    let request = request(9_999, 9_999, &cold(9_999, 4));
    -script
        .router
        .explain(script.now, &request)
        .candidates
        .get(replica)
        .unwrap()
        .score
}

fn answered(script: &mut Script, id: u64, ttft_s: f64, prompt_tokens: u32) {
    let ttft = Duration::from_secs_f64(ttft_s);
    script.sleep(u64::try_from(ttft.as_millis()).unwrap());
    script.event(Event::Began(RequestId(id)));
    script.sleep(600);
    script.event(Event::Finished {
        id: RequestId(id),
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: Some(u64::try_from(ttft.as_micros()).unwrap()),
        prompt_tokens: Some(prompt_tokens),
        cached_tokens: Some(0),
        completion_tokens: Some(20),
    });
}

#[test]
fn a_cold_prompt_goes_to_another_replica_than_the_siblings_cold_prompt() {
    let policies = [
        PolicyName::Isotherm,
        PolicyName::MinTtft,
        PolicyName::LeastOutstanding,
    ];
    for policy in policies {
        let [mut a, mut b] = pair(&config(policy), 3);
        for id in 0..3 {
            a.arrive(request(id, id, &cold(id, 100)));
            share(&mut a, &mut b);
            // The probe of the second service shows that it runs.
            let (_, replica) = a.sent()[0];
            let running = Load {
                running: Some(1),
                ..Load::default()
            };
            b.sleep(300);
            b.probe_load(replica, running);
            if id < 2 {
                b.arrive(request(100 + id, 100 + id, &cold(100 + id, 4)));
                let (_, other) = b.sent()[0];
                assert_ne!(other, replica, "{policy:?}");
                b.finish(100 + id);
            }
        }
    }
}

#[test]
fn a_siblings_prompt_is_queued_prefill_until_it_is_computed() {
    let mut b = Script::new(config(PolicyName::MinTtft), 1);
    let idle_s = ttft_s(&b, 0);
    sibling_sends(&mut b, 0, 1, Some(50_000));
    let behind_s = ttft_s(&b, 0) - idle_s;
    assert!((behind_s - 5.0).abs() < 0.1, "50,000 tokens: {behind_s}");
    b.sleep(1_000);
    let load = |running| Load {
        running: Some(running),
        ..Load::default()
    };
    b.probe_load(0, load(1));
    let later_s = ttft_s(&b, 0) - idle_s;
    assert!((later_s - 4.0).abs() < 0.1, "a second later: {later_s}");
    b.sleep(1_000);
    b.probe_load(0, load(0));
    let ended_s = ttft_s(&b, 0) - idle_s;
    assert!(ended_s.abs() < 0.01, "the engine is idle: {ended_s}");
}

#[test]
fn a_sibling_that_tells_no_tokens_counts_as_the_mean_of_the_pool() {
    let mut b = Script::new(config(PolicyName::MinTtft), 2);
    let mean_tokens = 1_600.0;
    b.arrive(request(1, 1, &cold(1, 25)));
    let (_, first) = b.sent()[0];
    b.finish(1);
    let other = 1 - first;
    let idle_s = ttft_s(&b, usize::try_from(other).unwrap());
    sibling_sends(&mut b, other, 2, None);
    let behind_s = ttft_s(&b, usize::try_from(other).unwrap()) - idle_s;
    let tokens = behind_s / 0.000_1;
    assert!((tokens - mean_tokens).abs() < 10.0, "{tokens}");
}

#[test]
fn the_fit_of_prefill_speed_is_not_biased_by_a_siblings_tokens() {
    let mut b = Script::new(config(PolicyName::Isotherm), 1);
    for id in 0..120 {
        // The sibling's prompt of 6,000 tokens comes first, to every second one of ours.
        let ahead = if id % 2 == 0 { 6_000 } else { 0 };
        if ahead > 0 {
            sibling_sends(&mut b, 0, 1_000 + id, Some(ahead));
        }
        let blocks = 4 + id * 7 % 30;
        b.arrive(request(id, id, &cold(id, blocks)));
        b.effects();
        let own = u32::try_from(64 * blocks).unwrap();
        answered(&mut b, id, FIRST_S + TOKEN_S * f64::from(ahead + own), own);
        b.sleep(3_000);
        let idle = Load {
            running: Some(0),
            ..Load::default()
        };
        b.probe_load(0, idle);
    }
    let learned = b.router.estimates();
    let error = (learned.prompt_token_s - TOKEN_S).abs() / TOKEN_S;
    assert!(error < 0.1, "{learned:?}");
    let error = (learned.first_token_s - FIRST_S).abs() / FIRST_S;
    assert!(error < 0.5, "{learned:?}");
}

#[test]
fn requests_of_a_sibling_count_when_a_gauge_shows_more_than_it_told() {
    let [_, mut b] = pair(&config(PolicyName::LeastOutstanding), 2);
    for replica in 0..2 {
        sibling_sends(&mut b, replica, 100 + u64::from(replica), Some(64));
    }
    b.sleep(1_000);
    for (replica, running) in [(0, 5), (1, 0)] {
        let load = Load {
            running: Some(running),
            ..Load::default()
        };
        b.probe_load(replica, load);
    }
    for id in 0..4 {
        b.arrive(request(id, id, &cold(id, 4)));
    }
    let sent: Vec<u32> = b.sent().into_iter().map(|(_, replica)| replica).collect();
    assert_eq!(sent, [1, 1, 1, 1]);
    let of_others = b.router.replicas(b.now).map(|status| status.of_others);
    assert_eq!(of_others.collect::<Vec<_>>(), [5, 0]);
}

#[test]
fn the_requests_of_a_sibling_that_is_silent_do_not_count_for_long() {
    let mut b = Script::new(config(PolicyName::LeastOutstanding), 2);
    for id in 0..6 {
        sibling_sends(&mut b, 0, 100 + id, Some(64));
    }
    b.sleep(2_000);
    for id in 0..8 {
        b.arrive(request(id, id, &cold(id, 4)));
        b.sleep(100);
        b.finish(id);
    }
    let sent = b.sent();
    let first = sent.iter().filter(|(_, replica)| *replica == 0).count();
    assert!(first >= 3, "{sent:?}");
}

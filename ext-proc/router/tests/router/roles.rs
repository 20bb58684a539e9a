//! Pools with prefill replicas: which replica computes a prompt, and what both replicas know of it.

use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    Availability, Choice, Decision, End, Event, Load, Push, ReplicaId, ReplicaStatus, Request,
    RequestId, Role, RouterConfig, ServedBy,
};

/// Decode replicas of [`pool`].
const DECODES: [u32; 2] = [0, 1];
/// Prefill replicas of [`pool`].
const PREFILLS: [u32; 2] = [2, 3];

fn pool(policy: PolicyName, push: Push) -> Script {
    let config = RouterConfig {
        policy: policy.into(),
        push,
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 0);
    for id in DECODES {
        script.add_as(id, Role::Decode);
    }
    for id in PREFILLS {
        script.add_as(id, Role::Prefill);
    }
    script.probe_all(DECODES.into_iter().chain(PREFILLS));
    script
}

fn blind() -> Script {
    pool(PolicyName::Isotherm, Push::Blind)
}

/// A prompt of this many tokens, which shares no block with a prompt of another number.
fn prompt(number: u64, tokens: u64) -> Vec<u64> {
    (0..tokens / 64)
        .map(|block| 10_000 * number + block)
        .collect()
}

/// A long prompt, and one that is computed where its answer is written.
fn long(number: u64) -> Vec<u64> {
    prompt(number, 4_096)
}

fn short(number: u64) -> Vec<u64> {
    prompt(number, 256)
}

fn send(script: &mut Script, id: u64, blocks: &[u64]) -> Decision {
    script.arrive(request(id, id, blocks));
    let (sent, decision) = script.dispatches().remove(0);
    assert_eq!(sent, id);
    decision
}

fn prefiller(decision: &Decision) -> Option<u32> {
    decision.prefiller.map(|replica| replica.0)
}

#[expect(clippy::expect_used, reason = "a test stops at what it did not expect")]
fn status(script: &Script, id: u32) -> ReplicaStatus {
    let mut all = script.router.replicas(script.now);
    let found = all.find(|status| status.id == ReplicaId(id));
    found.expect("a replica of the pool")
}

/// Unfinished requests and prompts of each replica, in order of id.
fn outstanding(script: &Script) -> Vec<u32> {
    let all = script.router.replicas(script.now);
    all.map(|status| status.outstanding).collect()
}

fn begin(script: &mut Script, id: u64) {
    script.event(Event::Began(RequestId(id)));
}

fn finish_timed(script: &mut Script, id: u64, ttft_ms: u64, prompt_tokens: u32) {
    script.event(Event::Finished {
        id: RequestId(id),
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: Some(ttft_ms * 1_000),
        prompt_tokens: Some(prompt_tokens),
        // The decode replica loads the whole prompt, and counts it as cached.
        cached_tokens: Some(prompt_tokens - 1),
        completion_tokens: Some(4),
    });
}

#[test]
fn every_policy_sends_requests_to_decode_replicas_and_long_prompts_to_prefill_replicas() {
    for policy in PolicyName::ALL {
        let mut script = pool(*policy, Push::Pending);
        for id in 0..20 {
            let blocks = if id % 2 == 0 { long(id) } else { short(id) };
            let decision = send(&mut script, id, &blocks);
            assert!(
                DECODES.contains(&decision.replica.0),
                "{policy}: {decision:?}"
            );
            let fallbacks = decision.fallbacks.iter();
            assert!(
                fallbacks
                    .clone()
                    .all(|replica| DECODES.contains(&replica.0))
            );
            let is_prefilled = prefiller(&decision).is_some_and(|id| PREFILLS.contains(&id));
            assert_eq!(is_prefilled, id % 2 == 0, "{policy}: {decision:?}");
            script.finish(id);
            script.sleep(300);
            script.probe_all(DECODES.into_iter().chain(PREFILLS));
        }
        assert_eq!(outstanding(&script), [0; 4], "{policy}");
        assert_eq!(script.stats().counters.prefills, 10, "{policy}");
    }
}

#[test]
fn a_pool_without_prefill_replicas_names_none() {
    let mut script = Script::new(RouterConfig::default(), 2);
    assert_eq!(send(&mut script, 1, &long(1)).prefiller, None);
    let mut script = Script::new(RouterConfig::default(), 0);
    script.add_as(0, Role::Decode);
    script.probe(0, 0);
    assert_eq!(send(&mut script, 1, &long(1)).prefiller, None);
}

#[test]
fn the_prefill_replica_that_holds_the_beginning_computes_the_rest() {
    let mut script = blind();
    let first = send(&mut script, 1, &long(1));
    begin(&mut script, 1);
    script.finish(1);
    let mut longer = long(1);
    longer.extend(long(2));
    for id in 2..6 {
        // Each of them ends with another part of its own.
        let mut blocks = longer.clone();
        blocks.extend(long(10 + id));
        let decision = send(&mut script, id, &blocks);
        assert_eq!(decision.prefiller, first.prefiller);
        begin(&mut script, id);
        script.finish(id);
    }
}

#[test]
fn a_prompt_that_the_decode_replica_holds_needs_no_prefill_replica() {
    let mut script = blind();
    let first = send(&mut script, 1, &long(1));
    assert!(first.prefiller.is_some());
    script.finish(1);
    let mut longer = long(1);
    longer.extend(short(2));
    let second = send(&mut script, 2, &longer);
    assert_eq!((second.replica, second.prefiller), (first.replica, None));
}

#[test]
fn the_threshold_is_configured() {
    let mut script = blind();
    let config = RouterConfig {
        push: Push::Blind,
        prefill_tokens_min: 256,
        ..RouterConfig::default()
    };
    assert_eq!(send(&mut script, 1, &short(1)).prefiller, None);
    script.router.reconfigure(script.now, config);
    assert!(send(&mut script, 2, &short(2)).prefiller.is_some());
}

#[test]
fn long_prompts_spread_over_the_prefill_replicas_by_their_queued_prefill() {
    let mut script = blind();
    let first = send(&mut script, 1, &long(1));
    let second = send(&mut script, 2, &prompt(2, 2_048));
    assert_ne!(first.prefiller, second.prefiller);
    let third = send(&mut script, 3, &prompt(3, 1_024));
    assert_eq!(third.prefiller, second.prefiller, "it has less to compute");
}

#[test]
fn a_slow_prefill_replica_gets_less() {
    let mut script = blind();
    let mut count = [0, 0];
    for id in 0..60 {
        let decision = send(&mut script, id, &prompt(id, 2_048 + 64 * (id % 9)));
        let prefiller = prefiller(&decision).unwrap();
        if id >= 30 {
            count[usize::from(prefiller == PREFILLS[1])] += 1;
        }
        // The second one computes eight times slower.
        let ms_per_token = if prefiller == PREFILLS[1] { 0.8 } else { 0.1 };
        let tokens = 2_048 + 64 * (id % 9);
        let ttft_ms = (f64::from(u32::try_from(tokens).unwrap()) * ms_per_token) as u64;
        script.sleep(ttft_ms);
        script.probe_all(DECODES.into_iter().chain(PREFILLS));
        begin(&mut script, id);
        finish_timed(&mut script, id, ttft_ms, u32::try_from(tokens).unwrap());
    }
    assert!(count[0] > 4 * count[1], "{count:?}");
}

#[test]
fn both_claims_end_however_the_request_ends() {
    let mut script = blind();
    type Step = fn(&mut Script, u64);
    let ends: [Step; 6] = [
        |script, id| script.finish(id),
        |script, id| {
            begin(script, id);
            begin(script, id);
            script.finish(id);
        },
        |script, id| script.abort(id),
        |script, id| {
            begin(script, id);
            script.abort(id);
        },
        |script, id| script.finish_as(id, End::Failed, ServedBy::Unreported, None),
        |script, id| {
            let other = ServedBy::Replica(ReplicaId(1));
            script.finish_as(id, End::Answered, other, None);
        },
    ];
    for (id, end) in (1..).zip(ends) {
        let decision = send(&mut script, id, &long(id));
        assert!(decision.prefiller.is_some());
        let total: u32 = outstanding(&script).iter().sum();
        assert_eq!(total, 2, "one claim on each");
        end(&mut script, id);
        assert_eq!(outstanding(&script), [0; 4], "end {id}");
        end(&mut script, id);
        assert_eq!(outstanding(&script), [0; 4], "end {id}, reported twice");
    }
    assert_eq!(script.stats().in_flight, 0);
}

#[test]
fn the_claim_on_the_prefill_replica_ends_when_the_response_begins() {
    let mut script = blind();
    let decision = send(&mut script, 1, &long(1));
    let (decode, prefill) = (decision.replica.0, prefiller(&decision).unwrap());
    assert_eq!(status(&script, prefill).outstanding, 1);
    begin(&mut script, 1);
    assert_eq!(status(&script, prefill).outstanding, 0);
    assert_eq!(status(&script, decode).outstanding, 1);
    assert!(status(&script, prefill).prefix_bytes > 0 && status(&script, decode).prefix_bytes > 0);
}

#[test]
fn neither_replica_keeps_a_prompt_that_failed() {
    let mut script = blind();
    send(&mut script, 1, &long(1));
    script.finish_as(1, End::Failed, ServedBy::Unreported, None);
    for id in DECODES.into_iter().chain(PREFILLS) {
        assert_eq!(status(&script, id).prefix_bytes, 0, "{id}");
    }
}

#[test]
fn a_decode_replica_is_not_charged_for_prefill_elsewhere() {
    // With one decode replica of two in use by long prompts that are computed elsewhere, their queued prefill is zero.
    let mut script = blind();
    let first = send(&mut script, 1, &long(1));
    let other = script.router.explain(script.now, &request(9, 9, &short(9)));
    let score = |id: u32| {
        let mut all = other.candidates.iter();
        all.find(|candidate| candidate.replica == ReplicaId(id))
            .unwrap()
            .score
    };
    let [busy, idle] = [first.replica.0, 1 - first.replica.0].map(score);
    // 4,096 tokens take 0.4 s by the presumed speed; beside them, one more running answer costs little.
    assert!(idle - busy < 0.2, "{idle} {busy}");
}

#[test]
fn without_an_available_prefill_replica_the_decode_replica_computes() {
    let mut script = blind();
    script.probe_fails(PREFILLS[0]);
    assert_eq!(
        prefiller(&send(&mut script, 1, &long(1))),
        Some(PREFILLS[1])
    );
    script.event(Event::Draining(ReplicaId(PREFILLS[1])));
    assert_eq!(send(&mut script, 2, &long(2)).prefiller, None);
    script.probe(PREFILLS[0], 0);
    assert_eq!(
        prefiller(&send(&mut script, 3, &long(3))),
        Some(PREFILLS[0])
    );
    script.event(Event::Removed(ReplicaId(PREFILLS[0])));
    script.event(Event::Removed(ReplicaId(PREFILLS[1])));
    assert_eq!(send(&mut script, 4, &long(4)).prefiller, None);
    for id in 1..=4 {
        script.finish(id);
    }
    assert_eq!(outstanding(&script), [0; 2]);
}

#[test]
fn a_stale_or_failing_prefill_replica_is_not_named() {
    let mut script = pool(PolicyName::Isotherm, Push::Blind);
    script.sleep(10_000);
    script.probe_all(DECODES.into_iter());
    assert_eq!(script.availability(PREFILLS[0]), Availability::Stale);
    assert_eq!(send(&mut script, 1, &long(1)).prefiller, None);
    script.finish(1);
    script.probe_all(PREFILLS.into_iter());
    for id in 2..30 {
        let decision = send(&mut script, id, &long(id));
        let end = if decision.prefiller.is_some() {
            End::Failed
        } else {
            End::Answered
        };
        script.finish_as(id, end, ServedBy::Unreported, None);
    }
    assert_eq!(script.availability(PREFILLS[0]), Availability::Failing);
    assert_eq!(send(&mut script, 30, &long(30)).prefiller, None);
    script.finish(30);
    script.sleep(17_000);
    script.probe_all(DECODES.into_iter().chain(PREFILLS));
    assert!(
        send(&mut script, 31, &long(31)).prefiller.is_some(),
        "a trial"
    );
}

#[test]
fn the_push_rule_holds_for_decode_replicas_only() {
    let mut script = pool(PolicyName::Isotherm, Push::Outstanding { max: 1 });
    script.event(Event::Draining(ReplicaId(PREFILLS[1])));
    let first = send(&mut script, 1, &long(1));
    let second = send(&mut script, 2, &long(2));
    assert_eq!(
        [prefiller(&first), prefiller(&second)],
        [Some(PREFILLS[0]); 2]
    );
    script.arrive(request(3, 3, &long(3)));
    assert_eq!(script.sent(), [], "both decode replicas are full");
    begin(&mut script, 1);
    assert_eq!(
        script.sent(),
        [],
        "and the first one still writes its answer"
    );
    script.finish(1);
    assert_eq!(script.sent(), [(3, first.replica.0)]);
}

#[test]
fn a_pool_of_prefill_replicas_alone_has_no_replica() {
    let mut script = Script::new(RouterConfig::default(), 0);
    script.add_as(0, Role::Prefill);
    script.probe(0, 0);
    script.arrive(request(1, 1, &long(1)));
    assert_eq!(script.rejects().len(), 1);
}

#[test]
fn a_changed_role_takes_effect_at_once() {
    let mut script = Script::new(RouterConfig::default(), 2);
    let role =
        |script: &mut Script, id, role| script.event(Event::RoleChanged(ReplicaId(id), role));
    role(&mut script, 1, Role::Prefill);
    let decision = send(&mut script, 1, &long(1));
    assert_eq!((decision.replica.0, prefiller(&decision)), (0, Some(1)));
    // The second replica takes requests again, with its claim of the first one.
    role(&mut script, 1, Role::Both);
    role(&mut script, 0, Role::Prefill);
    let decision = send(&mut script, 2, &long(2));
    assert_eq!((decision.replica.0, prefiller(&decision)), (1, Some(0)));
    script.finish(1);
    script.finish(2);
    assert_eq!(outstanding(&script), [0, 0]);
    let stats = script.stats();
    assert_eq!(
        (stats.available_replicas, stats.available_prefillers),
        (1, 1)
    );
}

#[test]
fn a_request_that_only_a_new_prefill_replica_could_serve_is_rejected() {
    let config = RouterConfig {
        push: Push::Outstanding { max: 1 },
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 2);
    let only = |id| Request {
        subset: Some([ReplicaId(1)].into()),
        ..request(id, id, &short(id))
    };
    script.arrive(only(1));
    script.arrive(only(2));
    assert_eq!(script.sent(), [(1, 1)]);
    script.event(Event::RoleChanged(ReplicaId(1), Role::Prefill));
    assert_eq!(script.rejects().len(), 1);
}

#[test]
fn a_subset_restricts_the_prefill_replica_too() {
    let mut script = blind();
    let with = |id, subset: &[u32]| Request {
        subset: Some(subset.iter().copied().map(ReplicaId).collect()),
        ..request(id, id, &long(id))
    };
    script.arrive(with(1, &[0, PREFILLS[1]]));
    script.arrive(with(2, &[0]));
    let named: Vec<_> = script
        .dispatches()
        .iter()
        .map(|(_, d)| prefiller(d))
        .collect();
    assert_eq!(named, [Some(PREFILLS[1]), None]);
}

#[test]
fn an_explanation_names_what_the_dispatch_names() {
    let mut script = blind();
    for id in 1..8 {
        let blocks = if id % 3 == 0 { short(id) } else { long(id / 2) };
        let explained = script.router.explain(script.now, &request(id, id, &blocks));
        let roles: Vec<Role> = explained.candidates.iter().map(|c| c.role).collect();
        assert_eq!(
            roles,
            [Role::Decode, Role::Decode, Role::Prefill, Role::Prefill]
        );
        let decision = send(&mut script, id, &blocks);
        let expected = Choice::Dispatch {
            replica: decision.replica,
            prefiller: decision.prefiller,
            reason: decision.reason,
        };
        assert_eq!(explained.choice, expected);
    }
}

#[test]
fn a_queued_request_gets_its_prefill_replica_when_it_is_dispatched() {
    let mut script = pool(PolicyName::Isotherm, Push::Pending);
    for id in DECODES {
        script.probe(id, 3);
    }
    script.arrive(request(1, 1, &long(1)));
    assert_eq!(script.sent(), []);
    assert_eq!(outstanding(&script), [0; 4], "no claim while it waits");
    script.event(Event::Draining(ReplicaId(PREFILLS[0])));
    script.sleep(1_000);
    script.probe(0, 0);
    let (_, decision) = script.dispatches().remove(0);
    assert_eq!(
        (decision.replica.0, prefiller(&decision)),
        (0, Some(PREFILLS[1]))
    );
    assert_eq!(decision.queued_for, Duration::from_secs(1));
}

#[test]
fn what_the_decode_replica_loaded_is_no_measurement_of_the_index() {
    let mut script = blind();
    let load = Load {
        kv_capacity_tokens: Some(100_000),
        ..Load::default()
    };
    script.probe_load(0, load);
    for id in 1..20 {
        send(&mut script, id, &long(id));
        begin(&mut script, id);
        finish_timed(&mut script, id, 500, 4_096);
    }
    let counters = script.stats().counters;
    assert_eq!(counters.measured_prompt_tokens, 0);
    assert_eq!(counters.false_hits, 0);
}

//! Prompts on which replicas break.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    Availability, Effect, End, Push, RejectReason, ReplicaId, Request, RequestId, RouterConfig,
    ServedBy, TenantId,
};

const PERIOD_MS: u64 = 120_000;
const REPLICAS: u32 = 6;
const DEADLY: &[u64] = &[6, 6, 6];

fn script(push: Push) -> Script {
    let config = RouterConfig {
        policy: PolicyName::LeastOutstanding.into(),
        push,
        quarantine: Duration::from_millis(PERIOD_MS),
        ..RouterConfig::default()
    };
    Script::new(config, REPLICAS)
}

/// Sends the deadly prompt; every replica that gets it breaks, and so does the first fallback. The replicas that broke.
fn send_deadly(script: &mut Script, id: u64) -> Vec<u32> {
    script.arrive(request(id, id, DEADLY));
    let sent = script
        .effects()
        .into_iter()
        .find_map(|effect| match effect {
            Effect::Dispatch(_, decision) => Some(decision),
            Effect::Forward(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
        });
    let Some(decision) = sent else {
        return Vec::new();
    };
    let retried = decision.fallbacks[0];
    script.finish_as(id, End::Broke, ServedBy::Replica(retried), None);
    vec![decision.replica.0, retried.0]
}

#[test]
fn a_prompt_that_breaks_its_replicas_takes_two_of_six_however_often_it_comes() {
    let mut script = script(Push::Blind);
    let broken = send_deadly(&mut script, 0);
    assert_eq!(broken.len(), 2);
    for id in 1..100 {
        assert_eq!(send_deadly(&mut script, id), [0; 0]);
    }
    let counters = script.stats().counters;
    assert_eq!(counters.quarantines, 1);
    assert_eq!(counters.rejects[&RejectReason::Quarantined], 99);
    let rejected = script.router.tiers(script.now).map(|tier| tier.rejected);
    assert_eq!(
        rejected.iter().sum::<u64>(),
        99,
        "of the tiers: {rejected:?}"
    );
    for id in 100..140 {
        script.arrive(request(id, id, &[6, 6, id]));
        assert_eq!(
            script.sent().len(),
            1,
            "another prompt with the same beginning"
        );
    }
}

#[test]
fn separate_requests_count_as_a_retry_does() {
    let mut script = script(Push::Blind);
    for id in 0..2 {
        script.arrive(request(id, id, DEADLY));
        assert_eq!(script.sent().len(), 1);
        if id == 0 {
            // Keeps the next one from the same replica.
            script.arrive(request(10, 10, &[1]));
        }
        script.finish_as(id, End::Broke, ServedBy::Unreported, None);
        script.arrive(request(20 + id, 0, &[id]));
        script.effects();
    }
    script.arrive(request(2, 2, DEADLY));
    assert_eq!(script.rejects(), [(2, RejectReason::Quarantined)]);
}

#[test]
fn a_replica_is_not_blamed_for_a_prompt_in_quarantine() {
    let mut script = script(Push::Blind);
    for id in 0..40 {
        // Each prompt breaks two replicas.
        let prompt = [1_000 + id];
        script.arrive(request(id, id, &prompt));
        let chosen = script.sent()[0].1;
        let other = ReplicaId((chosen + 1) % REPLICAS);
        script.finish_as(id, End::Broke, ServedBy::Replica(other), None);
    }
    for replica in 0..REPLICAS {
        assert_eq!(script.availability(replica), Availability::Available);
    }
}

#[test]
fn queued_requests_with_the_prompt_are_rejected_as_well() {
    let mut script = script(Push::Outstanding { max: 1 });
    for id in 0..u64::from(REPLICAS) {
        let blocks = if id < 2 { DEADLY.to_vec() } else { vec![id] };
        script.arrive(request(id, id, &blocks));
    }
    script.arrive(request(50, 50, DEADLY));
    script.arrive(request(51, 51, &[51]));
    script.effects();
    script.finish_as(0, End::Broke, ServedBy::Unreported, None);
    // The replica that broke is free again in the eyes of the service, and takes the oldest queued request.
    script.effects();
    script.arrive(request(52, 52, DEADLY));
    script.effects();
    script.event(isotherm_router::Event::Finished {
        id: RequestId(1),
        served_by: ServedBy::Unreported,
        end: End::Broke,
        ttft_us: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
    });
    assert_eq!(script.rejects(), [(52, RejectReason::Quarantined)]);
}

#[test]
fn after_its_quarantine_a_prompt_is_tried_again_and_an_answer_clears_it() {
    let mut script = script(Push::Blind);
    send_deadly(&mut script, 0);
    script.sleep(PERIOD_MS);
    script.probe_all(0..REPLICAS);
    script.arrive(request(1, 1, DEADLY));
    assert_eq!(script.sent().len(), 1);
    script.finish_as(1, End::Broke, ServedBy::Unreported, None);
    script.arrive(request(2, 2, DEADLY));
    assert_eq!(script.rejects(), [(2, RejectReason::Quarantined)]);
    script.sleep(PERIOD_MS);
    script.probe_all(0..REPLICAS);
    script.arrive(request(3, 3, DEADLY));
    script.effects();
    script.finish(3);
    script.arrive(request(4, 4, DEADLY));
    script.effects();
    script.finish_as(4, End::Broke, ServedBy::Unreported, None);
    script.arrive(request(5, 5, DEADLY));
    assert_eq!(script.rejects(), [], "one break after an answer");
}

#[test]
fn prompts_without_a_fingerprint_share_the_quarantine_of_their_session() {
    let mut script = script(Push::Blind);
    script.arrive(request(0, 7, &[]));
    let retried = ReplicaId((script.sent()[0].1 + 1) % REPLICAS);
    script.finish_as(0, End::Broke, ServedBy::Replica(retried), None);
    script.arrive(request(2, 7, &[]));
    assert_eq!(script.rejects(), [(2, RejectReason::Quarantined)]);
    script.arrive(request(3, 8, &[]));
    assert_eq!(script.sent().len(), 1, "another session");
    script.arrive(request(4, 7, &[1]));
    assert_eq!(script.sent().len(), 1, "a prompt with a fingerprint");
}

#[test]
fn a_period_of_zero_turns_quarantines_off() {
    let mut script = script(Push::Blind);
    let config = RouterConfig {
        quarantine: Duration::ZERO,
        policy: PolicyName::LeastOutstanding.into(),
        push: Push::Blind,
        ..RouterConfig::default()
    };
    script.router.reconfigure(script.now, config);
    for id in 0..3 {
        assert_eq!(send_deadly(&mut script, id).len(), 2);
    }
}

/// Sends prompts that are all deadly and all different, of one client. Returns the breaks and the replicas that broke.
fn send_variants(script: &mut Script, of: impl Fn(u64) -> Request) -> (usize, BTreeSet<u32>) {
    let (mut breaks, mut broken) = (0, BTreeSet::new());
    for id in 0..12 {
        script.arrive(of(id));
        for (id, decision) in script.dispatches() {
            let retried = decision.fallbacks.first().copied();
            let served = retried.map_or(ServedBy::Unreported, ServedBy::Replica);
            script.finish_as(id, End::Broke, served, None);
            breaks += 1 + usize::from(retried.is_some());
            broken.extend([decision.replica.0].into_iter().chain(retried.map(|r| r.0)));
        }
        // Engines that broke start again.
        script.sleep(2_000);
        script.probe_all(0..REPLICAS);
    }
    (breaks, broken)
}

#[test]
fn a_client_that_varies_a_deadly_prompt_loses_its_retries_and_then_its_choice() {
    let of_session = |id| request(id, 7, &[id, 6, 6]);
    let of_tenant = |id| Request {
        tenant: TenantId(7),
        ..request(id, id, &[id, 6, 6])
    };
    for same in [true, false] {
        let mut script = script(Push::Blind);
        let (breaks, broken) = match same {
            true => send_variants(&mut script, of_session),
            false => send_variants(&mut script, of_tenant),
        };
        assert!(broken.len() <= 3, "{broken:?}");
        assert!(breaks <= 13, "{breaks}");
        for id in 100..140 {
            script.arrive(request(id, id, &[id]));
            let decisions = script.dispatches();
            assert!(!decisions[0].1.fallbacks.is_empty(), "another client's");
            script.finish(id);
        }
        script.sleep(PERIOD_MS);
        script.probe_all(0..REPLICAS);
        script.arrive(Request {
            id: RequestId(200),
            ..of_tenant(200)
        });
        assert!(
            !script.dispatches()[0].1.fallbacks.is_empty(),
            "its period is over"
        );
    }
}

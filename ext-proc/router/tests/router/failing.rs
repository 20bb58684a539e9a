//! A replica whose probes are good and whose requests fail.

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{Availability, End, Push, ReplicaId, RouterConfig, ServedBy};

const HOLE: u32 = 0;
/// More requests than a black hole may get in a row.
const MANY: u64 = 40;

/// Two replicas that never have enough, so that only failures decide who gets requests.
fn script() -> Script {
    let config = RouterConfig {
        policy: PolicyName::LeastOutstanding.into(),
        push: Push::Blind,
        ..RouterConfig::default()
    };
    Script::new(config, 2)
}

/// Sends requests; those at the black hole fail at once and the others stay. How many it got.
fn feed(script: &mut Script, ids: core::ops::Range<u64>) -> usize {
    let mut at_hole = 0;
    for id in ids {
        script.arrive(request(id, id, &[id]));
        for (id, replica) in script.sent() {
            if replica == HOLE {
                at_hole += 1;
                script.finish_as(id, End::Failed, ServedBy::Unreported, None);
            }
        }
    }
    at_hole
}

/// Lets time pass under good probes.
fn probed_for(script: &mut Script, ms: u64) {
    for _ in 0..ms / 100 {
        script.sleep(100);
        script.probe_all(0..2);
    }
}

#[test]
fn a_black_hole_gets_a_few_requests_and_then_one_at_a_time() {
    let mut script = script();
    assert_eq!(feed(&mut script, 0..MANY), 5);
    assert_eq!(script.availability(HOLE), Availability::Failing);
    probed_for(&mut script, 1_000);
    assert_eq!(feed(&mut script, MANY..2 * MANY), 1, "a trial");
    probed_for(&mut script, 1_900);
    assert_eq!(
        feed(&mut script, 2 * MANY..3 * MANY),
        0,
        "twice the back-off"
    );
}

#[test]
fn a_success_closes_the_circuit_breaker() {
    let mut script = script();
    feed(&mut script, 0..MANY);
    probed_for(&mut script, 1_000);
    script.arrive(request(MANY, 0, &[]));
    assert_eq!(script.sent(), [(MANY, HOLE)]);
    assert_eq!(script.availability(HOLE), Availability::Failing, "on trial");
    script.finish(MANY);
    assert_eq!(script.availability(HOLE), Availability::Available);
}

#[test]
fn bad_requests_and_aborted_requests_are_no_failures() {
    let mut script = script();
    for id in 0..MANY {
        script.arrive(request(id, 0, &[]));
        script.effects();
        if id % 2 == 0 {
            script.finish_as(id, End::Refused, ServedBy::Unreported, None);
        } else {
            script.abort(id);
        }
    }
    assert_eq!(script.availability(0), Availability::Available);
    assert_eq!(script.availability(1), Availability::Available);
}

#[test]
fn one_bad_request_that_a_client_repeats_opens_no_breaker_and_different_ones_do() {
    let mut repeated = script();
    for id in 0..MANY {
        // The session differs, as a client may choose.
        repeated.arrive(request(id, id, &[1]));
        repeated.effects();
        repeated.finish_as(id, End::of_status(500), ServedBy::Unreported, None);
        for replica in 0..2 {
            assert_eq!(repeated.availability(replica), Availability::Available);
        }
    }
    let mut different = Script::new(
        RouterConfig {
            policy: PolicyName::LeastOutstanding.into(),
            push: Push::Outstanding { max: 64 },
            ..RouterConfig::default()
        },
        2,
    );
    for id in 0..MANY {
        different.arrive(request(id, id, &[id]));
        for (id, replica) in different.sent() {
            let status = if replica == HOLE { 500 } else { 200 };
            different.finish_as(id, End::of_status(status), ServedBy::Unreported, None);
        }
    }
    assert_eq!(different.availability(HOLE), Availability::Failing);
}

#[test]
fn statuses_that_a_client_can_provoke_are_no_failures() {
    for (status, end) in [
        (400, End::Refused),
        (429, End::Refused),
        (500, End::Errored),
        (501, End::Refused),
        (503, End::Failed),
        (504, End::Failed),
        (505, End::Refused),
        (507, End::Refused),
        (0, End::Refused),
    ] {
        assert_eq!(End::of_status(status), end, "{status}");
    }
}

#[test]
fn a_request_served_elsewhere_is_a_failure_of_the_chosen_replica() {
    for served in [ServedBy::Replica(ReplicaId(1)), ServedBy::UnknownHost] {
        let mut script = script();
        for id in 0..MANY {
            script.arrive(request(id, 0, &[]));
            for (id, replica) in script.sent() {
                if replica == HOLE {
                    script.finish_as(id, End::Answered, served, None);
                }
            }
        }
        assert_eq!(script.availability(HOLE), Availability::Failing);
        assert_eq!(script.availability(1), Availability::Available);
    }
}

#[test]
fn a_failing_replica_is_no_fallback() {
    let mut script = script();
    feed(&mut script, 0..MANY);
    probed_for(&mut script, 1_000);
    // Due for a trial, which it only gets as a request's first choice.
    script.arrive(request(MANY, 0, &[]));
    script.arrive(request(MANY + 1, 0, &[]));
    let dispatches = script.dispatches();
    assert_eq!(dispatches[0].1.fallbacks.as_slice(), [ReplicaId(1)]);
    assert_eq!(dispatches[1].1.replica, ReplicaId(1));
    assert!(dispatches[1].1.fallbacks.is_empty());
}

#[test]
fn in_panic_mode_all_replicas_are_used_and_a_success_tries_the_others_at_once() {
    let mut script = script();
    for id in 0..MANY {
        script.arrive(request(id, 0, &[]));
        assert_eq!(
            script.sent().len(),
            1,
            "nothing waits and nothing is refused"
        );
        script.finish_as(id, End::Failed, ServedBy::Unreported, None);
    }
    assert_eq!(script.availability(0), Availability::Available);
    assert_eq!(script.availability(1), Availability::Available);
    script.arrive(request(MANY, 0, &[]));
    script.effects();
    script.finish(MANY);
    for id in [MANY + 1, MANY + 2] {
        script.arrive(request(id, 0, &[]));
    }
    let mut asked: Vec<u32> = script.sent().into_iter().map(|(_, to)| to).collect();
    asked.sort_unstable();
    assert_eq!(asked, [0, 1]);
}

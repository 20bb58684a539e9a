//! Fleets that change on the way.

mod support;

use core::time::Duration;

use isotherm_router::PolicyName;
use isotherm_simulator::{Action, Arrangement, Change, ReplicaSetup, Setup, run};

use support::{chats, check_conservation, config, engine};

fn setup(replicas: usize, changes: Vec<Change>) -> Setup {
    let arrangement = Arrangement::Router(config(PolicyName::LeastOutstanding));
    Setup {
        changes,
        ..Setup::one_region(engine(), replicas, arrangement)
    }
}

fn at(seconds: u64, what: Action) -> Change {
    Change {
        at: Duration::from_secs(seconds),
        what,
    }
}

#[test]
fn a_replica_that_joins_receives_requests() {
    let workload = chats(60, 3);
    let replica = ReplicaSetup::new(engine());
    let outcome = run(
        &setup(1, vec![at(3, Action::Join { region: 0, replica })]),
        &workload,
    );
    check_conservation(&outcome, &workload);
    let newcomer = outcome
        .requests
        .iter()
        .filter(|request| request.replica == Some(1));
    let first = newcomer
        .clone()
        .filter_map(|request| request.dispatched)
        .min();
    assert!(newcomer.count() > 20);
    assert!(first.unwrap() >= Duration::from_secs(3));
}

#[test]
fn a_draining_or_removed_replica_finishes_its_requests_and_receives_no_other() {
    let workload = chats(60, 3);
    for action in [Action::Drain { replica: 1 }, Action::Leave { replica: 1 }] {
        let outcome = run(&setup(2, vec![at(3, action)]), &workload);
        check_conservation(&outcome, &workload);
        let of_it = outcome
            .requests
            .iter()
            .filter(|request| request.replica == Some(1));
        let last = of_it.clone().filter_map(|request| request.dispatched).max();
        assert!(of_it.count() > 3);
        assert!(last.unwrap() <= Duration::from_secs(3), "{action:?}");
    }
}

#[test]
fn a_replica_that_becomes_slow_takes_longer() {
    let workload = chats(10, 3);
    let slow = at(
        0,
        Action::Speed {
            replica: 0,
            speed: 0.5,
        },
    );
    let usual = run(&setup(1, vec![]), &workload).summary(Duration::from_secs(5));
    let slowed = run(&setup(1, vec![slow]), &workload).summary(Duration::from_secs(5));
    assert!(
        slowed.ttft_p50_s > 1.8 * usual.ttft_p50_s,
        "{usual:?} {slowed:?}"
    );
}

#[test]
fn a_run_cut_at_its_limit_counts_the_cut_requests() {
    let workload = chats(60, 3);
    let mut setup = setup(1, vec![]);
    setup.limit = Duration::from_secs(5);
    let outcome = run(&setup, &workload);
    assert!(outcome.cut > 0);
    assert_eq!(outcome.ended, setup.limit);
    assert!(outcome.reached_limit);
    let summary = outcome.summary(setup.slo);
    assert_eq!(
        summary.requests,
        outcome.requests.len() - workload.warmup_requests
    );
    assert!(summary.failed >= outcome.cut);
}

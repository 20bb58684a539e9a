//! Fleets that change on the way.

use core::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_simulator::{Action, Arrangement, Change, Outcome, ReplicaSetup, Setup, run};

use crate::support::{chats, config, engine, run_checked};

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

/// Times at which the router sent requests to the second replica.
fn dispatched_to_second(outcome: &Outcome) -> Vec<Duration> {
    let of_it = outcome.requests.iter().filter(|r| r.replica == Some(1));
    of_it.filter_map(|request| request.dispatched).collect()
}

#[test]
fn a_replica_that_joins_receives_requests() {
    let workload = chats(60, 3);
    let replica = ReplicaSetup::new(engine());
    let setup = setup(1, vec![at(3, Action::Join { region: 0, replica })]);
    let of_it = dispatched_to_second(&run_checked("join", &setup, &workload));
    assert!(of_it.len() > 20);
    assert!(of_it.iter().min() >= Some(&Duration::from_secs(3)));
}

#[test]
fn a_draining_or_removed_replica_finishes_its_requests_and_receives_no_other() {
    let workload = chats(60, 3);
    for action in [Action::Drain { replica: 1 }, Action::Leave { replica: 1 }] {
        let setup = setup(2, vec![at(3, action)]);
        let outcome = run_checked(&format!("{action:?}"), &setup, &workload);
        let of_it = dispatched_to_second(&outcome);
        assert!(of_it.len() > 3, "{action:?}");
        assert!(
            of_it.iter().max() <= Some(&Duration::from_secs(3)),
            "{action:?}"
        );
    }
}

#[test]
fn a_replica_that_becomes_slow_takes_longer() {
    let workload = chats(10, 3);
    let slow = Action::Speed {
        replica: 0,
        speed: 0.5,
    };
    let usual = run(&setup(1, vec![]), &workload).summary(Duration::from_secs(5));
    let slowed = run(&setup(1, vec![at(0, slow)]), &workload).summary(Duration::from_secs(5));
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

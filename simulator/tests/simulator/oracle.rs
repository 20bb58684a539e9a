//! The oracle against what it must see.

use core::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_router::{Push, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Workload};
use isotherm_simulator::{Arrangement, Outcome, ReplicaSetup, Setup, run};

use crate::support::{chats, config, engine, run_checked, single, step, workload};

/// A sequence of requests, each sent long after the end of the one before.
fn in_turn(prompts: Vec<Prompt>) -> Workload {
    let steps = (0..).zip(prompts).map(|(index, prompt): (usize, Prompt)| {
        let id = 1_000 + u64::try_from(index).unwrap();
        step(index.checked_sub(1), 30_000, prompt, id)
    });
    workload([Session::new(1, Duration::ZERO, steps.collect())])
}

fn replicas(outcome: &Outcome) -> Vec<Option<usize>> {
    outcome.requests.iter().map(|r| r.replica).collect()
}

fn text(id: u64) -> Prompt {
    Prompt::new([Piece::new(id, 2_000)])
}

#[test]
fn the_oracle_prefers_the_replica_with_the_cached_prompt() {
    // Two at once: the second finds the first replica busy.
    let mut workload = in_turn(vec![text(1)]);
    let second = in_turn(vec![text(2), text(2), text(2)]);
    workload.sessions.extend(second.sessions);
    let setup = Setup::one_region(engine(), 3, Arrangement::Oracle);
    let outcome = run_checked("two at once", &setup, &workload);
    let of_second = outcome.requests.iter().filter(|r| r.session == 1);
    let of_second: Vec<_> = of_second.map(|r| (r.replica, r.cached_tokens)).collect();
    // All are idle and as fast as each other by then, and the first replica comes first.
    assert_eq!(
        of_second,
        [(Some(1), 0), (Some(1), 1_984), (Some(1), 1_984)]
    );
}

#[test]
fn the_oracle_prefers_the_fast_engine() {
    let workload = in_turn(vec![text(1), text(2), text(1), text(2), text(1)]);
    let mut setup = Setup::one_region(engine(), 3, Arrangement::Oracle);
    setup.regions[0].replicas[1] = ReplicaSetup {
        speed: 2.0,
        ..ReplicaSetup::new(engine())
    };
    let outcome = run_checked("in turn", &setup, &workload);
    assert_eq!(replicas(&outcome), [Some(1); 5], "the fast engine is idle");
    let mut later = outcome.requests[2..].iter();
    assert!(later.all(|request| request.cached_tokens == 1_984));
}

#[test]
fn the_oracle_spreads_a_burst_that_has_not_reached_the_engines() {
    let workload = workload((0..3).map(|client| single(client, Duration::ZERO, text(client))));
    let setup = Setup::one_region(engine(), 3, Arrangement::Oracle);
    let mut replicas = replicas(&run(&setup, &workload));
    replicas.sort_unstable();
    assert_eq!(replicas, [Some(0), Some(1), Some(2)]);
}

#[test]
fn no_shipped_policy_is_far_ahead_of_the_oracle() {
    let workload = chats(120, 4);
    let slo = Duration::from_secs(5);
    let mean = |arrangement| {
        let setup = Setup::one_region(engine(), 4, arrangement);
        run(&setup, &workload).summary(slo).ttft_mean_s
    };
    let oracle = mean(Arrangement::Oracle);
    for &policy in PolicyName::ALL {
        let config = RouterConfig {
            push: Push::Blind,
            ..config(policy)
        };
        let other = mean(Arrangement::Router(config));
        assert!(
            oracle < 1.05 * other,
            "{policy}: {other} s, oracle {oracle} s"
        );
    }
}

#[test]
fn without_a_replica_every_request_is_rejected() {
    let workload = chats(3, 2);
    let setup = Setup::one_region(engine(), 0, Arrangement::Oracle);
    let requests = run(&setup, &workload).requests;
    assert_eq!(requests.len(), 3, "a failed request has no next turn");
    assert!(requests.iter().all(|request| request.refused.is_some()));
}

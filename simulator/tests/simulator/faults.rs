//! Faults of replicas: a cache that is lost, a cache that is off, adapters that do not fit.

use core::time::Duration;

use isotherm_engine::model::AdapterConfig;
use isotherm_policies::PolicyName;
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Workload};
use isotherm_simulator::{Action, Arrangement, Change, Outcome, Setup};

use crate::support::{config, engine, run_checked, single, workload};

/// Ten requests for one prompt, two seconds apart.
fn repeated() -> Workload {
    let prompt = Prompt::new([Piece::new(1, 1_600)]);
    workload((0..10).map(|client| {
        let starts = Duration::from_secs(2 * client);
        single(client, starts, prompt.clone())
    }))
}

fn one_replica(policy: PolicyName) -> Setup {
    Setup::one_region(engine(), 1, Arrangement::Router(config(policy)))
}

/// Number of requests that found the prompt in the cache.
fn hits(outcome: &Outcome) -> usize {
    let requests = outcome.requests.iter();
    requests.filter(|request| request.cached_tokens > 0).count()
}

#[test]
fn a_restart_loses_the_cache_and_no_request() {
    let mut setup = one_replica(PolicyName::RoundRobin);
    assert_eq!(hits(&run_checked("whole", &setup, &repeated())), 9);
    // In the middle of the fifth request.
    setup.changes = vec![Change {
        at: Duration::from_millis(8_030),
        what: Action::Restart { replica: 0 },
    }];
    let outcome = run_checked("restart", &setup, &repeated());
    assert_eq!(outcome.requests.len(), 10);
    let took = |request: usize| outcome.requests[request].e2e().unwrap();
    let prefill = Duration::from_millis(500);
    assert!(took(4) > took(3) + prefill, "the request starts anew");
    let after = Duration::from_millis(9_500);
    setup.changes[0].at = after;
    let between = run_checked("between requests", &setup, &repeated());
    assert_eq!(hits(&between), 8, "the next request finds nothing");
    let cold = between.requests.iter().skip(1);
    let mut cold = cold.filter(|request| request.cached_tokens == 0);
    assert!(cold.all(|request| request.sent > after));
}

#[test]
fn a_replica_without_prefix_caching_computes_every_prompt() {
    let mut setup = one_replica(PolicyName::RoundRobin);
    setup.regions[0].replicas[0].has_prefix_caching = false;
    assert_eq!(hits(&run_checked("off", &setup, &repeated())), 0);
}

#[test]
fn a_router_that_knows_adapters_loads_fewer_of_them() {
    let sessions = (0..200_u32).map(|client| {
        let prompt = Prompt::new([Piece::new(u64::from(client) + 1, 200)]);
        let starts = Duration::from_millis(250 * u64::from(client));
        Session {
            adapter: Some(client / 3 % 6),
            ..single(client.into(), starts, prompt)
        }
    });
    let workload = workload(sessions);
    let loads = |policy| {
        let mut engine = engine();
        engine.adapters = AdapterConfig {
            slots: 2,
            load_ns: 300_000_000,
        };
        let setup = Setup::one_region(engine, 3, Arrangement::Router(config(policy)));
        let outcome = run_checked("adapters", &setup, &workload);
        let replicas = outcome.replicas.iter();
        replicas.map(|replica| replica.adapter_loads).sum::<u64>()
    };
    let (spread, known) = (loads(PolicyName::RoundRobin), loads(PolicyName::Isotherm));
    assert!(known >= 6 && known * 2 < spread, "{known} of {spread}");
}

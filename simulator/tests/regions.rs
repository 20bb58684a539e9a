//! Several regions: who is served where, and what the way there costs.

mod support;

use core::time::Duration;

use isotherm_router::{PolicyName, Push, RouterConfig};
use isotherm_simulator::workload::Workload;
use isotherm_simulator::{Arrangement, Outcome, RegionSetup, Setup, run};

use support::{chats, config, engine, run_checked, served_by};

/// A busy region and an idle one.
fn two(arrangement: Arrangement) -> Setup {
    let region = |name| RegionSetup::new(name, engine(), 1);
    Setup::regions(vec![region("busy"), region("idle")], arrangement)
}

/// All clients are in the first region, and more of them than its replica takes.
fn crowd() -> Workload {
    let mut workload = chats(60, 2);
    for session in &mut workload.sessions {
        session.region = 0;
        session.starts /= 10;
    }
    workload
}

fn outstanding(policy: PolicyName) -> RouterConfig {
    RouterConfig {
        push: Push::Outstanding { max: 8 },
        ..config(policy)
    }
}

#[test]
fn a_full_region_forwards_unless_routing_is_region_local() {
    let workload = crowd();
    let config = outstanding(PolicyName::PrefixTree);
    let forwarding = two(Arrangement::Router(config.clone()));
    let shared = run_checked("forwarding", &forwarding, &workload);
    assert!(served_by(&shared, 1) > 10, "{}", served_by(&shared, 1));
    let forwarded = shared.requests.iter().filter(|request| request.forwarded);
    assert_eq!(forwarded.count() as u64, served_by(&shared, 1));

    let local = two(Arrangement::RegionLocal(config));
    let local = run_checked("local", &local, &workload);
    assert_eq!(served_by(&local, 1), 0);
    let p90 = |outcome: &Outcome| outcome.summary(Duration::from_secs(5)).ttft_p90_s;
    assert!(
        p90(&shared) < p90(&local),
        "forwarding must help: {} and {}",
        p90(&shared),
        p90(&local)
    );
}

#[test]
fn forwarded_requests_pay_the_network_delay() {
    let setup = two(Arrangement::Router(outstanding(
        PolicyName::LeastOutstanding,
    )));
    let outcome = run(&setup, &crowd());
    let way = setup.network.between(0, 1);
    for request in &outcome.requests {
        let ttft = request.ttft().unwrap();
        assert!(!request.forwarded || ttft > 2 * way, "{request:?}");
    }
}

#[test]
fn a_central_router_reaches_the_replicas_of_all_regions() {
    let workload = chats(30, 2);
    let setup = two(Arrangement::Central {
        config: config(PolicyName::RoundRobin),
        region: 1,
    });
    let outcome = run_checked("central", &setup, &workload);
    let way = setup.network.between(0, 1);
    for request in &outcome.requests {
        // Clients of region 0 call the gateway of region 1, and its replica in region 0 is as far again.
        let ways = u32::from(request.region == 0) + u32::from(request.replica == Some(0));
        let ttft = request.ttft().unwrap();
        assert!(ttft > 2 * ways * way, "{request:?}");
    }
    let total: u64 = (0..2).map(|region| served_by(&outcome, region)).sum();
    assert!(served_by(&outcome, 0) * 3 > total && served_by(&outcome, 1) * 3 > total);
}

#[test]
fn runs_with_regions_are_deterministic() {
    let workload = crowd();
    let setup = two(Arrangement::Router(config(PolicyName::PrefixTree)));
    assert_eq!(run(&setup, &workload), run(&setup, &workload));
}

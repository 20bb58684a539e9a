//! Several regions: the regions that serve requests, the network delays, and runs of six regions that lose no request.

use core::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_router::{Push, RouterConfig};
use isotherm_simulator::workload::Workload;
use isotherm_simulator::{
    Action, Arrangement, Change, Outcome, RegionSetup, ReplicaSetup, Setup, run,
};

use crate::support::{chats, config, engine, run_checked, run_whole, served_by};

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

fn outstanding(policy: PolicyName, max: u32) -> RouterConfig {
    RouterConfig {
        push: Push::Outstanding { max },
        ..config(policy)
    }
}

const REGIONS: usize = 6;

fn six(arrangement: Arrangement) -> Setup {
    let regions = (0..REGIONS).map(|at| RegionSetup::new(&format!("r{at}"), engine(), 1));
    Setup::regions(regions.collect(), arrangement)
}

/// Two of the regions have all the clients, and more than their replicas take.
fn two_crowds() -> Workload {
    let mut workload = chats(48, 2);
    for (session, at) in workload.sessions.iter_mut().zip(0..) {
        session.region = 3 * (at % 2);
        session.starts /= 10;
    }
    workload
}

#[test]
fn a_full_region_forwards_unless_routing_is_region_local() {
    let workload = crowd();
    let config = outstanding(PolicyName::PrefixTree, 8);
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
        8,
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
fn no_request_is_lost_under_any_policy_and_arrangement() {
    let workload = two_crowds();
    for &policy in PolicyName::ALL {
        let forwarding = six(Arrangement::Router(outstanding(policy, 4)));
        let shared = run_whole(&format!("{policy}, forwarding"), &forwarding, &workload);
        for region in 0..REGIONS {
            assert!(served_by(&shared, region) > 0, "{policy}: {region} idles");
        }
        let local = six(Arrangement::RegionLocal(outstanding(policy, 4)));
        let local = run_whole(&format!("{policy}, local"), &local, &workload);
        assert_eq!(served_by(&local, 0) + served_by(&local, 3), 96, "{policy}");
        let central = six(Arrangement::Central {
            config: outstanding(policy, 4),
            region: 2,
        });
        run_whole(&format!("{policy}, central"), &central, &workload);
    }
    run_whole("oracle", &six(Arrangement::Oracle), &workload);
}

#[test]
fn no_request_is_lost_while_replicas_join_and_leave() {
    let workload = two_crowds();
    let at = |ms, what| Change {
        at: Duration::from_millis(ms),
        what,
    };
    let replica = ReplicaSetup::new(engine());
    let slow = Action::Speed {
        replica: 0,
        speed: 0.5,
    };
    for &policy in PolicyName::ALL {
        let setup = Setup {
            changes: vec![
                at(300, Action::Join { region: 0, replica }),
                at(600, Action::Drain { replica: 3 }),
                at(900, Action::Leave { replica: 1 }),
                at(1_200, Action::Join { region: 3, replica }),
                at(1_500, slow),
            ],
            ..six(Arrangement::Router(outstanding(policy, 4)))
        };
        let outcome = run_whole(policy.as_ref(), &setup, &workload);
        assert_eq!(outcome.replicas.len(), REGIONS + 2);
        assert_eq!(outcome, run(&setup, &workload), "{policy} repeats itself");
    }
}

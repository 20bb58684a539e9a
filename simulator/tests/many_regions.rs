//! Six regions: under every arrangement of routers no request is lost and every request is served.

mod support;

use core::time::Duration;

use isotherm_router::{PolicyName, Push, RouterConfig};
use isotherm_simulator::workload::Workload;
use isotherm_simulator::{
    Action, Arrangement, Change, Outcome, RegionSetup, ReplicaSetup, Setup, run,
};

use support::{chats, check_nothing_lost, config, engine};

const REGIONS: usize = 6;

fn setup(arrangement: Arrangement) -> Setup {
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

fn served_by(outcome: &Outcome, region: usize) -> u64 {
    let all = outcome.replicas.iter();
    all.filter(|replica| replica.region == region)
        .map(|replica| replica.requests)
        .sum()
}

fn few(policy: PolicyName) -> RouterConfig {
    RouterConfig {
        push: Push::Outstanding { max: 4 },
        ..config(policy)
    }
}

#[test]
fn no_request_is_lost_under_any_policy_and_arrangement() {
    let workload = two_crowds();
    for policy in PolicyName::ALL {
        let shared = run(&setup(Arrangement::Router(few(policy))), &workload);
        check_nothing_lost(&format!("{policy}, forwarding"), &shared, &workload);
        for region in 0..REGIONS {
            assert!(served_by(&shared, region) > 0, "{policy}: {region} idles");
        }
        let local = run(&setup(Arrangement::RegionLocal(few(policy))), &workload);
        check_nothing_lost(&format!("{policy}, local"), &local, &workload);
        assert_eq!(served_by(&local, 0) + served_by(&local, 3), 96, "{policy}");
        let central = Arrangement::Central {
            config: few(policy),
            region: 2,
        };
        let central = run(&setup(central), &workload);
        check_nothing_lost(&format!("{policy}, central"), &central, &workload);
    }
    let oracle = run(&setup(Arrangement::Oracle), &workload);
    check_nothing_lost("oracle", &oracle, &workload);
}

#[test]
fn no_request_is_lost_while_replicas_join_and_leave() {
    let workload = two_crowds();
    let at = |ms, what| Change {
        at: Duration::from_millis(ms),
        what,
    };
    let replica = ReplicaSetup::new(engine());
    for policy in PolicyName::ALL {
        let setup = Setup {
            changes: vec![
                at(300, Action::Join { region: 0, replica }),
                at(600, Action::Drain { replica: 3 }),
                at(900, Action::Leave { replica: 1 }),
                at(1_200, Action::Join { region: 3, replica }),
                at(
                    1_500,
                    Action::Speed {
                        replica: 0,
                        speed: 0.5,
                    },
                ),
            ],
            ..setup(Arrangement::Router(few(policy)))
        };
        let outcome = run(&setup, &workload);
        check_nothing_lost(&format!("{policy}"), &outcome, &workload);
        assert_eq!(outcome.replicas.len(), REGIONS + 2);
        assert_eq!(outcome, run(&setup, &workload), "{policy} repeats itself");
    }
}

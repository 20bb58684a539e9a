//! Six regions: under every arrangement of routers no request is lost and every request is served.

mod support;

use core::time::Duration;

use isotherm_router::{PolicyName, Push, RouterConfig};
use isotherm_simulator::workload::Workload;
use isotherm_simulator::{Action, Arrangement, Change, RegionSetup, ReplicaSetup, Setup, run};

use support::{chats, config, engine, run_whole, served_by};

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
        let forwarding = setup(Arrangement::Router(few(policy)));
        let shared = run_whole(&format!("{policy}, forwarding"), &forwarding, &workload);
        for region in 0..REGIONS {
            assert!(served_by(&shared, region) > 0, "{policy}: {region} idles");
        }
        let local = setup(Arrangement::RegionLocal(few(policy)));
        let local = run_whole(&format!("{policy}, local"), &local, &workload);
        assert_eq!(served_by(&local, 0) + served_by(&local, 3), 96, "{policy}");
        let central = setup(Arrangement::Central {
            config: few(policy),
            region: 2,
        });
        run_whole(&format!("{policy}, central"), &central, &workload);
    }
    run_whole("oracle", &setup(Arrangement::Oracle), &workload);
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
    for policy in PolicyName::ALL {
        let setup = Setup {
            changes: vec![
                at(300, Action::Join { region: 0, replica }),
                at(600, Action::Drain { replica: 3 }),
                at(900, Action::Leave { replica: 1 }),
                at(1_200, Action::Join { region: 3, replica }),
                at(1_500, slow),
            ],
            ..setup(Arrangement::Router(few(policy)))
        };
        let outcome = run_whole(policy.as_str(), &setup, &workload);
        assert_eq!(outcome.replicas.len(), REGIONS + 2);
        assert_eq!(outcome, run(&setup, &workload), "{policy} repeats itself");
    }
}

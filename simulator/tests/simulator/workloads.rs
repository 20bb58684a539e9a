//! Every kind of workload under every policy in every mode, in small: nothing is lost, and everything repeats itself.

use core::time::Duration;

use isotherm_engine::model::Preset;
use isotherm_policies::PolicyName;
use isotherm_router::{Push, RouterConfig};
use isotherm_simulator::workload::{NAMES, Workload, by_name};
use isotherm_simulator::{Arrangement, Outcome, RegionSetup, Setup};

use crate::support::{config, run_whole};

const MODES: [Push; 3] = [Push::Pending, Push::Outstanding { max: 4 }, Push::Blind];

/// About so many requests of each workload.
const REQUESTS: usize = 24;

/// The first sessions of this workload, all of their steps; with a fleet that can bear them.
fn small(name: &str, seed: u64) -> (Workload, Vec<RegionSetup>) {
    let generator = by_name(name, 0.05).unwrap();
    let mut workload = generator.generate(seed);
    let mut requests = 0;
    workload.sessions.retain(|session| {
        let wanted = requests < REQUESTS;
        requests += session.steps.len();
        wanted
    });
    workload.sends_until = None;
    workload.warmup_requests = 2;
    let regions = match generator.regions() {
        1 => vec![RegionSetup::new(
            "one",
            Preset::Llama31_8b2xA100.config(),
            3,
        )],
        several => (0..several)
            .map(|at| RegionSetup::new(&format!("r{at}"), Preset::Llama31_8bL4.config(), 1))
            .collect(),
    };
    (workload, regions)
}

/// Plays the small workload of a name; the checks name it with the system.
fn play(name: &str, system: &str, seed: u64, arrangement: Arrangement) -> Outcome {
    let (workload, regions) = small(name, seed);
    let setup = Setup {
        seed,
        ..Setup::regions(regions, arrangement)
    };
    run_whole(&format!("{name} {system}"), &setup, &workload)
}

#[test]
fn no_request_is_lost_under_any_policy_in_any_push_mode() {
    for (name, _) in NAMES {
        for &policy in PolicyName::ALL {
            for push in MODES {
                let mut config = RouterConfig {
                    push,
                    ..config(policy)
                };
                // Four requests for each replica are less than some workloads need.
                config.queue.wait_max = Duration::from_secs(600);
                let system = format!("{policy} {push:?}");
                play(name, &system, 1, Arrangement::Router(config));
            }
        }
        play(name, "oracle", 1, Arrangement::Oracle);
    }
}

#[test]
fn every_workload_is_deterministic_and_depends_on_the_seed() {
    for (name, _) in NAMES {
        // A random policy, a policy that learns, and the default.
        for policy in [
            PolicyName::Random,
            PolicyName::MinTtft,
            PolicyName::Isotherm,
        ] {
            let bytes = |seed| {
                let arrangement = Arrangement::Router(config(policy));
                format!("{:?}", play(name, policy.as_ref(), seed, arrangement))
            };
            let first = bytes(1);
            assert_eq!(first, bytes(1), "{name} {policy}");
            assert_ne!(first, bytes(2), "{name} {policy}");
        }
    }
}

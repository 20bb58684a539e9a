//! Every kind of workload under every policy in every mode, in small: nothing is lost, and everything repeats itself.

#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod support;

use isotherm_engine::model::Preset;
use isotherm_router::{PolicyName, Push, RouterConfig};
use isotherm_simulator::workload::{NAMES, Workload, by_name};
use isotherm_simulator::{Arrangement, Outcome, RegionSetup, Setup, run};

use support::{check_nothing_lost, config};

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

fn play(name: &str, seed: u64, arrangement: Arrangement) -> (Workload, Outcome) {
    let (workload, regions) = small(name, seed);
    let setup = Setup {
        seed,
        ..Setup::regions(regions, arrangement)
    };
    let outcome = run(&setup, &workload);
    (workload, outcome)
}

#[test]
fn no_request_is_lost_under_any_policy_in_any_push_mode() {
    for (name, _) in NAMES {
        for policy in PolicyName::ALL {
            for push in MODES {
                let config = RouterConfig {
                    push,
                    ..config(policy)
                };
                let (workload, outcome) = play(name, 1, Arrangement::Router(config));
                check_nothing_lost(&format!("{name} {policy} {push:?}"), &outcome, &workload);
            }
        }
        let (workload, outcome) = play(name, 1, Arrangement::Oracle);
        check_nothing_lost(&format!("{name} oracle"), &outcome, &workload);
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
            let arrangement = || Arrangement::Router(config(policy));
            let (_, first) = play(name, 1, arrangement());
            let (_, again) = play(name, 1, arrangement());
            let bytes = |outcome: &Outcome| format!("{outcome:?}");
            assert_eq!(bytes(&first), bytes(&again), "{name} {policy}");
            let (_, other) = play(name, 2, arrangement());
            assert_ne!(bytes(&first), bytes(&other), "{name} {policy}");
        }
    }
}

//! Several services over one pool, and engines that another router uses, too.

use isotherm_policies::PolicyName;
use isotherm_simulator::{Arrangement, Setup, run};

use crate::support::{chats, config, engine, run_checked};

fn setup() -> Setup {
    let arrangement = Arrangement::Router(config(PolicyName::PrefixTree));
    Setup::one_region(engine(), 4, arrangement)
}

#[test]
fn two_services_serve_every_request_and_know_each_others_placements() {
    // All clients begin with the same prompt, which each service would otherwise compute on a replica of its own.
    let workload = chats(24, 3);
    let cached = |services| {
        let setup = Setup {
            services,
            ..setup()
        };
        let outcome = run_checked("siblings", &setup, &workload);
        outcome
            .requests
            .iter()
            .map(|one| one.cached_tokens)
            .sum::<u32>()
    };
    let (one, two) = (cached(1), cached(2));
    assert!(f64::from(two) > 0.9 * f64::from(one), "{two} of {one}");
}

#[test]
fn requests_past_the_router_count_in_no_figure_and_load_the_engines() {
    let workload = chats(40, 2);
    let setup = Setup {
        bypass_share: 0.5,
        ..setup()
    };
    let outcome = run(&setup, &workload);
    assert_eq!(outcome.requests.len(), workload.requests());
    assert!(outcome.requests.iter().all(|one| one.is_answered()));
    let counted = outcome.requests.iter().filter(|one| !one.warmup).count();
    assert!((20..60).contains(&counted), "{counted} of 80");
    assert_eq!(outcome, run(&setup, &workload), "the same again");
}

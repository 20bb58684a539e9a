//! Telemetry profiles limit what the service sees, and nothing else.

use isotherm_policies::PolicyName;
use isotherm_router::{Push, RouterConfig};
use isotherm_simulator::{Arrangement, Outcome, Setup, Telemetry, run};

use crate::support::{chats, config, engine};

fn outcome(policy: PolicyName, push: Push, telemetry: Telemetry) -> Outcome {
    let config = RouterConfig {
        push,
        ..config(policy)
    };
    let setup = Setup {
        telemetry,
        ..Setup::one_region(engine(), 3, Arrangement::Router(config))
    };
    run(&setup, &chats(40, 3))
}

#[test]
fn a_policy_that_reads_no_telemetry_does_the_same_on_every_profile() {
    let full = outcome(PolicyName::RoundRobin, Push::Blind, Telemetry::Full);
    for telemetry in Telemetry::ALL {
        let seen = outcome(PolicyName::RoundRobin, Push::Blind, telemetry);
        assert_eq!(seen.requests, full.requests, "{telemetry:?}");
    }
    let cached = full.requests.iter().map(|request| request.cached_tokens);
    assert!(cached.sum::<u32>() > 0);
}

#[test]
fn the_default_policy_serves_every_profile() {
    let full = outcome(PolicyName::Isotherm, Push::Pending, Telemetry::Full);
    let mut differing = 0;
    for telemetry in Telemetry::ALL {
        let seen = outcome(PolicyName::Isotherm, Push::Pending, telemetry);
        let answered = seen.requests.iter().filter(|request| request.is_answered());
        assert_eq!(answered.count(), 120, "{telemetry:?}");
        differing += usize::from(seen != full);
    }
    assert!(differing > 0, "no profile hides anything from the service");
}

#[test]
fn replicas_without_a_metrics_page_serve_before_any_probe() {
    let seen = outcome(PolicyName::Isotherm, Push::Pending, Telemetry::Opaque);
    let first = seen.requests.iter().min_by_key(|request| request.sent);
    let waited = first.map(|request| request.queued.is_zero());
    assert_eq!(waited, Some(true));
}

//! The load data of a router: as old as the network and the probes make them, and within the limits of the telemetry profile.

use core::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_router::{Push, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::Workload;
use isotherm_simulator::{Arrangement, Outcome, Setup, Telemetry, run};

use crate::support::{chats, config, engine, single, workload};

/// Long prompts, all at once, and more than the replicas are sent before the next probe.
fn burst() -> Workload {
    workload((0..24).map(|id| {
        let prompt = Prompt::new([Piece::new(id, 6_000)]);
        single(id, Duration::from_secs(1), prompt)
    }))
}

fn setup(push: Push, probe_interval_ms: u64) -> Setup {
    let config = RouterConfig {
        push,
        ..config(PolicyName::LeastOutstanding)
    };
    Setup {
        probe_interval: Duration::from_millis(probe_interval_ms),
        ..Setup::one_region(engine(), 2, Arrangement::Router(config))
    }
}

#[test]
fn no_request_is_dispatched_before_the_first_probe_result() {
    let mut workload = burst();
    for session in &mut workload.sessions {
        session.starts = Duration::ZERO;
    }
    let mut setup = setup(Push::Pending, 100);
    setup.network.service_to_replica = Duration::from_millis(40);
    let outcome = run(&setup, &workload);
    let dispatched = outcome.requests.iter().filter_map(|r| r.dispatched);
    assert_eq!(dispatched.min(), Some(Duration::from_millis(80)));
}

#[test]
fn the_push_mode_decides_whether_requests_wait_in_router_or_engine() {
    let queued = |push| {
        let outcome = run(&setup(push, 100), &burst());
        outcome.requests.iter().map(|r| r.queued).max().unwrap()
    };
    assert_eq!(queued(Push::Blind), Duration::ZERO);
    assert!(queued(Push::Pending) > Duration::from_secs(2));
}

#[test]
fn a_burst_of_streams_waits_no_longer_where_probes_are_rare() {
    let queued = |interval_ms| {
        let outcome = run(&setup(Push::Pending, interval_ms), &burst());
        let queued = outcome.requests.iter().map(|request| request.queued);
        queued.sum::<Duration>()
    };
    // First tokens show what the engines have begun.
    let (often, rarely) = (queued(50), queued(2_000));
    assert!(rarely < often.mul_f64(1.1), "{often:?} {rarely:?}");
}

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

//! Requests that end before the first byte of their response: nothing is learned from them.

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{End, Event, Push, RequestId, RouterConfig, ServedBy};

const REPLICAS: u32 = 2;
const HOUR_S: u64 = 3_600;
/// A request that the router sees before and after.
const PROBE: u64 = 9_999;
/// The prompt of the request that ends early.
const EARLY: &[u64] = &[7; 40];

/// Replicas that have answered some requests.
fn script() -> Script {
    let config = RouterConfig {
        push: Push::Blind,
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, REPLICAS);
    for id in 0..50 {
        script.arrive(request(id, id, &[id, id + 1, id + 2]));
        script.effects();
        script.sleep(200);
        script.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: Some(100_000),
            prompt_tokens: Some(192),
            cached_tokens: Some(0),
            completion_tokens: Some(20),
        });
        script.probe_all(0..REPLICAS);
    }
    script
}

/// Lets an hour pass under good probes.
fn wait_an_hour(script: &mut Script) {
    for _ in 0..HOUR_S {
        script.sleep(1_000);
        script.probe_all(0..REPLICAS);
    }
}

/// Everything by which the router judges a new request.
fn judgement(script: &Script) -> String {
    let request = request(PROBE, PROBE, &[PROBE]);
    let router = &script.router;
    format!(
        "{:?} {:?}",
        router.estimates(),
        router.explain(script.now, &request)
    )
}

fn check_nothing_moves(end: impl Fn(&mut Script)) {
    let mut idle = script();
    wait_an_hour(&mut idle);
    let mut script = script();
    script.arrive(request(1_000, 1_000, EARLY));
    assert_eq!(script.sent().len(), 1);
    wait_an_hour(&mut script);
    end(&mut script);
    script.probe_all(0..REPLICAS);
    idle.probe_all(0..REPLICAS);
    assert_eq!(judgement(&script), judgement(&idle));
}

#[test]
fn an_abort_after_an_hour_moves_no_estimate() {
    check_nothing_moves(|script| script.abort(1_000));
}

#[test]
fn a_refusal_and_a_failure_after_an_hour_move_no_estimate() {
    for end in [End::Refused, End::Failed, End::Broke] {
        check_nothing_moves(|script| script.finish_as(1_000, end, ServedBy::Unreported, None));
    }
}

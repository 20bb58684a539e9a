//! Replicas that answer probes without metrics: their outstanding requests decide.

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{
    Availability, End, Event, OUTSTANDING_MAX, RejectReason, ReplicaId, Request, RequestId,
    RouterConfig, ServedBy, Time,
};

fn without_metrics(script: &mut Script, id: u32) {
    script.event(Event::AnsweredWithoutMetrics {
        replica: ReplicaId(id),
        sent: script.now,
    });
}

/// A pool with one replica that was never probed.
fn unprobed() -> Script {
    let mut script = Script::new(RouterConfig::default(), 0);
    script.add(0);
    script
}

#[test]
fn a_replica_without_metrics_gets_requests_up_to_a_number() {
    let mut script = unprobed();
    script.arrive(request(0, 0, &[]));
    assert_eq!(script.sent(), [], "it was never probed");
    without_metrics(&mut script, 0);
    assert_eq!(script.sent(), [(0, 0)]);
    for id in 1..u64::from(OUTSTANDING_MAX) + 2 {
        script.arrive(request(id, id, &[]));
    }
    assert_eq!(script.sent().len(), OUTSTANDING_MAX as usize - 1);
    assert_eq!(script.availability(0), Availability::Full);
    script.finish(0);
    assert_eq!(script.sent().len(), 1);
    let status = script.router.replicas(script.now).next().unwrap();
    assert_eq!((status.has_metrics, status.load), (false, None));
}

#[test]
fn a_replica_without_metrics_gets_more_while_the_responses_to_all_earlier_requests_begin() {
    let mut script = unprobed();
    without_metrics(&mut script, 0);
    let many = u64::from(OUTSTANDING_MAX);
    for id in 0..2 * many {
        script.arrive(request(id, id, &[]));
    }
    assert_eq!(script.sent().len(), OUTSTANDING_MAX as usize);
    for id in 0..many {
        script.event(Event::Began(RequestId(id)));
    }
    assert_eq!(script.sent().len(), 4, "the engine has begun them all");
    assert_eq!(script.availability(0), Availability::Full);
    script.event(Event::Began(RequestId(many)));
    assert_eq!(script.sent().len(), 1);
}

/// A request is sent, and its answer comes at once.
fn exchange(script: &mut Script, id: u64, ttft_us: Option<u64>) {
    script.arrive(request(id, id, &[]));
    script.event(Event::Began(RequestId(id)));
    script.event(Event::Finished {
        id: RequestId(id),
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
    });
}

/// One replica without metrics that has streamed many answers, and has had these requests for half a second.
fn after_streams(requests: core::ops::Range<u64>) -> Script {
    let mut script = unprobed();
    without_metrics(&mut script, 0);
    for id in 1_000..1_064 {
        exchange(&mut script, id, Some(1_000));
    }
    script.sleep(1);
    for id in requests {
        script.arrive(request(id, id, &[]));
    }
    probe_for(&mut script, 500);
    script.sent();
    script
}

fn probe_for(script: &mut Script, ms: u64) {
    for _ in 0..ms / 100 {
        script.sleep(100);
        without_metrics(script, 0);
    }
}

#[test]
fn a_replica_with_a_stuck_prompt_gets_the_next_request_when_its_response_begins() {
    let mut script = after_streams(0..1);
    assert_eq!(script.availability(0), Availability::Full);
    script.arrive(request(1, 1, &[]));
    assert_eq!(script.sent(), []);
    script.event(Event::Began(RequestId(0)));
    assert_eq!(script.sent(), [(1, 0)]);
}

#[test]
fn a_later_response_shows_that_an_earlier_prompt_is_not_stuck() {
    let mut script = after_streams(0..2);
    assert_eq!(script.availability(0), Availability::Full);
    script.event(Event::Began(RequestId(1)));
    probe_for(&mut script, 500);
    assert_eq!(script.availability(0), Availability::Available);
}

#[test]
fn a_replica_with_stuck_prompts_gets_a_request_now_and_then() {
    let mut script = after_streams(0..1);
    script.arrive(request(1, 1, &[]));
    script.arrive(request(2, 2, &[]));
    probe_for(&mut script, 1_400);
    assert_eq!(script.sent(), []);
    probe_for(&mut script, 200);
    assert_eq!(script.sent(), [(1, 0)]);
    probe_for(&mut script, 1_800);
    assert_eq!(script.sent(), []);
    probe_for(&mut script, 200);
    assert_eq!(script.sent(), [(2, 0)]);
}

#[test]
fn a_request_for_a_whole_answer_is_never_stuck() {
    let mut script = after_streams(0..0);
    script.arrive(Request {
        wants_stream: false,
        ..request(0, 0, &[])
    });
    probe_for(&mut script, 1_000);
    assert_eq!(script.availability(0), Availability::Available);
}

#[test]
fn a_whole_answer_shows_that_a_request_without_a_response_may_be_computed() {
    let mut script = after_streams(0..0);
    exchange(&mut script, 2_000, None);
    script.arrive(request(0, 0, &[]));
    probe_for(&mut script, 500);
    assert_eq!(script.availability(0), Availability::Available);
}

#[test]
fn a_replica_whose_metrics_appear_follows_the_push_rule_again() {
    let mut script = unprobed();
    without_metrics(&mut script, 0);
    script.sleep(100);
    script.probe(0, 1);
    assert_eq!(script.availability(0), Availability::Pending);
    let earlier = Time::from_nanos(script.now.as_nanos() - 1);
    script.event(Event::AnsweredWithoutMetrics {
        replica: ReplicaId(0),
        sent: earlier,
    });
    assert_eq!(script.availability(0), Availability::Pending, "older news");
    script.sleep(100);
    without_metrics(&mut script, 0);
    assert_eq!(script.availability(0), Availability::Available);
}

#[test]
fn a_replica_without_metrics_that_is_down_gets_no_request() {
    let mut script = unprobed();
    without_metrics(&mut script, 0);
    script.probe_fails(0);
    assert_eq!(script.availability(0), Availability::ProbeFailed);
    script.arrive(request(1, 1, &[]));
    script.sleep(30_000);
    assert_eq!(script.rejects(), [(1, RejectReason::NoHealthyReplica)]);
    without_metrics(&mut script, 0);
    script.sleep(3_000);
    assert_eq!(script.availability(0), Availability::Stale);
}

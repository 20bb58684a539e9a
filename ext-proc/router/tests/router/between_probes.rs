//! Between two probes, a response that begins shows that the replica has admitted its request, and prompts whose responses have not
//! begun wait in its queue.

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{
    Availability, End, Event, Load, Push, Request, RequestId, RouterConfig, ServedBy,
};

fn pending() -> RouterConfig {
    RouterConfig {
        push: Push::Pending,
        ..RouterConfig::default()
    }
}

fn single(id: u64) -> Request {
    request(id, id, &[id])
}

/// Requests that a replica is sent between two probes at most.
const SENT_MAX: u64 = 8;

/// One replica that was sent all that it may get before the next probe, and a request that waits.
fn full() -> Script {
    let mut script = Script::new(pending(), 1);
    script.probe(0, 0);
    script.sleep(1);
    for id in 0..=SENT_MAX {
        script.arrive(single(id));
    }
    assert_eq!(script.sent().len() as u64, SENT_MAX);
    assert_eq!(script.availability(0), Availability::NoHeadroom);
    script
}

fn headroom(script: &Script) -> Option<u32> {
    let status = script.router.replicas(script.now).next();
    status.and_then(|status| status.headroom)
}

#[test]
fn a_replica_has_headroom_only_while_it_takes_requests() {
    let mut script = Script::new(pending(), 0);
    script.add(0);
    assert_eq!(headroom(&script), Some(0), "never probed");
    script.probe(0, 0);
    assert_eq!(headroom(&script), Some(SENT_MAX as u32));
    script.arrive(single(0));
    assert_eq!(headroom(&script), Some(SENT_MAX as u32 - 1));
    script.sleep(100);
    script.probe(0, 1);
    assert_eq!(headroom(&script), Some(0), "a request waits in its engine");
    assert_eq!(headroom(&full()), Some(0));
}

/// A page with so many waiting and running requests.
fn page(script: &mut Script, pending: u32, running: u32) {
    script.sleep(100);
    let load = Load {
        pending,
        running: Some(running),
        ..Load::default()
    };
    script.probe_load(0, load);
}

#[test]
fn an_engine_that_runs_as_many_as_beside_waiting_ones_gets_one_more() {
    let mut script = Script::new(pending(), 1);
    page(&mut script, 0, 0);
    for id in 0..6 {
        script.arrive(single(id));
    }
    assert_eq!(script.sent().len(), 6);
    // It runs four at once.
    page(&mut script, 2, 4);
    assert_eq!(headroom(&script), Some(0));
    script.finish(0);
    script.finish(1);
    page(&mut script, 0, 4);
    assert_eq!(headroom(&script), Some(1), "none beside it would run");
    script.arrive(single(10));
    script.arrive(single(11));
    assert_eq!(script.sent().len(), 1);
    script.finish(2);
    assert_eq!(script.sent().len(), 1, "one has ended");
}

#[test]
fn an_engine_that_runs_more_than_beside_waiting_ones_has_room_again() {
    let mut script = Script::new(pending(), 1);
    page(&mut script, 2, 4);
    page(&mut script, 0, 5);
    assert_eq!(headroom(&script), Some(SENT_MAX as u32));
}

fn begin(script: &mut Script, id: u64) {
    script.event(Event::Began(RequestId(id)));
}

#[test]
fn a_replica_that_was_sent_enough_gets_the_next_request_when_a_response_begins() {
    let mut script = full();
    begin(&mut script, 0);
    assert_eq!(script.sent(), [(SENT_MAX, 0)]);
    script.arrive(single(SENT_MAX + 1));
    begin(&mut script, 0);
    assert_eq!(script.sent(), [], "one response makes room once");
}

#[test]
fn a_replica_with_pending_requests_gets_the_next_one_when_the_responses_before_it_have_begun() {
    let mut script = full();
    script.sleep(100);
    script.probe(0, 1);
    (0..SENT_MAX - 1).for_each(|id| begin(&mut script, id));
    assert_eq!(script.sent(), [], "one is still pending");
    assert_eq!(script.availability(0), Availability::Pending);
    begin(&mut script, SENT_MAX - 1);
    assert_eq!(script.sent(), [(SENT_MAX, 0)]);
}

#[test]
fn pending_requests_of_another_router_wait_for_the_next_probe() {
    let mut script = full();
    script.sleep(100);
    script.probe(0, 9);
    (0..SENT_MAX).for_each(|id| begin(&mut script, id));
    assert_eq!(script.sent(), []);
    script.sleep(100);
    script.probe(0, 0);
    assert_eq!(script.sent(), [(SENT_MAX, 0)]);
}

/// A request whose prompt takes a second, at the presumed speed.
fn long(id: u64) -> Request {
    Request {
        prompt_tokens: 10_000,
        ..single(id)
    }
}

/// One replica, after the answer to a long prompt.
fn after_an_answer(is_stream: bool) -> Script {
    let mut script = Script::new(pending(), 1);
    for id in (100..112).step_by(2) {
        script.probe(0, 0);
        for id in [id, id + 1] {
            script.arrive(single(id));
        }
        script.sleep(300);
    }
    script.probe(0, 0);
    for id in 100..112 {
        script.finish(id);
    }
    script.arrive(long(200));
    script.sleep(1_000);
    if is_stream {
        begin(&mut script, 200);
    }
    script.event(Event::Finished {
        id: RequestId(200),
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: is_stream.then_some(1_000_000),
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
    });
    script.probe(0, 0);
    script.sent();
    script
}

#[test]
fn prompts_wait_in_the_router_while_two_wait_in_the_engine_for_long() {
    let mut script = after_an_answer(true);
    script.arrive(long(0));
    script.arrive(long(1));
    script.arrive(long(2));
    assert_eq!(script.sent(), [(0, 0), (1, 0)]);
    assert_eq!(script.availability(0), Availability::NoHeadroom);
    begin(&mut script, 0);
    assert_eq!(script.sent(), [(2, 0)], "one waits");
}

#[test]
fn prompts_that_are_soon_computed_do_not_keep_others_waiting() {
    let mut script = after_an_answer(true);
    script.arrive(long(0));
    script.arrive(long(1));
    script.arrive(long(2));
    assert_eq!(script.sent(), [(0, 0), (1, 0)]);
    script.sleep(1_100);
    assert_eq!(script.sent(), [], "the two wait for 0.9 s");
    script.sleep(200);
    assert_eq!(script.sent(), [(2, 0)]);
}

#[test]
fn requests_for_whole_answers_do_not_wait_in_the_engine_as_far_as_is_known() {
    let mut script = after_an_answer(true);
    for id in 0..3 {
        script.arrive(Request {
            wants_stream: false,
            ..long(id)
        });
    }
    assert_eq!(script.sent().len(), 3);
    script.arrive(long(3));
    assert_eq!(script.sent().len(), 1, "one stream waits");
}

#[test]
fn a_whole_answer_does_not_hide_that_the_engine_streams() {
    let mut script = after_an_answer(true);
    script.arrive(Request {
        wants_stream: false,
        ..single(50)
    });
    script.finish(50);
    script.sent();
    for id in 0..3 {
        script.arrive(long(id));
    }
    assert_eq!(script.sent(), [(0, 0), (1, 0)]);
}

#[test]
fn an_engine_that_answers_as_a_whole_gets_requests_by_their_number() {
    let mut script = after_an_answer(false);
    for id in 0..3 {
        script.arrive(long(id));
    }
    assert_eq!(script.sent().len(), 3);
}

//! Between two probes, a response that begins shows that the replica has admitted its request.

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{Availability, Event, Push, Request, RequestId, RouterConfig};

fn pending() -> RouterConfig {
    RouterConfig {
        push: Push::Pending,
        ..RouterConfig::default()
    }
}

fn single(id: u64) -> Request {
    request(id, id, &[id])
}

/// One replica whose window of two requests is used up.
fn full() -> Script {
    let mut script = Script::new(pending(), 1);
    script.probe(0, 0);
    script.sleep(1);
    for id in 0..3 {
        script.arrive(single(id));
    }
    assert_eq!(script.sent(), [(0, 0), (1, 0)]);
    script
}

fn begin(script: &mut Script, id: u64) {
    script.event(Event::Began(RequestId(id)));
}

#[test]
fn a_replica_whose_window_is_used_up_gets_the_next_request_when_a_response_begins() {
    let mut script = full();
    begin(&mut script, 0);
    assert_eq!(script.sent(), [(2, 0)]);
    script.arrive(single(3));
    begin(&mut script, 0);
    assert_eq!(script.sent(), [], "one response makes room once");
}

#[test]
fn a_replica_with_pending_requests_gets_the_next_one_when_the_responses_before_it_have_begun() {
    let mut script = full();
    script.sleep(100);
    script.probe(0, 1);
    begin(&mut script, 0);
    assert_eq!(script.sent(), [], "one of the two is still pending");
    assert_eq!(script.availability(0), Availability::Pending);
    begin(&mut script, 1);
    assert_eq!(script.sent(), [(2, 0)]);
}

#[test]
fn pending_requests_of_another_router_wait_for_the_next_probe() {
    let mut script = full();
    script.sleep(100);
    script.probe(0, 3);
    begin(&mut script, 0);
    begin(&mut script, 1);
    assert_eq!(script.sent(), []);
    script.sleep(100);
    script.probe(0, 0);
    assert_eq!(script.sent(), [(2, 0)]);
}

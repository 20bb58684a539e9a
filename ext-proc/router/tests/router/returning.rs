//! Requests that come back from another region, and what that says of it.

use std::time::Duration;

use crate::support::home::{
    ASIA, EU, any, config, full, full_with, no_free_capacity, roomy, taken,
};
use crate::support::script::Script;
use crate::support::{request, traveller};
use isotherm_router::{
    End, Event, PeerAvailability, PeerId, QueueLimits, RejectReason, RouterConfig, ServedBy,
};

#[test]
fn a_returned_request_goes_to_another_peer() {
    let mut script = full(1);
    script.arrive(any(1));
    assert_eq!(script.forwarded(), [(1, EU)]);
    script.sleep(90);
    script.arrive(traveller(2, 1, &[1, 1, 1, 1], &[EU]));
    assert_eq!(script.forwarded(), [(2, ASIA)]);
    script.sleep(90);
    script.arrive(traveller(3, 1, &[1, 1, 1, 1], &[EU, ASIA]));
    script.sleep(10);
    script.peer_says(EU, roomy());
    script.peer_says(ASIA, roomy());
    assert_eq!(script.forwarded(), [], "it waits here");
    script.finish(taken(0));
    assert_eq!(script.sent(), [(3, 0)]);
    assert_eq!(script.stats().counters.returned, 2);
}

#[test]
fn a_returned_request_takes_a_free_local_replica() {
    let mut script = full(1);
    script.arrive(any(1));
    assert_eq!(script.forwarded(), [(1, EU)]);
    script.finish(taken(0));
    script.arrive(traveller(2, 1, &[1, 1, 1, 1], &[EU]));
    assert_eq!(script.sent(), [(2, 0)]);
}

#[test]
fn a_returned_request_invalidates_the_report_of_its_peer() {
    let mut script = full(1);
    script.arrive(any(1));
    assert_eq!(script.forwarded(), [(1, EU)]);
    script.sleep(90);
    let asked = script.now;
    script.arrive(traveller(2, 1, &[1], &[EU]));
    assert_eq!(script.forwarded(), [(2, ASIA)]);
    assert_eq!(script.peer(EU).availability, PeerAvailability::Refused);
    script.sleep(50);
    script.event(Event::PeerReported {
        peer: PeerId(EU),
        report: roomy(),
        as_of: asked,
        round_trip: Duration::from_millis(90),
    });
    assert_eq!(script.peer(EU).availability, PeerAvailability::Refused);
    script.peer_says(EU, roomy());
    assert_eq!(script.peer(EU).availability, PeerAvailability::Available);
}

#[test]
fn a_peer_that_reports_free_capacity_and_returns_every_request_is_avoided() {
    let mut script = full(1);
    script.event(Event::PeerRemoved(PeerId(ASIA)));
    let mut id = 0;
    let (mut went_there, mut believed) = (0, 0);
    // A minute under heartbeats every 200 ms, with ten requests between two.
    for _ in 0..300 {
        script.sleep(20);
        let before = went_there;
        script.peer_at(EU, 90, roomy());
        for _ in 0..10 {
            script.arrive(any(id));
            script.sleep(18);
            id += 1;
            for _ in script.forwarded() {
                went_there += 1;
                script.arrive(traveller(id, id, &[id], &[EU]));
                id += 1;
            }
            assert_eq!(script.forwarded(), [], "it does not go there twice");
        }
        believed += usize::from(went_there > before);
    }
    // Five refuted reports, then trials after 1, 2, 4, 8, 16 and 16 seconds.
    assert!((9..=12).contains(&believed), "{believed} reports");
    // The requests that waited between two reports left on the next one.
    assert!(went_there <= 5 * 10 + 7, "{went_there} of {id}");
    assert_eq!(script.peer(EU).availability, PeerAvailability::Failing);
}

#[test]
fn a_peer_is_used_again_after_one_good_response() {
    let mut script = full(1);
    script.event(Event::PeerRemoved(PeerId(ASIA)));
    let back = |script: &mut Script, id: u64| {
        script.sleep(10);
        script.peer_at(EU, 90, roomy());
        script.arrive(any(id));
        assert_eq!(script.forwarded(), [(id, EU)]);
        script.sleep(10);
        script.arrive(traveller(1_000 + id, id, &[id], &[EU]));
        script.finish_as(id, End::Answered, ServedBy::UnknownHost, None);
    };
    for id in 0..5 {
        back(&mut script, id);
    }
    assert_eq!(script.peer(EU).availability, PeerAvailability::Failing);
    assert_eq!(script.stats().counters.finished_ok, 0, "counted elsewhere");
    script.sleep(1_000);
    script.peer_at(EU, 90, roomy());
    script.arrive(any(10));
    script.arrive(any(11));
    assert_eq!(script.forwarded(), [(10, EU)], "one at a time");
    script.finish(10);
    assert_eq!(script.peer(EU).availability, PeerAvailability::Paced);
    script.sleep(10);
    script.peer_at(EU, 90, roomy());
    assert_eq!(script.forwarded(), [(11, EU)], "and more with each report");
    assert_eq!(script.peer(EU).availability, PeerAvailability::Available);
}

#[test]
fn an_end_without_an_outcome_does_not_restore_trust_in_a_peer() {
    let mut script = full(1);
    script.event(Event::PeerRemoved(PeerId(ASIA)));
    for id in 0..5 {
        script.sleep(10);
        script.peer_at(EU, 90, roomy());
        script.arrive(any(id));
        assert_eq!(script.forwarded(), [(id, EU)]);
        script.arrive(traveller(100 + id, id, &[id; 4], &[EU]));
        script.finish(id);
    }
    assert_eq!(script.peer(EU).availability, PeerAvailability::Failing);
    assert_eq!(script.stats().counters.finished_ok, 0);
}

#[test]
fn a_peer_that_returns_some_requests_and_serves_others_counts_as_full() {
    let mut script = full(1);
    script.event(Event::PeerRemoved(PeerId(ASIA)));
    for id in 0..3 {
        script.arrive(any(id));
    }
    assert_eq!(script.forwarded().len(), 3);
    for _ in 0..20 {
        script.sleep(200);
        script.peer_at(EU, 90, roomy());
    }
    for id in 10..30 {
        script.arrive(any(id));
        assert_eq!(script.forwarded(), [(id, EU)]);
        script.sleep(90);
        script.arrive(traveller(1_000 + id, id, &[id], &[EU]));
        assert_eq!(script.peer(EU).availability, PeerAvailability::Refused);
        script.sleep(110);
        script.peer_at(EU, 90, roomy());
    }
    assert_eq!(script.peer(EU).returned, 20);
    for id in 0..3 {
        script.finish(id);
    }
}

#[test]
fn a_return_through_a_sibling_counts_too() {
    let mut script = full(1);
    script.event(Event::PeerRemoved(PeerId(ASIA)));
    for id in 0..5 {
        script.sleep(10);
        script.peer_at(EU, 90, roomy());
        script.arrive(any(id));
        assert_eq!(script.forwarded(), [(id, EU)]);
        script.finish_as(id, End::Answered, ServedBy::UnknownHost, None);
    }
    assert_eq!(script.peer(EU).availability, PeerAvailability::Failing);
}

#[test]
fn a_forwarded_request_that_failed_leaves_no_trace_in_the_index() {
    for (end, served) in [
        (End::Failed, ServedBy::Unreported),
        (End::Answered, ServedBy::UnknownHost),
    ] {
        let mut script = full(1);
        script.arrive(traveller(1, 1, &[1, 2], &[]));
        assert_eq!(script.forwarded(), [(1, EU)]);
        script.finish_as(1, end, served, None);
        script.sleep(1);
        script.peer_at(EU, 90, roomy());
        script.arrive(traveller(2, 1, &[1, 2, 3], &[]));
        let went = script.forwardings();
        assert_eq!(went[0].1.matched_bytes, 0, "{end:?} {served:?}");
    }
}

#[test]
fn a_returned_request_keeps_its_position_in_the_queue() {
    let mut script = full(1);
    script.arrive(any(1));
    script.arrive(any(2));
    assert_eq!(script.forwarded(), [(1, EU), (2, EU)]);
    script.peer_says(EU, no_free_capacity());
    script.peer_says(ASIA, no_free_capacity());
    script.sleep(200);
    script.arrive(request(3, 3, &[3, 3, 3, 3]));
    script.arrive(request(4, 4, &[4, 4, 4, 4]));
    script.sleep(80);
    script.arrive(traveller(12, 2, &[2, 2, 2, 2], &[EU]));
    script.arrive(traveller(11, 1, &[1, 1, 1, 1], &[EU]));
    script.finish(taken(0));
    let sent = script.dispatches();
    assert_eq!(sent[0].0, 11, "it was there first");
    assert_eq!(sent[0].1.queued_for.as_millis(), 280, "its detour included");
    script.finish(11);
    assert_eq!(script.sent(), [(12, 0)]);
    script.finish(12);
    assert_eq!(script.sent(), [(3, 0)]);
}

#[test]
fn a_full_queue_accepts_a_returned_request() {
    let tight = RouterConfig {
        queue: QueueLimits {
            length_max: 1,
            wait_max: Duration::from_secs(5),
            ..QueueLimits::default()
        },
        ..config()
    };
    let mut script = full_with(tight, 1);
    script.arrive(any(1));
    script.arrive(request(2, 2, &[2]));
    assert_eq!(script.forwarded(), [(1, EU)]);
    script.peer_says(ASIA, no_free_capacity());
    script.arrive(traveller(3, 1, &[1, 1, 1, 1], &[EU]));
    assert_eq!(script.effects(), []);
    assert_eq!(script.stats().queue_length, 2);
    script.sleep(4_999);
    assert_eq!(script.effects(), []);
    script.sleep(1);
    assert_eq!(
        script.rejects().len(),
        2,
        "it waits no longer for its detour"
    );
}

#[test]
fn a_request_that_returns_past_the_wait_limit_is_rejected_unless_a_replica_is_free() {
    let mut script = full(1);
    script.arrive(any(1));
    script.arrive(any(2));
    assert_eq!(script.forwarded(), [(1, EU), (2, EU)]);
    script.sleep(31_000);
    script.arrive(traveller(3, 1, &[1, 1, 1, 1], &[EU]));
    assert_eq!(script.rejects(), [(3, RejectReason::WaitedTooLong)]);
    script.finish(taken(0));
    script.probe(0, 0);
    script.arrive(traveller(4, 2, &[2, 2, 2, 2], &[EU]));
    assert_eq!(script.sent(), [(4, 0)]);
}

//! Requests that leave for a peer, and requests that a peer forwards here.

use std::time::Duration;

use crate::support::home::{
    ASIA, EU, any, config, free_capacity, full, full_with, no_free_capacity, region, roomy,
    script_tau, taken,
};
use crate::support::script::Script;
use crate::support::{forwarded_request, request, traveller};
use isotherm_policies::PolicyName;
use isotherm_router::{
    Choice, End, Event, PeerAvailability, PeerId, PeerReport, Push, QueueLimits, Reason,
    RejectReason, ReplicaId, Request, RouterConfig, ServedBy, Time,
};

#[test]
fn a_local_replica_comes_first() {
    let mut script = region(1);
    script.arrive(any(1));
    assert_eq!(script.sent(), [(1, 0)]);
    script.arrive(any(2));
    assert_eq!(script.forwarded(), [(2, EU)]);
}

#[test]
fn a_request_that_may_not_be_forwarded_waits() {
    let mut script = full(1);
    script.arrive(request(1, 1, &[1]));
    assert_eq!(script.effects(), []);
    let pinned = Request {
        subset: Some(Box::new([ReplicaId(0)])),
        ..any(2)
    };
    script.arrive(pinned);
    assert_eq!(script.effects(), [], "all that it may use are here");
    script.finish(taken(0));
    assert_eq!(script.sent(), [(1, 0)]);
}

#[test]
fn the_longest_match_decides_when_it_is_half_of_the_prompt() {
    let mut script = full(1);
    script.peer_says(EU, no_free_capacity());
    script.arrive(traveller(1, 1, &[1, 2], &[]));
    assert_eq!(script.forwarded(), [(1, ASIA)]);
    script.peer_at(EU, 90, roomy());
    script.arrive(traveller(2, 2, &[1, 2, 3, 4], &[]));
    let went = script.forwardings();
    let (_, forwarding) = &went[0];
    assert_eq!(forwarding.peer, PeerId(ASIA), "its cache is warm");
    assert_eq!(forwarding.reason, Reason::Prefix);
    assert_eq!(forwarding.matched_bytes, 512);
    assert_eq!(forwarding.matched_tokens, 128);
    script.arrive(traveller(3, 3, &[1, 2, 5, 6, 7], &[]));
    let went = script.forwardings();
    assert_eq!(went[0].1.peer, PeerId(EU), "the match is too short");
    assert_eq!(went[0].1.reason, Reason::Soonest);
}

#[test]
fn a_conversation_stays_in_its_region() {
    let mut script = full(1);
    for session in 0..40 {
        let mut went = Vec::new();
        for turn in 1..6 {
            script.sleep(1);
            // Whichever is nearer now.
            let near = (session + turn) % 2;
            script.peer_at(EU, 50 + 100 * near, roomy());
            script.peer_at(ASIA, 150 - 100 * near, roomy());
            let blocks: Vec<u64> = (0..4 * turn).map(|i| session << 8 | i).collect();
            let id = session << 8 | turn;
            script.arrive(traveller(id, session, &blocks, &[]));
            went.extend(script.forwarded().into_iter().map(|(_, peer)| peer));
            script.finish(id);
        }
        assert_eq!(went, [went[0]; 5], "conversation {session}");
    }
    assert!(script.peer(EU).forwarded >= 50 && script.peer(ASIA).forwarded >= 50);
}

#[test]
fn a_warm_peer_without_free_capacity_is_skipped() {
    let mut script = full(1);
    script.arrive(traveller(1, 1, &[1, 2], &[]));
    assert_eq!(script.forwarded(), [(1, EU)]);
    script.peer_says(EU, no_free_capacity());
    script.arrive(traveller(2, 1, &[1, 2, 3], &[]));
    assert_eq!(script.forwarded(), [(2, ASIA)]);
}

#[test]
fn without_a_match_the_peer_with_the_least_queue_and_round_trip_is_selected() {
    let mut script = full(1);
    script.arrive(any(1));
    let went = script.forwardings();
    assert_eq!(went[0].1.peer, PeerId(EU));
    assert_eq!(went[0].1.estimated_ttft, Duration::from_millis(90));
    let queued = PeerReport {
        queue: 3,
        ..roomy()
    };
    script.peer_at(EU, 90, queued);
    script.arrive(any(2));
    let went = script.forwardings();
    assert_eq!(went[0].1.peer, PeerId(ASIA), "200 ms against 90 + 3/10 s");
    let fast = PeerReport {
        drain_per_s: 100.0,
        ..queued
    };
    script.peer_at(EU, 90, fast);
    script.arrive(any(3));
    let went = script.forwardings();
    assert_eq!(went[0].1.peer, PeerId(EU));
    assert_eq!(went[0].1.estimated_ttft, Duration::from_millis(120));
}

#[test]
fn a_ring_of_peers_keeps_a_session_together() {
    let ring = RouterConfig {
        policy: PolicyName::ConsistentHash.into(),
        ..config()
    };
    let mut script = full_with(ring, 1);
    let mut used = [0; 3];
    for session in 0..100 {
        let at = (0..3).map(|turn| {
            let id = 3 * session + turn;
            script.sleep(1);
            script.peer_at(EU, 90, roomy());
            script.peer_at(ASIA, 200, roomy());
            script.arrive(traveller(id, session, &[id], &[]));
            let went = script.forwardings();
            script.finish(id);
            assert_eq!(went[0].1.reason, Reason::Ring);
            went[0].1.peer.0
        });
        let at: Vec<u16> = at.collect();
        assert_eq!(at, [at[0]; 3]);
        used[usize::from(at[0])] += 1;
    }
    assert!(used[1] > 20 && used[2] > 20, "{used:?}");
}

#[test]
fn requests_forwarded_since_a_report_reduce_the_free_capacity() {
    let mut script = full(1);
    script.event(Event::PeerRemoved(PeerId(ASIA)));
    script.peer_says(EU, free_capacity(3));
    script.sleep(1);
    for id in 0..20 {
        script.arrive(any(id));
    }
    let tau = usize::try_from(script_tau()).unwrap();
    assert_eq!(script.forwarded().len(), 3 + tau + 1);
    let eu = script.peer(EU);
    assert_eq!(eu.availability, PeerAvailability::LongQueue);
    assert_eq!(eu.forwarded_since, 8);
    // It was asked before all that, so its answer knows nothing of it.
    let asked = script.now;
    script.sleep(100);
    script.event(Event::PeerReported {
        peer: PeerId(EU),
        report: free_capacity(3),
        as_of: Time::from_nanos(asked.as_nanos() - 500_000),
        round_trip: Duration::from_millis(100),
    });
    assert_eq!(script.forwarded(), []);
    script.peer_says(EU, free_capacity(2));
    assert_eq!(
        script.forwarded().len(),
        2 + tau + 1,
        "asked after all that"
    );
}

#[test]
fn an_older_report_changes_nothing() {
    let mut script = full(1);
    script.event(Event::PeerLost(PeerId(ASIA)));
    script.sleep(200);
    script.peer_says(EU, no_free_capacity());
    let late = Time::from_nanos(script.now.as_nanos() - 1);
    script.event(Event::PeerReported {
        peer: PeerId(EU),
        report: roomy(),
        as_of: late,
        round_trip: Duration::from_millis(90),
    });
    script.arrive(any(1));
    assert_eq!(script.forwarded(), []);
    assert_eq!(script.peer(EU).availability, PeerAvailability::NoReplica);
}

#[test]
fn queued_requests_leave_oldest_first_when_a_peer_gets_free_capacity() {
    let mut script = full(1);
    script.peer_says(EU, no_free_capacity());
    script.peer_says(ASIA, no_free_capacity());
    script.arrive(any(1));
    script.arrive(request(2, 2, &[2]));
    script.arrive(any(3));
    script.arrive(any(4));
    assert_eq!(script.effects(), []);
    script.sleep(100);
    let one = PeerReport {
        queue: script_tau(),
        ..free_capacity(1)
    };
    script.peer_says(EU, one);
    let went = script.forwardings();
    assert_eq!(went.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(went[0].1.queued_for, Duration::from_millis(100));
    script.finish(taken(0));
    assert_eq!(script.sent(), [(2, 0)], "and here it goes on in order");
}

#[test]
fn a_local_replica_serves_queued_requests_before_a_peer() {
    let mut script = full(1);
    script.peer_says(EU, no_free_capacity());
    script.peer_says(ASIA, no_free_capacity());
    script.arrive(any(1));
    script.finish(taken(0));
    assert_eq!(script.sent(), [(1, 0)]);
    script.peer_says(EU, roomy());
    assert_eq!(script.effects(), []);
}

#[test]
fn a_lost_peer_gets_no_request_until_its_next_report() {
    let mut script = full(1);
    script.event(Event::PeerLost(PeerId(EU)));
    script.arrive(any(1));
    assert_eq!(script.forwarded(), [(1, ASIA)]);
    script.sleep(600);
    assert_eq!(script.peer(ASIA).availability, PeerAvailability::Stale);
    script.arrive(any(2));
    assert_eq!(script.forwarded(), []);
    script.peer_says(EU, roomy());
    assert_eq!(script.forwarded(), [(2, EU)]);
}

#[test]
fn a_report_expires_without_an_event() {
    let mut script = full(1);
    let due = script.router.poll_timeout().unwrap();
    assert_eq!(due.since(script.now), Duration::from_millis(600));
    script.sleep(600);
    let peer = script.router.peers(script.now).next().unwrap();
    assert_eq!(peer.availability, PeerAvailability::Stale);
}

#[test]
fn a_forwarded_request_is_never_forwarded_again_and_waits_in_a_short_queue_only() {
    let mut script = full(1);
    for id in 0..u64::from(script_tau()) + 1 {
        script.arrive(forwarded_request(id, id, &[id]));
    }
    assert_eq!(script.effects(), []);
    script.arrive(forwarded_request(9, 9, &[9]));
    assert_eq!(script.rejects(), [(9, RejectReason::RegionFull)]);
    script.arrive(request(10, 10, &[10]));
    assert_eq!(script.effects(), [], "its own may still wait");
    script.finish(taken(0));
    assert_eq!(script.sent(), [(0, 0)]);
    let counters = script.stats().counters;
    assert_eq!(
        (counters.forwarded_in, counters.forwarded_in_rejected),
        (6, 1)
    );
}

#[test]
fn a_forwarded_request_with_a_free_replica_ignores_the_length_of_the_queue() {
    let mut script = full(2);
    for id in 0..10 {
        let pinned = Request {
            subset: Some(Box::new([ReplicaId(0)])),
            ..request(id, id, &[id])
        };
        script.arrive(pinned);
    }
    script.finish(taken(1));
    script.arrive(forwarded_request(10, 10, &[10]));
    assert_eq!(script.sent(), [(10, 1)]);
}

#[test]
fn misses_at_a_peer_are_counted_and_change_nothing() {
    let mut script = full(1);
    let blocks: Vec<u64> = (0..20).collect();
    for id in 0..6 {
        script.peer_at(EU, 90, roomy());
        script.peer_at(ASIA, 200, roomy());
        script.arrive(traveller(id, 1, &blocks, &[]));
        let went = script.forwardings();
        let expected = if id == 0 { 0 } else { 20 * 256 };
        assert_eq!(went[0].1.matched_bytes, expected, "{id}");
        script.finish_as(id, End::Answered, ServedBy::Unreported, Some((1_280, 0)));
        script.sleep(1);
    }
    let counters = script.stats().counters;
    assert_eq!(counters.forwarded_prompt_tokens, 6 * 1_280);
    assert_eq!(counters.forwarded_cached_tokens, 0);
}

#[test]
fn a_region_without_replicas_forwards_every_request() {
    let mut script = region(0);
    script.arrive(any(1));
    assert_eq!(script.forwarded(), [(1, EU)]);
    script.peer_says(EU, no_free_capacity());
    script.peer_says(ASIA, no_free_capacity());
    script.arrive(any(2));
    assert_eq!(
        script.effects(),
        [],
        "a peer has replicas: it waits for one"
    );
    script.arrive(request(3, 3, &[3]));
    assert_eq!(script.rejects(), [(3, RejectReason::NoReplica)]);
    let none = PeerReport::default();
    script.peer_says(EU, none);
    script.peer_says(ASIA, none);
    script.arrive(any(4));
    assert_eq!(script.rejects(), [(4, RejectReason::NoReplica)]);
}

#[test]
fn a_full_queue_rejects_only_requests_that_cannot_be_forwarded() {
    let tight = RouterConfig {
        queue: QueueLimits {
            length_max: 1,
            wait_max: Duration::from_secs(5),
            ..QueueLimits::default()
        },
        ..config()
    };
    let mut script = full_with(tight, 1);
    script.arrive(request(1, 1, &[1]));
    script.arrive(request(2, 2, &[2]));
    assert_eq!(script.rejects(), [(2, RejectReason::QueueFull)]);
    script.arrive(any(3));
    assert_eq!(script.forwarded(), [(3, EU)]);
}

#[test]
fn an_aborted_forwarded_request_is_removed() {
    let mut script = full(1);
    script.arrive(any(1));
    assert_eq!(script.stats().forwarded_in_flight, 1);
    assert_eq!(script.peer(EU).outstanding, 1);
    script.abort(1);
    assert_eq!(script.stats().forwarded_in_flight, 0);
    assert_eq!(script.peer(EU).outstanding, 0);
    script.finish(1);
    assert_eq!(script.stats().counters.finished_ok, 0);
}

#[test]
fn a_peer_that_is_removed_and_returns_under_another_id_starts_anew() {
    const RETURNED: u16 = 3;
    let mut script = full(1);
    script.arrive(traveller(1, 1, &[1, 2], &[]));
    assert_eq!(script.forwarded(), [(1, EU)]);
    script.event(Event::PeerRemoved(PeerId(EU)));
    script.add_peer(RETURNED);
    let availability = script.peer(RETURNED).availability;
    assert_eq!(availability, PeerAvailability::NeverHeard);
    script.peer_at(RETURNED, 90, roomy());
    script.finish(1);
    assert_eq!(script.peer(RETURNED).outstanding, 0);
    script.arrive(traveller(2, 1, &[1, 2, 3], &[]));
    assert_eq!(script.forwardings()[0].1.matched_bytes, 0);
}

#[test]
fn an_explanation_names_the_region_and_its_match() {
    let mut script = full(1);
    script.arrive(traveller(1, 1, &[1, 2], &[]));
    script.effects();
    let explained = script
        .router
        .explain(script.now, &traveller(2, 1, &[1, 2, 3], &[]));
    let reason = Reason::Prefix;
    let peer = PeerId(EU);
    assert_eq!(explained.choice, Choice::Forward { peer, reason });
    let matched: Vec<u32> = explained.peers.iter().map(|p| p.matched_bytes).collect();
    assert_eq!(matched, [512, 0]);
    let ttft = explained.peers[1].estimated_ttft;
    assert_eq!(ttft, Some(Duration::from_millis(200)));
    let stays = script.router.explain(script.now, &request(3, 1, &[1]));
    assert!(stays.peers.is_empty());
    assert!(matches!(stays.choice, Choice::Wait { .. }));
}

#[test]
fn a_report_holds_the_load_of_the_region() {
    let mut script = Script::new(
        RouterConfig {
            push: Push::Outstanding { max: 5 },
            ..RouterConfig::default()
        },
        2,
    );
    let report = script.router.report();
    assert_eq!((report.available, report.replicas), (2, 2));
    assert_eq!((report.free_capacity, report.queue), (10, 0));
    assert!(report.drain_per_s.abs() < f32::EPSILON, "not known yet");
    for id in 0..12 {
        script.arrive(request(id, id, &[id]));
    }
    script.sleep(2_000);
    script.finish(0);
    script.finish(1);
    script.finish(2);
    let report = script.router.report();
    assert_eq!((report.free_capacity, report.queue), (1, 0));
    // Nine are at it and there is room for one more; each takes two seconds.
    assert!((report.drain_per_s - 5.0).abs() < 0.01, "{report:?}");
}

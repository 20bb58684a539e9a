//! Two services of one region share their placements.

use crate::support::script::Script;
use crate::support::siblings::{pair, placements, share};
use crate::support::{BLOCK_BYTES, request, traveller};
use isotherm_policies::PolicyName;
use isotherm_router::{
    Availability, Event, PeerReport, Placement, Push, RegionRules, ReplicaId, RouterConfig, Target,
};

fn config() -> RouterConfig {
    RouterConfig {
        policy: PolicyName::PrefixTree.into(),
        push: Push::Outstanding { max: 100 },
        region: RegionRules {
            share: true,
            ..RouterConfig::default().region
        },
        ..RouterConfig::default()
    }
}

#[test]
fn placements_are_shared_only_if_configured() {
    let mut script = Script::new(RouterConfig::default(), 2);
    script.arrive(request(1, 1, &[1, 2]));
    assert_eq!(placements(&mut script), []);
}

#[test]
fn only_the_new_blocks_of_a_prompt_are_shared() {
    let mut script = Script::new(config(), 1);
    script.arrive(request(1, 1, &[1, 2]));
    script.arrive(request(2, 1, &[1, 2, 3, 4, 5]));
    let shared = placements(&mut script);
    let lengths: Vec<usize> = shared
        .iter()
        .map(|placement| placement.blocks.len())
        .collect();
    assert_eq!(lengths, [2, 3]);
    assert_eq!(shared[0].parent, None);
    assert_eq!(shared[1].parent, shared[0].blocks.last().copied());
    assert_eq!(shared[1].target, Target::Replica(ReplicaId(0)));
    assert_eq!(script.stats().counters.placements_sent, 2);
}

#[test]
fn shared_placements_give_the_same_decisions() {
    let [mut a, mut b] = pair(&config(), 8);
    // Conversations whose turns reach the two services in turn.
    for turn in 1..6_u64 {
        for session in 0..40_u64 {
            let blocks: Vec<u64> = (0..4 * turn).map(|i| session << 8 | i).collect();
            let id = turn << 8 | session;
            let [here, there] = if (turn + session) % 2 == 0 {
                [&mut a, &mut b]
            } else {
                [&mut b, &mut a]
            };
            here.arrive(request(id, session, &blocks));
            let (_, decision) = here.dispatches().remove(0);
            let known = u32::try_from(4 * (turn - 1)).unwrap() * BLOCK_BYTES;
            assert_eq!(decision.matched_bytes, known, "turn {turn} of {session}");
            share(here, there);
            here.finish(id);
        }
    }
    assert_eq!(a.stats().index.nodes, b.stats().index.nodes);
    assert_eq!(a.stats().index.entries, b.stats().index.entries);
    assert_eq!(a.stats().counters.placements_unattached, 0);
    assert_eq!(b.stats().counters.placements_received, 100);
}

#[test]
fn a_prefix_of_another_replica_is_completed() {
    let [mut a, mut b] = pair(&config(), 2);
    a.arrive(request(1, 1, &[1, 2]));
    let first = a.sent()[0].1;
    let shared = placements(&mut a);
    // The other service heard that the other replica has it, and only then what goes on below.
    let other = Target::Replica(ReplicaId(1 - first));
    b.event(Event::Shared(Placement {
        target: other,
        ..shared[0].clone()
    }));
    a.arrive(request(2, 1, &[1, 2, 3]));
    assert_eq!(a.sent(), [(2, first)]);
    share(&mut a, &mut b);
    b.arrive(request(3, 1, &[1, 2, 3]));
    let (_, decision) = b.dispatches().remove(0);
    assert_eq!(decision.replica, ReplicaId(first));
    assert_eq!(decision.matched_bytes, 3 * BLOCK_BYTES);
    assert_eq!(b.stats().index.entries, 5, "two at one, three at the other");
}

#[test]
fn blocks_behind_an_unknown_prefix_are_counted_and_ignored() {
    let [mut a, mut b] = pair(&config(), 1);
    a.arrive(request(1, 1, &[1, 2]));
    drop(placements(&mut a));
    a.arrive(request(2, 1, &[1, 2, 3]));
    share(&mut a, &mut b);
    assert_eq!(b.stats().counters.placements_unattached, 1);
    assert_eq!(b.stats().index.nodes, 0);
    b.arrive(request(3, 1, &[1, 2, 3]));
    a.arrive(request(4, 1, &[1, 2, 3, 4]));
    share(&mut a, &mut b);
    assert_eq!(b.stats().index.nodes, 4, "its own request brought the rest");
}

#[test]
fn a_placement_on_an_unknown_replica_is_counted() {
    let [mut a, mut b] = pair(&config(), 1);
    a.add(1);
    a.arrive(request(1, 1, &[1]));
    a.arrive(request(2, 2, &[2]));
    share(&mut a, &mut b);
    assert_eq!(b.stats().counters.placements_unattached, 1);
}

#[test]
fn placements_beyond_the_limit_are_dropped_oldest_first() {
    let mut script = Script::new(config(), 1);
    for id in 0..5_000 {
        script.arrive(request(id, id, &[id]));
        script.finish(id);
    }
    let shared = placements(&mut script);
    assert_eq!(shared.len(), 4_096);
    assert_eq!(script.stats().counters.placements_dropped, 5_000 - 4_096);
    script.arrive(request(9_000, 1, &[4_999, 1]));
    let parent = placements(&mut script)[0].parent;
    assert_eq!(parent, shared.last().unwrap().blocks.last().copied());
}

#[test]
fn requests_of_a_sibling_count_until_the_next_probe() {
    let pending = RouterConfig {
        push: Push::Pending,
        ..config()
    };
    let [mut a, mut b] = pair(&pending, 1);
    for id in 1..=8 {
        a.arrive(request(id, id, &[id]));
    }
    share(&mut a, &mut b);
    assert_eq!(b.availability(0), Availability::NoHeadroom);
    b.arrive(request(9, 9, &[9]));
    assert_eq!(b.sent(), []);
    b.sleep(100);
    b.probe(0, 0);
    assert_eq!(b.sent(), [(9, 0)]);
}

#[test]
fn two_services_together_send_a_replica_no_more_than_it_admits() {
    let pending = RouterConfig {
        push: Push::Pending,
        ..config()
    };
    let mut both = pair(&pending, 4);
    for i in 0..100 {
        both[i % 2].arrive(request(i as u64, i as u64, &[i as u64]));
        let [a, b] = &mut both;
        share(a, b);
        share(b, a);
    }
    let [a, b] = &mut both;
    assert_eq!(
        a.sent().len() + b.sent().len(),
        4 * 8,
        "eight each between two probes"
    );
}

#[test]
fn requests_that_a_sibling_forwards_reduce_the_peers_free_capacity_and_extend_its_index() {
    let [mut a, mut b] = pair(&config(), 0);
    let report = PeerReport {
        available: 1,
        replicas: 1,
        free_capacity: 5,
        queue: 0,
        drain_per_s: 1.0,
        ..PeerReport::default()
    };
    for script in [&mut a, &mut b] {
        script.add_peer(1);
        script.add_peer(2);
        script.peer_at(1, 50, report);
        script.peer_at(2, 80, report);
        script.sleep(1);
    }
    a.arrive(traveller(1, 1, &[1, 2], &[]));
    assert_eq!(a.forwarded(), [(1, 1)]);
    share(&mut a, &mut b);
    assert_eq!(b.peer(1).forwarded_since, 1);
    assert_eq!(b.peer(1).outstanding, 0);
    b.arrive(traveller(2, 1, &[1, 2, 3], &[]));
    let went = b.forwardings();
    assert_eq!(went[0].1.peer.0, 1);
    assert_eq!(went[0].1.matched_bytes, 2 * BLOCK_BYTES);
}

//! Adoption, one scenario per test. `faults.rs` runs random ones.
#![allow(
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests, with a world that is a module"
)]

mod world;

use isotherm_regions::{AdoptionBlocker, Event};
use world::{Fault, MS, Nanos, World};

const SECOND: Nanos = 1_000 * MS;
/// Detection (3 intervals), proof (7 intervals with two dials), and the round trips between.
const SOON: Nanos = 3 * SECOND;
/// As `SOON`, where the host of the dead service does not refuse connections, so that each dial takes two seconds.
const LATER: Nanos = 9 * SECOND;

/// Regions in a row, each 10 ms from the next, after a warm-up.
fn row(count: usize) -> World {
    let mut world = World::new(7, count);
    for a in 0..count {
        for b in 0..count {
            world.delay[a][b] = a.abs_diff(b) as Nanos * 10 * MS;
        }
    }
    world.noisy = false;
    world.give_back = core::time::Duration::from_secs(4);
    for at in 0..count {
        // A restart orders the successor lists by these distances.
        world.kill(at);
        world.start(at);
    }
    world.run_until(15 * SECOND);
    world
}

fn wait(world: &mut World, by: Nanos) {
    let until = world.now + by;
    world.run_until(until);
}

fn service(at: usize) -> Fault {
    Fault::Service { at, silent: false }
}

#[test]
fn the_nearest_region_adopts_and_returns_the_replicas() {
    let mut world = row(4);
    world.strike(&service(3));
    wait(&mut world, SOON);
    assert_eq!(world.held(2), [3], "region 2 is the nearest to region 3");
    world.repair(&service(3));
    wait(&mut world, 3 * SECOND);
    assert_eq!(world.held(2), [3], "not yet");
    wait(&mut world, 3 * SECOND);
    assert_eq!(world.held(2), []);
}

#[test]
fn a_region_without_envoy_is_adopted_until_its_envoy_returns() {
    let mut world = row(3);
    world.strike(&Fault::Gateway { at: 0 });
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [0]);
    world.repair(&Fault::Gateway { at: 0 });
    wait(&mut world, 6 * SECOND);
    assert_eq!(world.held(1), []);
}

#[test]
fn the_next_region_adopts_when_the_nearest_has_no_envoy() {
    let mut world = row(3);
    world.strike(&Fault::Gateway { at: 1 });
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!(world.held(0), [1, 2]);
    assert_eq!(world.held(1), []);
}

#[test]
fn the_last_of_three_regions_adopts_both_others() {
    let mut world = row(3);
    world.strike(&service(0));
    world.strike(&Fault::Both { at: 1 });
    wait(&mut world, SOON);
    assert_eq!(world.held(2), [0, 1]);
}

#[test]
fn another_region_adopts_when_the_adopter_dies() {
    let mut world = row(3);
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [2]);
    world.strike(&service(1));
    wait(&mut world, SOON);
    assert_eq!(world.held(0), [1, 2]);
    // The nearest region returns, and does not take the replicas over from the adopter.
    world.repair(&service(1));
    wait(&mut world, 10 * SECOND);
    assert_eq!(world.held(0), [2]);
    assert_eq!(world.held(1), []);
}

#[test]
fn a_region_without_replicas_is_not_adopted_and_blocks_no_adoption() {
    let mut world = row(4);
    // The last successor of region 0 is gone. Region 1 is ahead of it and need not know whether it lives.
    world.strike(&Fault::Region { at: 3 });
    wait(&mut world, 2 * SECOND);
    world.strike(&service(0));
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [0]);
    assert!((0..3).all(|at| !world.held(at).contains(&3)));
}

#[test]
fn of_two_partitioned_regions_only_the_first_successor_adopts() {
    let mut world = row(3);
    world.strike(&Fault::Partition { a: 0, b: 1 });
    world.strike(&service(2));
    wait(&mut world, 10 * SECOND);
    assert_eq!(
        world.held(1),
        [2],
        "first in the lists: it need not hear region 0"
    );
    assert_eq!(world.held(0), []);
    world.repair(&Fault::Partition { a: 0, b: 1 });
    wait(&mut world, 10 * SECOND);
    assert_eq!((world.held(0), world.held(1)), (vec![], vec![2]));
}

#[test]
fn a_partition_proves_no_death() {
    let mut world = row(3);
    world.strike(&Fault::Partition { a: 0, b: 1 });
    world.strike(&Fault::Partition { a: 1, b: 2 });
    wait(&mut world, 20 * SECOND);
    assert!((0..3).all(|at| world.held(at).is_empty()));
}

#[test]
fn a_wrong_certificate_proves_no_death() {
    let mut world = row(3);
    world.strike(&Fault::Certificate { at: 2 });
    wait(&mut world, 20 * SECOND);
    assert!((0..3).all(|at| world.held(at).is_empty()));
}

#[test]
fn a_region_that_sends_pings_is_alive_even_if_no_peer_can_dial_it() {
    let mut world = row(3);
    world.regions[2].filtered = true;
    world.dial_again(2);
    wait(&mut world, 20 * SECOND);
    assert!((0..3).all(|at| world.held(at).is_empty()));
    // It is dead once it is silent too.
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [2]);
}

#[test]
fn a_suspended_service_releases_its_adoptions_when_it_resumes() {
    let mut world = row(3);
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [2]);
    world.strike(&Fault::Freeze { at: 1 });
    wait(&mut world, LATER);
    assert_eq!(world.held(0), [1, 2]);
    world.wake(1);
    assert_eq!(world.held(1), [], "before it does anything else");
    wait(&mut world, SOON);
    assert_eq!(
        world.held(0),
        [1, 2],
        "it gives region 1 back when it has been well for a while"
    );
    assert_eq!(world.held(1), []);
}

#[test]
fn a_restarted_service_remembers_the_replicas_of_a_dead_region() {
    let mut world = row(3);
    world.strike(&service(2));
    world.strike(&service(1));
    world.strike(&service(0));
    wait(&mut world, 2 * SECOND);
    world.repair(&service(0));
    wait(&mut world, 2 * SOON);
    assert_eq!(world.held(0), [1, 2]);
}

#[test]
fn the_operator_can_declare_an_unaccounted_region_lost() {
    let mut world = row(3);
    // Region 1 disappears with all that could prove its death, then region 2 dies. Region 1 might have adopted it.
    world.strike(&Fault::Region { at: 1 });
    world.strike(&service(2));
    wait(&mut world, LATER);
    assert_eq!(world.held(0), []);
    let local = world.local(0, world.now);
    let status = world.regions[0]
        .service
        .as_ref()
        .unwrap()
        .regions
        .status(local);
    assert!(
        matches!(&status.peers[1].adoption_blocker, Some(AdoptionBlocker::Unaccounted(name)) if name.as_str() == "r1")
            || status.peers[1].adoption_blocker == Some(AdoptionBlocker::Yielded),
        "{:?}",
        status.peers[1].adoption_blocker
    );
    let (peer, lost) = (World::id(0, 1), true);
    world.call(
        0,
        Event::DeclaredLost {
            peer,
            is_lost: lost,
        },
    );
    wait(&mut world, SECOND);
    assert_eq!(world.held(0), [2]);
}

#[test]
fn regions_whose_successor_lists_disagree_request_the_replicas() {
    let mut world = row(3);
    // Region 0 comes much nearer to region 2 than region 1. The new list of region 2 puts it first; the list before did not.
    world.delay[0][2] = MS;
    world.delay[2][0] = MS;
    let name = world.regions[2].name.clone();
    let is_unsettled = |world: &World, at: usize| {
        let record = &world.regions[at].disk[&name];
        record.successors.previous.as_ref() != Some(&record.successors.order)
    };
    while !(is_unsettled(&world, 0) && is_unsettled(&world, 1)) {
        wait(&mut world, 10 * MS);
        assert!(world.now < 120 * SECOND, "region 2 never changes its list");
    }
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!((world.held(0), world.held(1)), (vec![2], vec![]));
}

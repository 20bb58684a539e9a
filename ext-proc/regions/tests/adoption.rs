//! Who adopts whom, one story at a time. Random ones are in `regions.rs`.
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
/// Detection (3 intervals), proof (7 intervals, with two attempts to dial), and the round trips between.
const SOON: Nanos = 3 * SECOND;
/// Where the dead one does not even refuse: each attempt to dial takes two seconds.
const LATER: Nanos = 9 * SECOND;

/// Regions in a row, each 10 ms from the next, that have run for a while.
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
        // So that their lists of heirs are of these distances from the start.
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
fn the_nearest_adopts_and_gives_back() {
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
fn a_region_whose_envoy_died_is_adopted_and_comes_back() {
    let mut world = row(3);
    world.strike(&Fault::Gateway { at: 0 });
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [0]);
    world.repair(&Fault::Gateway { at: 0 });
    wait(&mut world, 6 * SECOND);
    assert_eq!(world.held(1), []);
}

#[test]
fn the_next_one_adopts_when_the_nearest_has_no_envoy() {
    let mut world = row(3);
    world.strike(&Fault::Gateway { at: 1 });
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!(world.held(0), [1, 2]);
    assert_eq!(world.held(1), []);
}

#[test]
fn the_last_of_three_adopts_both_others() {
    let mut world = row(3);
    world.strike(&service(0));
    world.strike(&Fault::Both { at: 1 });
    wait(&mut world, SOON);
    assert_eq!(world.held(2), [0, 1]);
}

#[test]
fn an_adopter_that_dies_is_succeeded() {
    let mut world = row(3);
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [2]);
    world.strike(&service(1));
    wait(&mut world, SOON);
    assert_eq!(world.held(0), [1, 2]);
    // The nearest comes back: what it had is in good hands until the owner is well.
    world.repair(&service(1));
    wait(&mut world, 10 * SECOND);
    assert_eq!(world.held(0), [2]);
    assert_eq!(world.held(1), []);
}

#[test]
fn a_region_that_is_gone_with_all_its_replicas_is_not_adopted_and_keeps_nobody_from_it() {
    let mut world = row(4);
    // The farthest heir of region 0 is gone: region 1 need not know whether it lives behind a partition.
    world.strike(&Fault::Region { at: 3 });
    wait(&mut world, 2 * SECOND);
    world.strike(&service(0));
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [0]);
    assert!((0..3).all(|at| !world.held(at).contains(&3)));
}

#[test]
fn of_two_that_do_not_hear_each_other_only_the_first_heir_adopts() {
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
fn a_partition_is_no_death() {
    let mut world = row(3);
    world.strike(&Fault::Partition { a: 0, b: 1 });
    world.strike(&Fault::Partition { a: 1, b: 2 });
    wait(&mut world, 20 * SECOND);
    assert!((0..3).all(|at| world.held(at).is_empty()));
}

#[test]
fn a_wrong_certificate_is_no_death() {
    let mut world = row(3);
    world.strike(&Fault::Certificate { at: 2 });
    wait(&mut world, 20 * SECOND);
    assert!((0..3).all(|at| world.held(at).is_empty()));
}

#[test]
fn a_region_that_speaks_is_not_dead_though_nobody_can_dial_it() {
    let mut world = row(3);
    world.regions[2].filtered = true;
    world.dial_again(2);
    wait(&mut world, 20 * SECOND);
    assert!((0..3).all(|at| world.held(at).is_empty()));
    // It is, once it is silent too.
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!(world.held(1), [2]);
}

#[test]
fn a_service_that_stands_still_loses_what_it_held_and_knows_it_at_once() {
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
fn a_service_that_starts_again_remembers_the_replicas_of_a_dead_region() {
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
fn somebody_unknown_in_the_way_is_ruled_out_by_the_operator() {
    let mut world = row(3);
    // Region 1 goes with everything that could prove its death, then region 2 dies: region 1 might hold it.
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
fn regions_whose_lists_disagree_ask_each_other() {
    let mut world = row(3);
    // Region 0 comes much nearer to region 2 than region 1 is. The new list of region 2 puts it first; the one before did not.
    world.delay[0][2] = MS;
    world.delay[2][0] = MS;
    let name = world.regions[2].name.clone();
    let unsure = |world: &World, at: usize| {
        let record = &world.regions[at].disk[&name];
        record.successors.previous.as_ref() != Some(&record.successors.order)
    };
    while !(unsure(&world, 0) && unsure(&world, 1)) {
        wait(&mut world, 10 * MS);
        assert!(world.now < 120 * SECOND, "region 2 never changes its list");
    }
    world.strike(&service(2));
    wait(&mut world, SOON);
    assert_eq!((world.held(0), world.held(1)), (vec![2], vec![]));
}

//! Ownership by leases under faults: lost and late messages, partitions between regions and from the store, services that stop
//! for longer than a lease, clocks a tenth fast or slow, restarts of services and of the store.
//!
//! `ISOTHERM_SEED` runs one schedule; `ISOTHERM_SCHEDULES` sets their number.
#![allow(
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests; the environment may say how long to run"
)]

mod random;
mod requests;
#[path = "../../../router/tests/router/support/mod.rs"]
mod support;
mod world;

use random::Random;
use requests::Traffic;
use world::{GIVE_BACK, LEASE, MS, Mutant, World};

const SCHEDULES: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs one schedule of faults, heals everything, and returns the rule that was broken.
fn schedule(seed: u64, mutant: Mutant) -> Result<u64, String> {
    let mut random = Random(seed);
    let regions = random.between(2, 5);
    let mut world = World::new(seed, usize::try_from(regions).unwrap(), mutant);
    world.run(2 * LEASE)?;
    for _ in 0..random.between(3, 10) {
        world.fault(&mut random);
        let pause = random.between(LEASE / 20, 2 * LEASE);
        world.run(pause)?;
    }
    world.heal();
    // A stop may still last three leases, and a lease that was taken in them has to end.
    world.run(6 * LEASE + GIVE_BACK)?;
    world.check_returned()?;
    Ok(world.taken)
}

#[test]
fn no_live_lease_is_taken_and_everything_returns() {
    if let Some(seed) = number("ISOTHERM_SEED") {
        schedule(seed, Mutant::None).unwrap_or_else(|broken| panic!("{broken}"));
        return;
    }
    let schedules = number("ISOTHERM_SCHEDULES").unwrap_or(SCHEDULES);
    let mut taken = 0;
    for seed in 1..=schedules {
        let run = schedule(seed, Mutant::None);
        taken += run.unwrap_or_else(|broken| panic!("ISOTHERM_SEED={seed}: {broken}"));
    }
    eprintln!("{schedules} schedules, {taken} leases taken");
    assert!(
        taken > schedules / 2,
        "the schedules take few leases: {taken}"
    );
}

/// Runs requests through one schedule of faults.
fn schedule_of_requests(seed: u64) -> Result<Traffic, String> {
    let mut random = Random(seed);
    let regions = usize::try_from(random.between(2, 4)).unwrap();
    let mut traffic = Traffic::new(World::new(seed, regions, Mutant::None), seed);
    traffic.run(2 * LEASE, 3)?;
    for _ in 0..random.between(2, 6) {
        traffic.world.fault(&mut random);
        traffic.run(random.between(LEASE / 20, 2 * LEASE), 3)?;
    }
    traffic.world.heal();
    traffic.finish()?;
    Ok(traffic)
}

#[test]
fn every_request_gets_an_answer_or_a_reason() {
    let (first, schedules) = match number("ISOTHERM_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("ISOTHERM_SCHEDULES").unwrap_or(SCHEDULES)),
    };
    let [mut forwarded, mut returned, mut leased] = [0; 3];
    for seed in first..first + schedules {
        let run = schedule_of_requests(seed);
        let ends = run
            .unwrap_or_else(|broken| panic!("ISOTHERM_SEED={seed}: {broken}"))
            .ends;
        forwarded += ends.forwarded;
        returned += ends.returned;
        leased += ends.leased;
    }
    eprintln!(
        "{schedules} schedules: {forwarded} forwarded, {returned} returned, {leased} on leased replicas"
    );
    assert!(
        schedules < 100 || forwarded.min(returned).min(leased) > schedules,
        "the faults are mild"
    );
}

/// Returns the first rule that some schedule breaks with a mutant.
fn first_broken(mutant: Mutant) -> Option<String> {
    (1..=SCHEDULES).find_map(|seed| schedule(seed, mutant).err())
}

#[test]
fn a_mutant_that_ignores_the_revision_is_caught() {
    let broken = first_broken(Mutant::IgnoresRevision).unwrap();
    assert!(broken.contains("live lease"), "{broken}");
}

#[test]
fn a_mutant_that_trusts_the_wall_clock_is_caught() {
    let broken = first_broken(Mutant::TrustsWallClock).unwrap();
    assert!(broken.contains("live lease"), "{broken}");
}

#[test]
fn the_nearest_region_takes_a_dead_regions_lease_in_time_and_names_a_new_revision() {
    let mut world = World::new(7, 3, Mutant::None);
    world.run(2 * LEASE).unwrap();
    let before = world.revision(0);
    world.kill(0);
    world.run(LEASE + LEASE / 5 + 100 * MS).unwrap();
    // Region 1 is nearer to region 0 than region 2 is.
    assert_eq!(world.holder(0), Some(1));
    assert!(world.owns(1, 0) && !world.owns(2, 0));
    assert_eq!(world.revision(0), before + 1);
    world.start(0);
    world.run(LEASE / 5).unwrap();
    assert!(
        world.is_suspended(0),
        "the holder decides until it gives back"
    );
    world.run(GIVE_BACK + LEASE / 2).unwrap();
    assert_eq!(world.holder(0), Some(0));
    assert!(!world.is_suspended(0) && !world.owns(1, 0));
    assert_eq!(world.revision(0), before + 2);
}

#[test]
fn a_region_that_dies_soon_after_its_return_does_not_get_its_lease_back() {
    let mut world = World::new(7, 3, Mutant::None);
    world.run(2 * LEASE).unwrap();
    world.kill(0);
    world.run(2 * LEASE).unwrap();
    assert_eq!(world.holder(0), Some(1));
    world.start(0);
    for _ in 0..100 {
        if world.holder(0) != Some(0) {
            world.run(LEASE / 50).unwrap();
        }
    }
    assert_eq!(world.holder(0), Some(0));
    let before = world.revision(0);
    world.set_gateway(0, false);
    world.run(LEASE / 2).unwrap();
    assert!(world.owns(1, 0));
    assert_eq!(world.revision(0), before + 2, "given up, and taken once");
}

#[test]
fn the_next_region_takes_the_lease_when_the_nearest_has_no_gateway() {
    let mut world = World::new(8, 3, Mutant::None);
    world.run(2 * LEASE).unwrap();
    world.set_gateway(1, false);
    world.kill(0);
    world.run(LEASE + LEASE / 2).unwrap();
    assert_eq!(world.holder(0), Some(2));
    // Region 2 also has the replicas of region 1, whose own clients have no gateway.
    assert!(world.owns(2, 0) && world.owns(2, 1));
}

#[test]
fn a_region_without_the_store_keeps_its_own_replicas_and_drops_others() {
    let mut world = World::new(9, 2, Mutant::None);
    world.run(2 * LEASE).unwrap();
    world.kill(0);
    world.run(2 * LEASE).unwrap();
    assert!(world.owns(1, 0));
    world.set_store(false);
    world.run(LEASE / 2).unwrap();
    assert!(world.owns(1, 0), "its lease has not ended");
    world.run(LEASE / 2).unwrap();
    assert!(!world.owns(1, 0) && !world.is_suspended(1));
    world.set_store(true);
    world.run(LEASE / 2).unwrap();
    assert!(world.owns(1, 0));
}

#[test]
fn the_nearest_region_keeps_a_lease_through_a_failure_of_the_store() {
    let mut tried = 0;
    for seed in 0..50 {
        let mut world = World::new(seed, 3, Mutant::None);
        world.run(2 * LEASE).unwrap();
        world.kill(0);
        world.run(2 * LEASE).unwrap();
        if world.holder(0) != Some(1) {
            // The clock of region 2 runs so much faster that it came first.
            continue;
        }
        tried += 1;
        let before = world.revision(0);
        world.set_store(false);
        world.run(4 * LEASE).unwrap();
        world.set_store(true);
        world.run(LEASE / 2).unwrap();
        assert!(world.owns(1, 0), "seed {seed}");
        assert_eq!(world.revision(0), before, "seed {seed}");
    }
    assert!(
        tried > 45,
        "the nearest region came first {tried} times of 50"
    );
}

#[test]
fn a_region_that_lost_the_store_and_is_heard_keeps_its_lease() {
    let mut world = World::new(10, 3, Mutant::None);
    world.run(2 * LEASE).unwrap();
    world.cut_from_store(0, true);
    world.run(4 * LEASE).unwrap();
    assert_eq!(world.holder(0), Some(0));
    assert!(!world.owns(1, 0) && !world.owns(2, 0));
}

#[test]
fn a_region_that_lost_the_store_keeps_its_lease_through_late_heartbeats() {
    let mut world = World::new(10, 3, Mutant::None);
    world.run(2 * LEASE).unwrap();
    world.cut_from_store(0, true);
    world.run(4 * LEASE).unwrap();
    world.isolate(0, true);
    world.run(LEASE * 2 / 5).unwrap();
    world.isolate(0, false);
    world.run(LEASE).unwrap();
    assert_eq!(world.holder(0), Some(0));
    world.isolate(0, true);
    world.run(LEASE).unwrap();
    assert!(world.owns(1, 0), "no region hears it for half a lease");
}

//! Random faults over regions in virtual time, with the adoption rule checked at every instant.
//!
//! `ISOTHERM_SEED` runs one schedule of each test; `ISOTHERM_SCHEDULES` sets their number.
#![allow(
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may be told by its environment how long to run; its world is a module"
)]

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::{MS, Nanos, Random, World, Worst};

/// Schedules per test by default.
const SCHEDULES: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs schedules, and prints the seed of one that fails.
fn schedules(first: u64, run: impl Fn(&mut World), regions: impl Fn(&mut Random) -> usize) {
    let (first, count) = match number("ISOTHERM_SEED") {
        Some(seed) => (seed, 1),
        None => (first, number("ISOTHERM_SCHEDULES").unwrap_or(SCHEDULES)),
    };
    let mut worst = Worst::default();
    for seed in first..first + count {
        let mut random = Random(seed ^ 0x5eed);
        let mut world = World::new(seed, regions(&mut random));
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut world)));
        if let Err(panic) = result {
            println!("{}", world.log.join("\n"));
            world.print();
            println!(
                "failed at {} ms; run it again with ISOTHERM_SEED={seed}",
                world.now / MS
            );
            resume_unwind(panic);
        }
        worst.merge(&world.checks.worst);
    }
    println!("{count} schedules from {first}: {worst:?}");
}

/// Runs faults for half a minute, repairs everything, and expects the normal state within the bound.
fn breaks_and_heals(world: &mut World) {
    let quiet = world.random.between(0, 6_000) * MS;
    let end = quiet + world.random.between(5_000, 30_000) * MS;
    world.plan(quiet, end);
    world.run_until(end);
    world.heal();
    back_to_normal(world, end);
}

/// Runs faults around one region that every other region can adopt.
fn is_contested(world: &mut World) {
    let start = 6_000 * MS;
    let end = start + world.random.between(8_000, 30_000) * MS;
    world.contest(start, end);
    world.run_until(end);
    world.heal();
    back_to_normal(world, end);
}

fn back_to_normal(world: &mut World, healed: Nanos) {
    let give_back = u64::try_from(world.give_back.as_nanos()).unwrap() * 51 / 50;
    world.run_until(healed + world::REJOIN + give_back + 1_000 * MS);
    let count = world.regions.len();
    for at in 0..count {
        assert!(
            world.held(at).is_empty(),
            "r{at} still holds {:?}",
            world.held(at)
        );
        for of in (0..count).filter(|of| *of != at) {
            assert!(
                world.checks.heard_lately(at, of, world.now),
                "r{at} does not hear r{of}"
            );
        }
    }
}

#[test]
fn two_regions_survive_any_faults() {
    schedules(1_000_000, breaks_and_heals, |_| 2);
}

#[test]
fn three_regions_survive_any_faults() {
    schedules(2_000_000, breaks_and_heals, |_| 3);
}

#[test]
fn many_regions_survive_any_faults() {
    schedules(3_000_000, breaks_and_heals, |random| 4 + random.index(3));
}

#[test]
fn a_dead_region_is_contested() {
    schedules(5_000_000, is_contested, |random| 3 + random.index(3));
}

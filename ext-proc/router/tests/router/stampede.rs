//! Several regions at once, in virtual time: full regions share the free capacity of the others without a stampede.

use crate::support::world::{HEARTBEAT_MS, Outcome, Shape, TAU, WAY_MS, World};

const SERVICE_MS: u64 = 2_000;

/// Requests that a region's replicas hold, ten each.
const fn of(slots: u32) -> Shape {
    Shape {
        replicas: slots / 10,
        slots: 10,
        lies: false,
    }
}

/// Clients of each region send so many requests, evenly over this time.
fn run(shapes: &[Shape], requests: &[u64], over_ms: u64) -> Outcome {
    let mut world = World::new(shapes, SERVICE_MS);
    for (home, requests) in requests.iter().enumerate() {
        for i in 0..*requests {
            let conversation = (home as u64) << 32 | i;
            world.client(i * over_ms / requests, home, &[conversation; 4]);
        }
    }
    world.run()
}

#[test]
fn two_full_regions_do_not_stampede_a_third() {
    // 15 a second can be served at each; the third gets nothing of its own.
    let shapes = [of(30), of(30), of(30)];
    for (each, returned_percent) in [(600, 0), (660, 20), (750, 33)] {
        let outcome = run(&shapes, &[each, each, 0], 30_000);
        println!("{outcome:?}");
        assert_eq!(outcome.rejected, 0);
        let forwarded: u64 = outcome.forwarded.iter().sum();
        let returned: u64 = outcome.returned.iter().sum();
        let overflow = usize::try_from(2 * each).unwrap() - 900;
        assert!(
            outcome.served[2] >= overflow.min(430) * 9 / 10,
            "{outcome:?}"
        );
        let most = usize::try_from(TAU + 1).unwrap();
        assert!(
            outcome.longest_queue[2] <= most,
            "forwarded requests wait in a short queue"
        );
        assert!(
            returned * 100 <= returned_percent * forwarded,
            "few find that they were too many: {outcome:?}"
        );
        assert!(outcome.detours_max <= 2, "never twice to the same region");
    }
}

#[test]
fn forwarding_uses_the_free_capacity_of_other_regions() {
    let shapes = [of(30), of(30), of(30)];
    let together = run(&shapes, &[1_200, 400, 400], 30_000);
    let alone = run(&shapes[..1], &[1_200], 30_000);
    println!("{together:?}\n{alone:?}");
    // 1,200 requests need 80 s of one region; together they have 3 x 15 a second for 2,000.
    assert!(alone.ended_ms > 79_000 || alone.rejected > 0);
    assert!(together.ended_ms < 50_000, "{together:?}");
    assert_eq!(together.rejected, 0);
}

#[test]
fn a_region_with_free_capacity_forwards_nothing() {
    let shapes = [of(30), of(30)];
    let outcome = run(&shapes, &[300, 10], 30_000);
    assert_eq!(outcome.forwarded, [0, 0]);
    assert_eq!(outcome.answered, 310);
}

#[test]
fn full_regions_keep_their_requests() {
    let shapes = [of(20), of(20), of(20)];
    let outcome = run(&shapes, &[600, 600, 600], 30_000);
    println!("{outcome:?}");
    assert_eq!(outcome.answered + outcome.rejected, 1_800);
    let forwarded: u64 = outcome.forwarded.iter().sum();
    let returned: u64 = outcome.returned.iter().sum();
    assert!(returned <= forwarded);
    // What leaves for a place that has just been taken waits there, or comes back after one round trip.
    for (here, longest) in outcome.longest_queue.iter().enumerate() {
        assert!(*longest < 600, "{here}: {longest}");
    }
}

#[test]
fn a_misbehaving_peer_costs_a_few_detours_and_no_request() {
    let misbehaving = Shape {
        lies: true,
        ..of(30)
    };
    let outcome = run(&[of(30), misbehaving, of(30)], &[750, 0, 0], 30_000);
    println!("{outcome:?}");
    assert_eq!(outcome.rejected, 0);
    assert_eq!(outcome.answered, 750);
    assert_eq!(outcome.served[1], 0);
    assert!(outcome.served[2] > 200, "the honest one helps");
    assert!(outcome.returned[0] < 75, "{outcome:?}");
    let longest_detour = 2 * WAY_MS + HEARTBEAT_MS;
    assert!(outcome.ended_ms < 30_000 + 10 * SERVICE_MS + longest_detour);
}

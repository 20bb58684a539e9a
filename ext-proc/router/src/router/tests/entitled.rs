//! Tests of the bounds on waits for a particular replica.

use super::*;

fn at_s(s: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(s))
}

#[test]
fn a_request_may_wait_for_its_replica_though_many_go_to_another_one() {
    let mut router = affinity_pair();
    arrive(&mut router, 0, 0);
    arrive(&mut router, 1, 0);
    for id in 2..1_000 {
        arrive(&mut router, id, 1);
        assert!(dispatched(&mut router).contains(&(id, 1)), "{id}");
        finish(&mut router, id);
    }
    finish(&mut router, 0);
    assert_eq!(dispatched(&mut router), [(1, 0)]);
}

#[test]
fn a_request_that_has_waited_half_of_the_longest_wait_goes_to_a_free_replica() {
    let mut router = affinity_pair();
    arrive(&mut router, 0, 0);
    arrive(&mut router, 1, 0);
    dispatched(&mut router);
    let half = router.pool.config.queue.wait_max / 2;
    router.handle(at_s(14), Event::Arrived(request(2, 1)));
    assert_eq!(dispatched(&mut router), [(2, 1)]);
    finish_at(&mut router, at_s(14), 2);
    assert_eq!(dispatched(&mut router), []);
    router.handle(Time::ZERO.after(half), Event::Arrived(request(3, 1)));
    assert_eq!(
        dispatched(&mut router),
        [(1, 1)],
        "before the one that arrives"
    );
}

//! Tests of the bounds on overtakes and on waits.

use super::*;
use crate::policy::{DelayedRequests, NextRequest};
use crate::queue::{QueueSeq, QueuedRequest};

fn at_s(s: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(s))
}

#[test]
fn dispatches_to_another_replica_do_not_overtake_a_request_that_declines_it() {
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
    assert_eq!(dispatched(&mut router), [(1, 1)]);
}

/// Serves the newest request first.
#[derive(Clone, Debug)]
struct NewestFirst;

impl Policy for NewestFirst {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        Some(Selection::Dispatch(Dispatch {
            replica: view.candidates.iter().next()?,
            reason: Reason::Spread,
            matched: None,
        }))
    }

    fn select_request(
        &self,
        _replica: ReplicaIndex,
        queued: &mut dyn Iterator<Item = (QueueSeq, &QueuedRequest)>,
        _view: &View<'_>,
        _delayed: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let (newest, _) = queued.last()?;
        Some(NextRequest::AnyReplica(newest))
    }

    fn score(&self, _request: &Request, _replica: ReplicaIndex, _view: &View<'_>) -> f64 {
        0.0
    }
}

#[test]
fn the_overtake_limit_grows_with_the_pool() {
    for (replicas, limit) in [(2, 64), (8, 64), (100, 800)] {
        let mut router = pool(replicas, Push::Outstanding { max: 1 }, NewestFirst);
        for id in 0..=u64::from(replicas) {
            arrive(&mut router, id, 0);
        }
        dispatched(&mut router);
        let (oldest, mut running) = (u64::from(replicas), 0);
        let mut passed = 0;
        loop {
            let id = oldest + 1 + passed;
            arrive(&mut router, id, 0);
            finish(&mut router, running);
            let [(went, _)] = dispatched(&mut router)[..] else {
                panic!("one goes for each that ends");
            };
            if went == oldest {
                break;
            }
            running = went;
            passed += 1;
        }
        assert_eq!(passed, limit, "{replicas} replicas");
    }
}

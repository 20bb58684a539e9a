//! Waiting requests: how long, how many, and how they are answered.

use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{
    Effect, Event, Push, QueueLimits, RejectReason, ReplicaId, Request, RouterConfig, Time,
};

fn config(length_max: usize) -> RouterConfig {
    RouterConfig {
        push: Push::Outstanding { max: 1 },
        queue: QueueLimits {
            length_max,
            wait_max: Duration::from_secs(5),
            ..QueueLimits::default()
        },
        ..RouterConfig::default()
    }
}

fn single(id: u64) -> Request {
    request(id, id, &[id])
}

#[test]
fn a_full_queue_rejects_with_a_retry_time() {
    let mut script = Script::new(config(2), 1);
    for id in 0..3 {
        script.arrive(single(id));
    }
    script.sleep(2_500);
    script.probe(0, 0);
    script.effects();
    script.arrive(single(3));
    let effects = script.effects();
    let [
        Effect::Reject {
            reason,
            retry_after,
            ..
        },
    ] = effects.as_slice()
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*reason, RejectReason::QueueFull);
    assert_eq!(*retry_after, Duration::from_millis(2_500));
}

#[test]
fn no_request_waits_longer_than_the_limit() {
    let mut script = Script::new(config(10), 1);
    script.arrive(single(0));
    script.arrive(single(1));
    script.sleep(1_000);
    script.arrive(single(2));
    script.effects();
    script.probe(0, 0);
    script.sleep(2_900);
    script.probe(0, 0);
    assert_eq!(
        script.router.poll_timeout(),
        Some(Time::ZERO.after(Duration::from_secs(5)))
    );
    script.sleep(1_100);
    assert_eq!(script.rejects(), [(1, RejectReason::WaitedTooLong)]);
    script.sleep(1_000);
    assert_eq!(script.rejects(), [(2, RejectReason::WaitedTooLong)]);
}

#[test]
fn a_pool_without_good_probes_rejects_with_that_reason() {
    let mut script = Script::new(
        RouterConfig {
            push: Push::Pending,
            ..config(10)
        },
        0,
    );
    script.add(0);
    script.add(1);
    script.arrive(single(0));
    script.probe_fails(1);
    assert_eq!(script.effects(), []);
    script.sleep(5_000);
    assert_eq!(script.rejects(), [(0, RejectReason::NoHealthyReplica)]);
}

#[test]
fn an_empty_pool_rejects_new_requests_and_keeps_queued_ones() {
    let mut script = Script::new(config(10), 1);
    script.arrive(single(0));
    script.arrive(single(1));
    script.event(Event::Removed(ReplicaId(0)));
    script.effects();
    script.arrive(single(2));
    assert_eq!(script.rejects(), [(2, RejectReason::NoReplica)]);
    script.add(1);
    assert_eq!(script.sent(), [(1, 1)]);
}

#[test]
fn a_shutdown_rejects_every_queued_request() {
    let mut script = Script::new(config(10), 1);
    for id in 0..3 {
        script.arrive(single(id));
    }
    script.effects();
    script.event(Event::Shutdown);
    assert_eq!(
        script.rejects(),
        [1, 2].map(|id| (id, RejectReason::ShuttingDown))
    );
    script.arrive(single(3));
    assert_eq!(script.rejects(), [(3, RejectReason::ShuttingDown)]);
}

#[test]
fn losing_the_only_replica_of_a_subset_rejects_at_once() {
    let mut script = Script::new(config(10), 2);
    let pinned = |id| Request {
        subset: Some(Box::new([ReplicaId(0)])),
        ..single(id)
    };
    script.arrive(pinned(0));
    script.arrive(pinned(1));
    script.effects();
    script.event(Event::Draining(ReplicaId(0)));
    assert_eq!(script.rejects(), [(1, RejectReason::EmptySubset)]);
}

#[test]
fn blind_pushing_uses_unhealthy_replicas_only_in_panic_mode() {
    let blind = RouterConfig {
        push: Push::Blind,
        ..config(10)
    };
    let mut script = Script::new(blind, 2);
    script.probe_fails(0);
    script.arrive(single(0));
    assert_eq!(script.sent(), [(0, 1)]);
    script.probe_fails(1);
    script.arrive(single(1));
    script.arrive(single(2));
    let mut used: Vec<u32> = script.sent().into_iter().map(|(_, r)| r).collect();
    used.sort_unstable();
    assert_eq!(used, [0, 1]);
}

#[test]
fn a_time_before_the_last_one_counts_as_the_last_one() {
    let mut script = Script::new(config(10), 1);
    script.sleep(1_000);
    script.probe(0, 0);
    script.now = Time::ZERO;
    script.arrive(single(0));
    script.arrive(single(1));
    script.now = Time::ZERO.after(Duration::from_millis(5_999));
    script.probe(0, 0);
    assert_eq!(script.rejects(), []);
    script.sleep(1);
    assert_eq!(script.rejects(), [(1, RejectReason::WaitedTooLong)]);
}

#[test]
fn an_old_probe_does_not_replace_a_newer_one() {
    let pending = RouterConfig {
        push: Push::Pending,
        ..config(10)
    };
    let mut script = Script::new(pending, 1);
    script.sleep(100);
    script.probe(0, 1);
    script.event(Event::Probed {
        replica: ReplicaId(0),
        load: isotherm_router::Load::default(),
        sent: Time::ZERO.after(Duration::from_millis(50)),
    });
    script.arrive(single(0));
    assert_eq!(script.sent(), []);
    script.probe(0, 0);
    assert_eq!(script.sent(), [(0, 0)]);
}

#[test]
fn an_empty_pool_that_starts_from_zero_holds_its_requests_for_the_first_replica() {
    let config = RouterConfig {
        starts_from_zero: true,
        ..RouterConfig::default()
    };
    let wait_max = config.queue.wait_max;
    let mut script = Script::new(config, 0);
    script.arrive(request(0, 0, &[0]));
    assert_eq!(script.effects(), []);
    assert_eq!(script.stats().queue_length, 1, "the planner sees it");
    script.sleep(9_000);
    script.add(0);
    script.probe(0, 0);
    assert_eq!(script.sent(), [(0, 0)]);
    script.finish(0);
    script.event(Event::Removed(ReplicaId(0)));
    script.arrive(request(1, 1, &[1]));
    script.sleep(u64::try_from(wait_max.as_millis()).unwrap());
    let rejected = |effect: &Effect| matches!(effect, Effect::Reject { reason, .. } if *reason == RejectReason::NoReplica);
    assert!(script.effects().iter().all(rejected));
    assert_eq!(script.stats().queue_length, 0);
}

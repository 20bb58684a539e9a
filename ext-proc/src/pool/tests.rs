use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::outcome::{LoadReport, Outcome};
use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_router::{Availability, Choice, Load, RejectReason};
use prometheus_client::registry::Registry;

use super::*;
use crate::config;
use crate::metrics::Metrics;

const ONE_AT_A_TIME: &str = "push: outstanding, outstanding_max: 1";

fn pool_registry(pools: &str) -> PoolRegistry {
    let config = config::parse(&format!("pools: {pools}")).unwrap();
    let metrics = Metrics::register(&mut Registry::default());
    PoolRegistry::new(&config, Arc::new(metrics), Clock::start())
}

/// A registry with one pool and one free replica, which takes one request at a time.
fn small() -> (PoolRegistry, Arc<Pool>) {
    let pool_registry = pool_registry(&format!("[{{ model: m, {ONE_AT_A_TIME} }}]"));
    let pool = pool_registry.pool_for("m").unwrap();
    join(&pool, 1);
    (pool_registry, pool)
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn join(pool: &Pool, port: u16) {
    let id = pool.add_replica(addr(port)).unwrap();
    pool.probed(id, Load::default(), pool.clock().now());
}

/// A request with a prompt that can be cached.
fn of_a_kilobyte() -> RouteRequest {
    let block = BlockHash {
        hash: 7,
        end_bytes: 1024,
    };
    RouteRequest {
        fingerprint: Arc::new(Fingerprint::new(vec![block], 1024).unwrap()),
        ..RouteRequest::default()
    }
}

fn dispatched(submission: Submission) -> Route {
    match submission {
        Submission::Decided(PoolDecision::Dispatch(route)) => route,
        other => panic!("{other:?}"),
    }
}

fn waiting(submission: Submission) -> tokio::sync::oneshot::Receiver<PoolDecision> {
    match submission {
        Submission::Queued(answer) => answer,
        Submission::Decided(verdict) => panic!("{verdict:?}"),
    }
}

#[tokio::test]
async fn a_dropped_ticket_gives_its_place_to_the_next() {
    let (_fleet, pool) = small();
    let (running, submission) = pool.submit(&RouteRequest::default());
    assert_eq!(dispatched(submission).chosen.addr(), addr(1));
    let (gone, submission) = pool.submit(&RouteRequest::default());
    let mut gone_answer = waiting(submission);
    let (_next, submission) = pool.submit(&RouteRequest::default());
    let answer = waiting(submission);
    drop(gone);
    drop(running);
    assert!(matches!(answer.await, Ok(PoolDecision::Dispatch(_))));
    assert!(gone_answer.try_recv().is_err(), "nobody answers who left");
    assert_eq!(pool.stats().in_flight, 1);
}

#[tokio::test]
async fn an_answer_that_nobody_took_gives_its_place_back() {
    let (_fleet, pool) = small();
    let (running, _) = pool.submit(&RouteRequest::default());
    let (late, submission) = pool.submit(&RouteRequest::default());
    let answer = waiting(submission);
    drop(running);
    assert_eq!(pool.stats().in_flight, 1, "decided, and not read yet");
    drop((answer, late));
    assert_eq!(pool.stats().in_flight, 0);
}

#[tokio::test]
async fn time_passes_in_a_pool_by_itself() {
    let pool_registry = pool_registry(&format!(
        "[{{ model: m, {ONE_AT_A_TIME}, queue: {{ wait_ms_max: 50 }} }}]"
    ));
    let pool = pool_registry.pool_for("m").unwrap();
    join(&pool, 1);
    let (_running, _) = pool.submit(&RouteRequest::default());
    let (_waits, submission) = pool.submit(&RouteRequest::default());
    let answer = tokio::time::timeout(Duration::from_secs(10), waiting(submission));
    let PoolDecision::Reject { reason, .. } = answer.await.unwrap().unwrap() else {
        panic!("there is no place for it");
    };
    assert_eq!(reason, RejectReason::WaitedTooLong);
}

#[tokio::test]
async fn asking_why_changes_nothing() {
    let (_fleet, pool) = small();
    for _ in 0..3 {
        assert!(matches!(
            pool.explain(&RouteRequest::default()).choice,
            Choice::Dispatch { .. }
        ));
    }
    assert_eq!(pool.stats().counters.arrived, 0);
    let (guard, _) = pool.submit(&RouteRequest::default());
    assert_eq!(guard.id().0, 0);
}

#[tokio::test]
async fn a_load_report_is_as_old_as_the_first_byte() {
    let (_fleet, pool) = small();
    let (mut guard, submission) = pool.submit(&RouteRequest::default());
    guard.dispatch(&dispatched(submission));
    let report = |ttft_us| Outcome {
        status: 200,
        ttft_us,
        load: Some(LoadReport {
            waiting: 0,
            running: Some(9),
            kv_usage: None,
        }),
        ..Outcome::default()
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    let before = pool.clock().now();
    guard.finish(&report(Some(10_000)));
    let status = pool.replicas().remove(0);
    assert_eq!(status.load.unwrap().running, Some(9));
    assert!(status.probed.unwrap() < before, "it was true then, not now");

    let (mut guard, submission) = pool.submit(&RouteRequest::default());
    guard.dispatch(&dispatched(submission));
    let probed = pool.replicas().remove(0).probed;
    guard.finish(&report(None));
    assert_eq!(
        pool.replicas().remove(0).probed,
        probed,
        "a report of unknown age says nothing"
    );
}

#[tokio::test]
async fn what_a_replica_that_left_reports_is_not_taken_for_the_chosen_ones_load() {
    let (_fleet, pool) = small();
    let (mut guard, submission) = pool.submit(&RouteRequest::default());
    guard.dispatch(&dispatched(submission));
    let before = pool.replicas().remove(0).load;
    guard.finish(&Outcome {
        status: 200,
        ttft_us: Some(0),
        upstream: Some("10.9.9.9:1".to_owned()),
        load: Some(LoadReport {
            waiting: 77,
            running: None,
            kv_usage: None,
        }),
        ..Outcome::default()
    });
    assert_eq!(pool.replicas().remove(0).load, before);
}

#[tokio::test]
async fn a_reload_keeps_the_pools_that_stay_and_empties_those_that_go() {
    let pool_registry = pool_registry(&format!(
        "[{{ model: a, {ONE_AT_A_TIME} }}, {{ model: b, {ONE_AT_A_TIME} }}]"
    ));
    let (a, b) = (
        pool_registry.pool_for("a").unwrap(),
        pool_registry.pool_for("b").unwrap(),
    );
    for pool in [&a, &b] {
        join(pool, 1);
    }
    let (_a1, _) = a.submit(&RouteRequest::default());
    let (_a2, submission) = a.submit(&RouteRequest::default());
    let mut a_waits = waiting(submission);
    let (_b1, _) = b.submit(&RouteRequest::default());
    let (_b2, submission) = b.submit(&RouteRequest::default());
    let b_waits = waiting(submission);

    let revision = pool_registry.revision();
    let text =
        "pools: [{ model: a, aliases: [c], cluster: x, push: outstanding, outstanding_max: 2 }]";
    pool_registry.apply(&config::parse(text).unwrap());
    assert!(revision.has_changed().unwrap());
    assert!(Arc::ptr_eq(&a, &pool_registry.pool_for("c").unwrap()));
    assert!(pool_registry.pool_for("b").is_none());
    assert_eq!(a.cluster(), "x");
    assert!(
        matches!(a_waits.try_recv(), Ok(PoolDecision::Dispatch(_))),
        "there is more room"
    );
    let Ok(PoolDecision::Reject { reason, .. }) = b_waits.await else {
        panic!("its pool is gone");
    };
    assert_eq!(reason, RejectReason::ShuttingDown);
}

#[tokio::test]
async fn followers_see_members_come_drain_and_go() {
    let (_fleet, pool) = small();
    let members = pool.members();
    let seen = || members.borrow().clone();
    pool.drain_replica(addr(1)).unwrap();
    assert!(seen()[0].draining);
    assert_eq!(pool.replicas()[0].availability, Availability::Draining);
    let id = pool.remove_replica(addr(1)).unwrap();
    assert!(seen().is_empty());
    pool.probed(id, Load::default(), pool.clock().now());
    assert!(pool.replicas().is_empty(), "news of who left is dropped");
    assert_eq!(
        pool.remove_replica(addr(1)),
        Err(MembershipError::Unknown(addr(1)))
    );
}

#[tokio::test]
async fn a_pool_that_is_opened_during_a_stop_keeps_nobody_waiting() {
    let pool_registry = pool_registry("[]");
    pool_registry.shut_down();
    pool_registry.apply(&config::parse("pools: [{ model: late }]").unwrap());
    let pool = pool_registry.pool_for("late").unwrap();
    join(&pool, 1);
    let (_ticket, submission) = pool.submit(&RouteRequest::default());
    assert!(
        matches!(
            submission,
            Submission::Decided(PoolDecision::Reject {
                reason: RejectReason::ShuttingDown,
                ..
            })
        ),
        "{submission:?}"
    );
}

#[tokio::test]
async fn a_prompt_is_taken_for_cached_only_where_it_was_computed() {
    for (status, matched_bytes) in [(200, 1024), (400, 0), (429, 0), (503, 0)] {
        let (_fleet, pool) = small();
        let ask = of_a_kilobyte();
        let (mut guard, submission) = pool.submit(&ask);
        guard.dispatch(&dispatched(submission));
        guard.finish(&Outcome {
            status,
            ..Outcome::default()
        });
        let found = pool.explain(&ask).candidates.remove(0).matched_bytes;
        assert_eq!(found, matched_bytes, "status {status}");
    }
}

#[tokio::test]
async fn only_a_stream_teaches_how_long_a_first_token_takes() {
    for is_stream in [true, false] {
        let pool_registry = pool_registry("[{ model: m, policy: isotherm }]");
        let pool = pool_registry.pool_for("m").unwrap();
        join(&pool, 1);
        let ask = of_a_kilobyte();
        let (mut guard, submission) = pool.submit(&ask);
        guard.dispatch(&dispatched(submission));
        guard.finish(&Outcome {
            status: 200,
            ttft_us: Some(60_000_000),
            is_stream,
            prompt_tokens: Some(256),
            cached_tokens: Some(0),
            completion_tokens: Some(5),
            ..Outcome::default()
        });
        let cost_s = -pool.explain(&ask).candidates.remove(0).score;
        assert_eq!(cost_s > 10.0, is_stream, "{cost_s} s");
    }
}

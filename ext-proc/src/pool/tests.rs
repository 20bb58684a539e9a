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

const ONE_AT_A_TIME: &str = "push: outstanding:1";

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
async fn a_dropped_guard_releases_its_request_for_the_next() {
    let (_registry, pool) = small();
    let (running, submission) = pool.submit(&RouteRequest::default());
    assert_eq!(dispatched(submission).chosen.addr(), addr(1));
    let (gone, submission) = pool.submit(&RouteRequest::default());
    let mut gone_answer = waiting(submission);
    let (_next, submission) = pool.submit(&RouteRequest::default());
    let answer = waiting(submission);
    drop(gone);
    drop(running);
    assert!(matches!(answer.await, Ok(PoolDecision::Dispatch(_))));
    assert!(
        gone_answer.try_recv().is_err(),
        "a request whose client left gets no decision"
    );
    assert_eq!(pool.stats().in_flight, 1);
}

#[tokio::test]
async fn a_decision_that_is_not_read_releases_its_request() {
    let (_registry, pool) = small();
    let (running, _) = pool.submit(&RouteRequest::default());
    let (late, submission) = pool.submit(&RouteRequest::default());
    let answer = waiting(submission);
    drop(running);
    assert_eq!(pool.stats().in_flight, 1, "decided, and not read yet");
    drop((answer, late));
    assert_eq!(pool.stats().in_flight, 0);
}

#[tokio::test]
async fn the_timer_of_a_pool_rejects_a_request_after_its_longest_wait() {
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
async fn an_explanation_changes_no_state() {
    let (_registry, pool) = small();
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
async fn a_load_report_is_as_old_as_the_first_byte_of_its_response() {
    let (_registry, pool) = small();
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
async fn the_load_report_of_an_unknown_replica_is_ignored() {
    let (_registry, pool) = small();
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
async fn a_reload_keeps_pools_that_stay_and_empties_pools_that_leave() {
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
    let text = "pools: [{ model: a, aliases: [c], cluster: x, push: outstanding:2 }]";
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
async fn followers_see_members_join_drain_and_leave() {
    let (_registry, pool) = small();
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
async fn a_pool_that_opens_during_a_stop_rejects_requests() {
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
async fn a_prompt_counts_as_cached_only_after_a_successful_response() {
    for (status, matched_bytes) in [(200, 1024), (400, 0), (429, 0), (503, 0)] {
        let (_registry, pool) = small();
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

/// The cost of a prompt after 20 answers, the first byte of each after 0.2 s.
fn cost_after_answers(is_stream: bool) -> f64 {
    let pool_registry = pool_registry("[{ model: m, policy: isotherm }]");
    let pool = pool_registry.pool_for("m").unwrap();
    join(&pool, 1);
    let ask = of_a_kilobyte();
    for _ in 0..20 {
        let (mut guard, submission) = pool.submit(&ask);
        guard.dispatch(&dispatched(submission));
        guard.finish(&Outcome {
            status: 200,
            ttft_us: Some(200_000),
            is_stream,
            prompt_tokens: Some(256),
            cached_tokens: Some(0),
            completion_tokens: Some(5),
            ..Outcome::default()
        });
    }
    -pool.explain(&ask).candidates.remove(0).score
}

#[tokio::test]
async fn only_the_first_byte_of_a_streamed_response_is_a_first_token() {
    let [streamed, whole] = [true, false].map(cost_after_answers);
    assert!(streamed > 1.2 * whole, "{streamed} s, {whole} s");
}

/// Names of the pools that serve models, with whether the model names an adapter there.
fn targets(pool_registry: &PoolRegistry, models: &[&str]) -> Vec<String> {
    let describe = |model: &&str| match pool_registry.pool_for(model) {
        Some(pool) if pool.adapter_key(model).is_some() => format!("adapter in {}", pool.name()),
        Some(pool) => pool.name().to_string(),
        None => "none".into(),
    };
    models.iter().map(describe).collect()
}

#[tokio::test]
async fn an_adapter_selects_the_pool_whose_replica_lists_it() {
    let pool_registry = pool_registry("[{ model: m, aliases: [org/m] }, { model: q }]");
    let [m, q] = ["m", "q"].map(|model| pool_registry.pool_for(model).unwrap());
    let on_m = m.add_replica(addr(1)).unwrap();
    let on_q = q.add_replica(addr(2)).unwrap();
    m.adapters_listed(on_m, vec!["sql".into(), "q".into()]);
    q.adapters_listed(on_q, vec!["chat".into(), "sql".into()]);
    let models = ["sql", "chat", "q", "org/m:sql", "q:chat", "m:chat", "gpt"];
    assert_eq!(
        targets(&pool_registry, &models),
        [
            "adapter in m",
            "adapter in q",
            "q",
            "adapter in m",
            "adapter in q",
            "none",
            "none"
        ]
    );
    m.adapters_listed(on_m, Vec::new());
    assert_eq!(targets(&pool_registry, &["sql"]), ["adapter in q"]);
    q.remove_replica(addr(2)).unwrap();
    assert_eq!(targets(&pool_registry, &["sql", "chat"]), ["none", "none"]);
}

#[tokio::test]
async fn the_pool_of_any_model_knows_adapters_from_base_models() {
    let pool_registry = pool_registry("[{ model: '*' }]");
    let pool = pool_registry.pool_for("any").unwrap();
    let replica = pool.add_replica(addr(1)).unwrap();
    pool.adapters_listed(replica, vec!["sql".into()]);
    let models = ["llama", "sql", "llama:sql", "llama:v2"];
    let expected = ["*", "adapter in *", "adapter in *", "*"];
    assert_eq!(targets(&pool_registry, &models), expected);
}

#[tokio::test]
async fn an_alias_is_an_adapter_once_a_metrics_page_names_it() {
    let pool_registry = pool_registry("[{ model: m, aliases: [sql] }]");
    let pool = pool_registry.pool_for("m").unwrap();
    let replica = pool.add_replica(addr(1)).unwrap();
    assert_eq!(targets(&pool_registry, &["sql"]), ["m"]);
    let reported = crate::probe::ReportedAdapters {
        slots: Some(2),
        running: vec!["sql".into(), "other".into()],
        waiting: Vec::new(),
    };
    pool.adapters_reported(replica, &reported, pool.clock().now());
    let expected = ["adapter in m", "none"];
    assert_eq!(targets(&pool_registry, &["sql", "other"]), expected);
}

#[tokio::test]
async fn a_request_for_an_adapter_goes_to_the_replica_that_lists_it() {
    let pool_registry = pool_registry("[{ model: m, push: blind }]");
    let pool = pool_registry.pool_for("m").unwrap();
    for port in 1..=3 {
        join(&pool, port);
    }
    let replica = pool.replica_at(addr(3)).unwrap();
    pool.adapters_listed(replica, vec!["sql".into()]);
    for _ in 0..5 {
        let request = RouteRequest {
            adapter: pool.adapter_key("sql"),
            ..RouteRequest::default()
        };
        let (_guard, submission) = pool.submit(&request);
        let route = dispatched(submission);
        assert_eq!(route.chosen.addr(), addr(3));
        assert!(route.fallbacks.is_empty());
    }
}

//! Requests that this region forwards, requests that come back, and requests that another region forwards here.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use isotherm_decision_proto::{Action, Forward, Route};
use isotherm_ext_proc::pool::Pool;
use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_router::PeerReport;
use tokio::task::JoinHandle;

use super::call::{Answer, Call, GoOn};
use super::decision_stream::DecisionStream;
use super::decisions::hint;
use super::{ONE_AT_A_TIME, Service, wait_until};

/// Report of a region with free replicas.
const FREE_CAPACITY: PeerReport = PeerReport {
    available: 3,
    replicas: 4,
    free_capacity: 100,
    queue: 0,
    drain_per_s: 10.0,
    prompt_cost: None,
    utilisation: None,
    kv_capacity_tokens: 0,
    batch_credit: 0,
    batch_queue: 0,
};

/// The region `us`, whose peers `eu` (the nearer one) and `asia` report free capacity until this is dropped.
struct Region {
    service: Service,
    heartbeats: JoinHandle<()>,
}

impl Region {
    /// A region with `engines` replicas, each of which takes one request.
    async fn with(engines: usize) -> Self {
        let options = format!("decision_header: true\n{ONE_AT_A_TIME}");
        let service = Service::start(&options, engines).await;
        service.pool_registry.set_regions("us", ["eu", "asia"]);
        let pool = service.pool();
        report(&pool);
        let heartbeats = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                report(&pool);
            }
        });
        Self {
            service,
            heartbeats,
        }
    }

    /// A region whose only replica is busy with the call that comes with it.
    async fn full() -> (Self, Call) {
        let region = Self::with(1).await;
        let mut running = region.service.chat("llama").await;
        assert!(running.goes_on().await.destination().is_some());
        (region, running)
    }

    /// A chat request with these headers, by a listener that says this of itself.
    async fn chat(&self, listener: Option<&str>, headers: &[(&str, &str)]) -> Call {
        self.chat_with(listener, headers, None).await
    }

    async fn chat_with(
        &self,
        listener: Option<&str>,
        headers: &[(&str, &str)],
        metadata: Option<Metadata>,
    ) -> Call {
        let mut call = Call::open(self.service.channel.clone(), listener).await;
        let mut all = vec![
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            ("x-isotherm-model", "llama"),
        ];
        all.extend(headers);
        call.headers_with(&all, metadata).await;
        call
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.heartbeats.abort();
    }
}

fn report(pool: &Pool) {
    let peer_table = pool.peer_table().unwrap();
    for (name, round_trip_ms) in [("eu", 80), ("asia", 150)] {
        let peer = peer_table.named(name).unwrap().id;
        let round_trip = Duration::from_millis(round_trip_ms);
        pool.peer_reported(peer, FREE_CAPACITY, pool.clock().now(), round_trip);
    }
}

async fn goes_on(call: &mut Call) -> GoOn {
    match call.answer_at_last().await {
        Answer::GoOn(go_on) => go_on,
        other => panic!("{other:?}"),
    }
}

fn peer(pool: &Arc<Pool>, name: &str) -> isotherm_router::PeerStatus {
    let mut peers = pool.peers().into_iter();
    peers.find(|peer| peer.name == name).unwrap()
}

#[tokio::test]
async fn a_full_region_forwards_a_request_to_the_nearest_peer_with_free_capacity() {
    let (region, _running) = Region::full().await;
    let mut call = region.chat(None, &[("content-length", "1000")]).await;
    let answer = goes_on(&mut call).await;
    assert_eq!(answer.header("x-isotherm-cluster"), Some("region-eu"));
    assert_eq!(answer.header("x-isotherm-origin"), Some("us"));
    assert_eq!(answer.header("x-isotherm-tried"), Some("eu"));
    assert_eq!(answer.header("x-isotherm-model"), Some("llama"));
    assert!(answer.clear_route_cache, "or the route of its pool stays");
    assert_eq!((answer.destination(), &answer.lb_endpoint), (None, &None));
    assert_eq!(answer.removed, ["x-gateway-destination-endpoint"]);
    let decision = answer.header("x-isotherm-decision").unwrap();
    let expected = "region=eu;policy=isotherm;reason=soonest;matched=0.000;queued_ms=";
    assert!(decision.starts_with(expected), "{decision}");

    let pool = region.service.pool();
    assert_eq!(pool.stats().forwarded_in_flight, 1);
    call.outcome("v=1;status=200").await;
    wait_until("it counts as finished", || {
        pool.stats().counters.finished_ok == 1
    })
    .await;
    let page = region.service.metrics().await;
    for line in [
        "isotherm_requests_total{result=\"forwarded\"} 1",
        "isotherm_forwarded_total{pool=\"llama\",region=\"eu\"} 1",
        "isotherm_returned_total{pool=\"llama\",region=\"eu\"} 0",
        "isotherm_peer_available{pool=\"llama\",region=\"asia\",state=\"available\"} 1.0",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
}

#[tokio::test]
async fn a_queued_request_is_forwarded_when_a_peer_gets_free_capacity() {
    let region = Region::with(1).await;
    region.heartbeats.abort();
    let pool = region.service.pool();
    let full = PeerReport {
        available: 0,
        free_capacity: 0,
        ..FREE_CAPACITY
    };
    for name in ["eu", "asia"] {
        let id = peer(&pool, name).id;
        pool.peer_reported(id, full, pool.clock().now(), Duration::ZERO);
    }
    let mut running = region.service.chat("llama").await;
    running.goes_on().await;
    let mut call = region.chat(None, &[]).await;
    call.waits().await;
    report(&pool);
    let answer = call.goes_on().await;
    assert_eq!(answer.header("x-isotherm-tried"), Some("eu"));
}

#[tokio::test]
async fn the_next_turn_of_a_session_follows_its_prefix_to_the_peer() {
    let (region, _running) = Region::full().await;
    let pool = region.service.pool();
    let fingerprint = Fingerprint::new(
        vec![BlockHash {
            hash: 7,
            end_bytes: 256,
        }],
        300,
    )
    .unwrap()
    .encode();
    let prompt = [("x-isotherm-fingerprint", fingerprint.as_str())];
    // The first turn finds only the farther region with room.
    region.heartbeats.abort();
    pool.peer_lost(peer(&pool, "eu").id);
    let mut first = region.chat(None, &prompt).await;
    // Its last report may have grown old in the meantime.
    let asia = peer(&pool, "asia").id;
    pool.peer_reported(asia, FREE_CAPACITY, pool.clock().now(), Duration::ZERO);
    let answer = goes_on(&mut first).await;
    assert_eq!(answer.header("x-isotherm-cluster"), Some("region-asia"));
    first.outcome("v=1;status=200").await;
    report(&pool);
    let mut second = region.chat(None, &prompt).await;
    report(&pool);
    let answer = goes_on(&mut second).await;
    assert_eq!(answer.header("x-isotherm-cluster"), Some("region-asia"));
    let decision = answer.header("x-isotherm-decision").unwrap();
    assert!(
        decision.contains(";reason=prefix;matched=0.8"),
        "{decision}"
    );
}

#[tokio::test]
async fn a_request_that_came_back_goes_to_another_peer_or_is_queued() {
    let (region, mut running) = Region::full().await;
    let pool = region.service.pool();
    let mut outer = region.chat(None, &[]).await;
    assert_eq!(
        goes_on(&mut outer).await.header("x-isotherm-tried"),
        Some("eu")
    );
    let back = [("x-isotherm-origin", "us"), ("x-isotherm-tried", "eu")];
    let mut inner = region.chat(Some("regions"), &back).await;
    let answer = goes_on(&mut inner).await;
    assert_eq!(answer.header("x-isotherm-cluster"), Some("region-asia"));
    assert_eq!(answer.header("x-isotherm-origin"), Some("us"));
    assert_eq!(answer.header("x-isotherm-tried"), Some("eu,asia"));
    assert_eq!(peer(&pool, "eu").returned, 1);

    // Both have had it now.
    let back = [("x-isotherm-origin", "us"), ("x-isotherm-tried", "eu,asia")];
    let mut innermost = region.chat(Some("regions"), &back).await;
    innermost.waits().await;
    assert!(innermost.is_quiet().await, "every peer was tried");
    running.outcome("v=1;status=200").await;
    let answer = innermost.goes_on().await;
    assert!(answer.destination().is_some());
    for header in ["x-isotherm-origin", "x-isotherm-tried"] {
        assert!(answer.removed.contains(&header.to_owned()), "{answer:?}");
    }
    let decision = answer.header("x-isotherm-decision").unwrap();
    assert!(decision.ends_with(";tried=eu,asia"), "{decision}");

    // What the outer requests hear is what Envoy's own listener answered: they end, and teach nothing.
    innermost.outcome("v=1;status=200").await;
    for call in [&mut inner, &mut outer] {
        call.outcome("v=1;status=200;upstream=envoy://again/").await;
    }
    wait_until("all have ended", || {
        let stats = pool.stats();
        (stats.in_flight, stats.forwarded_in_flight) == (0, 0)
    })
    .await;
    let counters = pool.stats().counters;
    assert_eq!((counters.finished_ok, counters.finished_failed), (2, 0));
    assert_eq!((counters.forwarded, counters.returned), (2, 2));
}

#[tokio::test]
async fn a_forwarded_request_is_dispatched_or_queued_and_never_forwarded_again() {
    let region = Region::with(1).await;
    let forwarded = [("x-isotherm-origin", "eu"), ("x-isotherm-tried", "us")];
    let mut first = region.chat(Some("regions"), &forwarded).await;
    let answer = first.goes_on().await;
    assert!(answer.destination().is_some());
    assert!(answer.removed.contains(&"x-isotherm-origin".to_owned()));
    let decision = answer.header("x-isotherm-decision").unwrap();
    assert!(decision.starts_with("replica="), "{decision}");
    assert!(decision.ends_with(";origin=eu"), "{decision}");

    let mut second = region.chat(Some("regions"), &forwarded).await;
    second.waits().await;
    assert!(
        second.is_quiet().await,
        "asia has free capacity, but not for forwarded requests"
    );
    first.outcome("v=1;status=200").await;
    assert!(second.goes_on().await.destination().is_some());
    let counters = region.service.pool().stats().counters;
    assert_eq!((counters.forwarded_in, counters.forwarded), (2, 0));
}

/// The way of a request to another region, by the next message of a stream.
async fn forward(stream: &mut DecisionStream) -> Forward {
    match stream.answer().await {
        (_, Action::Forward(forward)) => forward,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_region_forwards_a_request_of_the_decision_stream() {
    let (region, _running) = Region::full().await;
    let mut stream = DecisionStream::open_for(&region.service, None).await;
    let objectives = [
        ("x-isotherm-ttft-ms", "60000"),
        ("x-isotherm-deadline", "90000"),
    ];
    stream.ask(1, &objectives).await;
    let way = forward(&mut stream).await;
    assert_eq!((&*way.cluster, &*way.origin), ("region-eu", "us"));
    assert_eq!((&*way.tried, &*way.model), ("eu", "llama"));
    assert!(way.ttft_ms.is_some_and(|left| left <= 60_000), "{way:?}");
    assert!(
        way.deadline_ms.is_some_and(|left| left <= 90_000),
        "{way:?}"
    );
    assert!(way.decision.starts_with("region=eu;"), "{way:?}");
    assert_eq!(way.reason, "soonest");
    let pool = region.service.pool();
    assert_eq!(pool.stats().forwarded_in_flight, 1);
    let outcome = "v=1;status=200;upstream=127.0.0.1:1";
    stream.send(Vec::new(), &[(1, outcome)]).await;
    wait_until("it counts as finished", || {
        pool.stats().counters.finished_ok == 1
    })
    .await;
    let page = region.service.metrics().await;
    let line = "isotherm_requests_total{result=\"forwarded\"} 1";
    assert!(page.contains(line), "{page}");
}

#[tokio::test]
async fn a_long_body_of_the_decision_stream_stays_in_its_region() {
    let (region, _running) = Region::full().await;
    let mut stream = DecisionStream::open_for(&region.service, None).await;
    stream.ask(1, &[("content-length", "3145729")]).await;
    assert!(matches!(stream.answer().await, (1, Action::Wait(_))));
}

#[tokio::test]
async fn a_request_that_came_back_on_a_stream_for_regions_goes_to_another_peer() {
    let (region, mut running) = Region::full().await;
    let mut stream = DecisionStream::open_for(&region.service, Some("regions")).await;
    let back = [("x-isotherm-origin", "us"), ("x-isotherm-tried", "eu")];
    stream.ask(1, &back).await;
    let way = forward(&mut stream).await;
    assert_eq!((&*way.cluster, &*way.tried), ("region-asia", "eu,asia"));
    let forwarded = [("x-isotherm-origin", "eu"), ("x-isotherm-tried", "us")];
    stream.ask(2, &forwarded).await;
    assert!(matches!(stream.answer().await, (2, Action::Wait(_))));
    running.outcome("v=1;status=200").await;
    let (id, Action::Route(Route { decision, .. })) = stream.answer().await else {
        panic!("a forwarded request goes to a replica");
    };
    assert!(id == 2 && decision.ends_with(";origin=eu"), "{decision}");
}

#[tokio::test]
async fn an_origin_has_no_effect_on_a_stream_of_clients() {
    let (region, _running) = Region::full().await;
    for listener in [None, Some("clients"), Some("")] {
        let mut stream = DecisionStream::open_for(&region.service, listener).await;
        let forged = [("x-isotherm-origin", "us"), ("x-isotherm-tried", "eu")];
        stream.ask(1, &forged).await;
        assert_eq!(forward(&mut stream).await.tried, "eu", "{listener:?}");
    }
}

#[tokio::test]
async fn a_forwarded_request_that_would_wait_long_is_rejected_at_once() {
    let region = Region::with(1).await;
    let forwarded = [("x-isotherm-origin", "eu"), ("x-isotherm-tried", "us")];
    let mut calls = Vec::new();
    let (status, code, why) = loop {
        let mut call = region.chat(Some("regions"), &forwarded).await;
        let first = call.message().await.unwrap();
        if first.override_message_timeout.is_none() && !calls.is_empty() {
            break Call::refusal(first);
        }
        calls.push(call);
        assert!(calls.len() < 20, "there is no end to the queue");
    };
    assert_eq!((status, code.as_str()), (503, "region_full"));
    assert_eq!(why.as_deref(), Some("region_full"));
    assert_eq!(
        region.service.pool().stats().counters.forwarded_in_rejected,
        1
    );
}

#[tokio::test]
async fn a_forwarded_request_with_an_unknown_model_is_rejected_to_its_region() {
    let service = Service::start("pools: [{ model: llama }, { model: qwen }]", 0).await;
    service.pool_registry.set_regions("us", ["eu"]);
    let forwarded = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("x-isotherm-origin", "eu"),
    ];
    for (model, code, why) in [
        (Some("gpt"), "model_not_found", "unknown_model"),
        (None, "missing_model", "no_model"),
    ] {
        let model = model.map(|model| ("x-isotherm-model", model));
        let headers = Vec::from_iter(forwarded.into_iter().chain(model));
        let mut call = Call::open(service.channel.clone(), Some("regions")).await;
        call.headers(&headers).await;
        let refused = Call::refusal(call.message().await.unwrap());
        assert_eq!(refused, (503, code.to_owned(), Some(why.to_owned())));
    }
}

#[tokio::test]
async fn a_forged_origin_of_a_client_has_no_effect() {
    let (region, _running) = Region::full().await;
    // A forwarded request would be queued here, and a request that came back from eu would go to asia.
    for origin in ["eu", "us"] {
        for listener in [None, Some("clients"), Some("")] {
            let forged = [("x-isotherm-origin", origin), ("x-isotherm-tried", "eu")];
            let mut call = region.chat(listener, &forged).await;
            let answer = goes_on(&mut call).await;
            assert_eq!(answer.header("x-isotherm-origin"), Some("us"));
            assert_eq!(answer.header("x-isotherm-tried"), Some("eu"));
        }
    }
    let counters = region.service.pool().stats().counters;
    assert_eq!((counters.forwarded_in, counters.returned), (0, 0));
    let page = region.service.metrics().await;
    for name in ["x-isotherm-origin", "x-isotherm-tried"] {
        let line = format!("isotherm_bad_headers_total{{header=\"{name}\"}} 6");
        assert!(page.contains(&line), "{page}");
    }
}

#[tokio::test]
async fn a_large_body_and_a_restricted_subset_keep_a_request_in_the_region() {
    let (region, mut running) = Region::full().await;
    let mut large = region.chat(None, &[("content-length", "3145729")]).await;
    large.waits().await;
    assert!(large.is_quiet().await);
    let only = region.service.engines[0].addr.to_string();
    let mut restricted = region.chat_with(None, &[], Some(hint(&only))).await;
    restricted.waits().await;
    assert!(restricted.is_quiet().await);
    running.outcome("v=1;status=200").await;
    assert!(large.goes_on().await.destination().is_some());
    large.outcome("v=1;status=200").await;
    assert_eq!(restricted.goes_on().await.destination(), Some(&*only));
    assert_eq!(region.service.pool().stats().counters.forwarded, 0);
}

#[tokio::test]
async fn without_regions_no_request_is_forwarded() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    // Whatever the listener says.
    let mut call = Call::open(service.channel.clone(), Some("regions")).await;
    call.headers(&[
        (":method", "POST"),
        ("x-isotherm-model", "llama"),
        ("x-isotherm-origin", "eu"),
    ])
    .await;
    call.waits().await;
    running.outcome("v=1;status=200").await;
    assert!(call.goes_on().await.destination().is_some());
    assert_eq!(service.pool().stats().counters.forwarded_in, 0);
}

use futures_util::stream::BoxStream;
use isotherm_router::Load;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ext_proc::v3::{HttpHeaders, HttpTrailers};

use super::*;
use crate::clock::Clock;
use crate::config;
use crate::metrics::Metrics;
use crate::pool::{Pool, PoolRegistry};

type Answers = BoxStream<'static, Result<ProcessingResponse, Status>>;

/// A request that was sent to the only replica, and how Envoy goes on about it.
async fn sent() -> (Arc<Pool>, mpsc::UnboundedSender<ProcessingRequest>, Answers) {
    let config = config::parse("pools: [{ model: m }]").unwrap();
    let metrics = Arc::new(Metrics::register(&mut Registry::default()));
    let pool_registry = PoolRegistry::new(&config, Arc::clone(&metrics), Clock::start());
    let pool = pool_registry.pool_for("m").unwrap();
    let replica = pool.add_replica(([127, 0, 0, 1], 1).into()).unwrap();
    pool.probed(replica, Load::default(), pool.clock().now());
    let context = Arc::new(RequestContext {
        pool_registry: Arc::new(pool_registry),
        metrics,
        started_unix_s: 0,
    });
    let (envoy, messages) = mpsc::unbounded_channel();
    let inbound = UnboundedReceiverStream::new(messages).map(Ok);
    let mut answers = RequestStream::replies(context, ListenerKind::Clients, inbound).boxed();
    let headers = Request::RequestHeaders(HttpHeaders::default());
    envoy.send(message(headers)).unwrap();
    answers.next().await.unwrap().unwrap();
    assert_eq!(pool.stats().in_flight, 1);
    (pool, envoy, answers)
}

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(request),
        ..ProcessingRequest::default()
    }
}

fn trailers(value: &str) -> ProcessingRequest {
    let outcome = HeaderValue {
        key: names::OUTCOME.into(),
        raw_value: value.into(),
        ..HeaderValue::default()
    };
    message(Request::ResponseTrailers(HttpTrailers {
        trailers: Some(HeaderMap {
            headers: vec![outcome],
        }),
    }))
}

#[tokio::test]
async fn an_outcome_that_arrives_right_before_the_reset_counts() {
    let (pool, envoy, answers) = sent().await;
    envoy.send(trailers("v=1;status=200")).unwrap();
    drop(answers);
    let counters = pool.stats().counters;
    assert_eq!((counters.finished_ok, counters.aborted_in_flight), (1, 0));
}

#[tokio::test]
async fn a_stream_that_ends_without_an_outcome_aborts_its_request() {
    let (pool, _envoy, answers) = sent().await;
    drop(answers);
    assert_eq!(pool.stats().counters.aborted_in_flight, 1);

    let (pool, envoy, mut answers) = sent().await;
    drop(envoy);
    assert!(answers.next().await.is_none());
    drop(answers);
    assert_eq!(pool.stats().counters.aborted_in_flight, 1);
}

#[tokio::test]
async fn a_malformed_outcome_ends_the_response() {
    let (pool, envoy, mut answers) = sent().await;
    envoy.send(trailers("?")).unwrap();
    assert!(answers.next().await.is_some());
    drop(answers);
    assert_eq!(pool.stats().counters.finished_ok, 1);
}

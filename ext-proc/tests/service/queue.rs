//! Requests that wait: by holding back the answer.

use std::time::Duration;

use super::call::Answer;
use super::{ONE_AT_A_TIME, Service, wait_until};

#[tokio::test]
async fn the_queue_dispatches_in_the_order_of_arrival() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut call = service.chat("llama").await;
        assert!(
            call.waits().await > Duration::from_secs(30),
            "longer than the queue's own limit"
        );
        waiting.push(call);
    }
    assert_eq!(service.pool().stats().queue_length, 4);
    while !waiting.is_empty() {
        assert!(waiting[0].is_quiet().await);
        running.outcome("v=1;status=200").await;
        running = waiting.remove(0);
        running.goes_on().await;
        for call in &mut waiting {
            assert!(call.is_quiet().await);
        }
    }
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_the_queue_at_once() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let pool = service.pool();
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut first = service.chat("llama").await;
    first.waits().await;
    let mut second = service.chat("llama").await;
    second.waits().await;
    drop(first);
    wait_until("its place is free", || pool.stats().queue_length == 1).await;
    assert_eq!(pool.stats().counters.aborted_waiting, 1);
    running.outcome("v=1;status=200").await;
    second.goes_on().await;
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_replica_at_once() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut waiting = service.chat("llama").await;
    waiting.waits().await;
    drop(running);
    waiting.goes_on().await;
    assert_eq!(service.pool().stats().counters.aborted_in_flight, 1);
}

#[tokio::test]
async fn a_full_queue_rejects_with_a_retry_delay() {
    let options = format!("{ONE_AT_A_TIME}    queue: {{ length_max: 1 }}\n");
    let service = Service::start(&options, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut waiting = service.chat("llama").await;
    waiting.waits().await;
    let mut refused = service.chat("llama").await;
    assert_refused(refused.answer().await, "queue_full");
}

#[tokio::test]
async fn a_queued_request_is_rejected_after_the_longest_wait() {
    let options = format!("{ONE_AT_A_TIME}    queue: {{ wait_ms_max: 100 }}\n");
    let service = Service::start(&options, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut waiting = service.chat("llama").await;
    waiting.waits().await;
    assert_refused(waiting.answer().await, "waited_too_long");
    assert!(waiting.message().await.is_none(), "the stream ends");
}

#[tokio::test]
async fn a_new_replica_gets_a_queued_request() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut waiting = service.chat("llama").await;
    waiting.waits().await;
    let addr = {
        let engine = super::FakeEngine::start(super::vllm(0)).await;
        service.pool().add_replica(engine.addr).unwrap();
        let addr = engine.addr;
        service.engines.push(engine);
        addr
    };
    let answer = waiting.goes_on().await;
    let first = answer.destination().unwrap().split(',').next();
    assert_eq!(first, Some(addr.to_string().as_str()));
}

#[tokio::test]
async fn messages_about_a_queued_request_are_answered_after_its_decision() {
    use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
    use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
    use envoy_types::pb::envoy::service::ext_proc::v3::{HttpBody, ProcessingRequest};

    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut waiting = service.chat("llama").await;
    waiting.waits().await;
    for _ in 0..3 {
        waiting
            .send(ProcessingRequest {
                request: Some(Request::RequestBody(HttpBody::default())),
                ..ProcessingRequest::default()
            })
            .await;
    }
    assert!(waiting.is_quiet().await);
    drop(running);
    waiting.goes_on().await;
    for _ in 0..3 {
        let response = waiting.message().await.unwrap().response;
        assert!(matches!(response, Some(Response::RequestBody(_))));
    }
}

fn assert_refused(answer: Answer, code: &str) {
    let Answer::Immediate {
        status,
        retry_after,
        body,
        ..
    } = answer
    else {
        panic!("it goes on: {answer:?}");
    };
    assert_eq!(status, 503);
    assert_eq!(body["error"]["code"], code);
    assert!(retry_after.unwrap().parse::<u32>().unwrap() >= 1);
}

//! Gateways that announce nothing about their messages, on a real connection.

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{HttpBody, HttpHeaders, ProcessingRequest};

use super::{ONE_AT_A_TIME, Service};

const BODY: &[u8] =
    br#"{"model":"llama","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;

/// Sends a request as NGINX Gateway Fabric does: no pseudo-headers, text values, the whole body, and the end of its side.
async fn send_like_nginx(service: &Service) -> super::Call {
    let mut call = service.call().await;
    let header = HeaderValue {
        key: "content-type".into(),
        value: "application/json".into(),
        ..HeaderValue::default()
    };
    let headers = Request::RequestHeaders(HttpHeaders {
        headers: Some(HeaderMap {
            headers: vec![header],
        }),
        ..HttpHeaders::default()
    });
    let body = Request::RequestBody(HttpBody {
        body: BODY.to_vec(),
        end_of_stream: true,
        ..HttpBody::default()
    });
    for request in [headers, body] {
        call.send(ProcessingRequest {
            request: Some(request),
            ..ProcessingRequest::default()
        })
        .await;
    }
    call.close();
    call
}

#[tokio::test]
async fn a_gateway_that_closes_its_side_gets_its_endpoint() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut call = send_like_nginx(&service).await;
    let answer = call.goes_on().await;
    let engine = service.engines[0].addr.to_string();
    assert_eq!(answer.destination(), Some(&*engine));
}

#[tokio::test]
async fn a_closed_side_keeps_its_place_in_the_queue() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut first = service.chat("llama").await;
    first.goes_on().await;
    let mut second = send_like_nginx(&service).await;
    assert!(second.is_quiet().await, "it is queued");
    drop(first);
    assert!(second.goes_on().await.destination().is_some());
}

//! Gateways that are no Envoy, on a real connection.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyResponse, HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration,
};

use super::call::Call;
use super::{ONE_AT_A_TIME, Service};

/// Lengths of bodies: one read, several, more than a message of gRPC has by default, and a prompt with images.
const LENGTHS: [usize; 4] = [1 << 10, 220 << 10, 5 << 20, 30 << 20];
/// Longest piece of a body that agentgateway sends.
const PIECE_BYTES: usize = 64 << 10;

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

/// A piece of a body of a request.
fn request_piece(body: Vec<u8>, end_of_stream: bool) -> Request {
    Request::RequestBody(piece(body, end_of_stream))
}

fn piece(body: Vec<u8>, end_of_stream: bool) -> HttpBody {
    HttpBody {
        body,
        end_of_stream,
        ..HttpBody::default()
    }
}

fn headers(pairs: &[(&str, &str)]) -> HttpHeaders {
    let headers = pairs.iter().map(|(key, value)| HeaderValue {
        key: (*key).into(),
        raw_value: value.as_bytes().into(),
        ..HeaderValue::default()
    });
    HttpHeaders {
        headers: Some(HeaderMap {
            headers: headers.collect(),
        }),
        ..HttpHeaders::default()
    }
}

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(request),
        ..ProcessingRequest::default()
    }
}

/// Opens a request as agentgateway does: full duplex in both directions, and no metadata.
async fn open_like_agentgateway(service: &Service) -> Call {
    let call = service.call().await;
    let mode = BodySendMode::FullDuplexStreamed.into();
    call.send(ProcessingRequest {
        request: Some(Request::RequestHeaders(headers(&[
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            ("content-type", "application/json"),
        ]))),
        protocol_config: Some(ProtocolConfiguration {
            request_body_mode: mode,
            response_body_mode: mode,
            ..ProtocolConfiguration::default()
        }),
        ..ProcessingRequest::default()
    })
    .await;
    call
}

/// The bytes of a reply that sends a piece of a body back, and whether the body ends with them.
fn echoed(body: BodyResponse) -> (Vec<u8>, bool) {
    match body.response.unwrap().body_mutation.unwrap().mutation {
        Some(Mutation::StreamedResponse(piece)) => (piece.body, piece.end_of_stream),
        other => panic!("not a piece: {other:?}"),
    }
}

/// Reads a body that comes back, up to its end.
async fn read_back(call: &mut Call) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let (piece, is_end) = match call.message().await.unwrap().response.unwrap() {
            Response::RequestBody(body) | Response::ResponseBody(body) => echoed(body),
            other => panic!("not a body: {other:?}"),
        };
        assert!(piece.len() <= PIECE_BYTES, "{} bytes", piece.len());
        bytes.extend(piece);
        if is_end {
            return bytes;
        }
    }
}

/// A chat of this length.
fn chat_of(bytes: usize) -> Vec<u8> {
    let text = "Snow fell. ".repeat(bytes / 11 + 1);
    format!(r#"{{"model":"llama","messages":[{{"role":"user","content":"{text}"}}]}}"#).into()
}

#[tokio::test]
async fn agentgateway_gets_one_endpoint_and_both_bodies_unchanged() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    for bytes in LENGTHS {
        let mut call = open_like_agentgateway(&service).await;
        let body = chat_of(bytes);
        let count = body.chunks(PIECE_BYTES).len();
        let pieces = (1..).zip(body.chunks(PIECE_BYTES));
        let pieces = pieces.map(|(number, part)| request_piece(part.into(), number == count));
        call.send_each(pieces.map(message).collect());
        let answer = call.goes_on().await;
        // The gateway parses the header as one socket address.
        let chosen: SocketAddr = answer.destination().unwrap().parse().unwrap();
        assert_eq!(chosen, service.engines[0].addr);
        assert!(read_back(&mut call).await == body, "{bytes} bytes differ");

        let response = headers(&[(":status", "200"), ("content-type", "application/json")]);
        call.send(message(Request::ResponseHeaders(response))).await;
        let reply = call.message().await.unwrap().response.unwrap();
        assert!(matches!(reply, Response::ResponseHeaders(_)), "{reply:?}");
        let answer = br#"{"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
        call.send(message(Request::ResponseBody(piece(answer.into(), true))))
            .await;
        assert_eq!(read_back(&mut call).await, answer);
        drop(call);
        service.page_with("isotherm_open_requests 0").await;
    }
    service.page_with("isotherm_held_bytes 0").await;
}

#[tokio::test]
async fn a_request_that_agentgateway_gives_up_in_its_body_is_forgotten() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let call = open_like_agentgateway(&service).await;
    let half = chat_of(PIECE_BYTES)[..PIECE_BYTES / 2].to_vec();
    let held = format!("isotherm_held_bytes {}", half.len());
    call.send(message(request_piece(half, false))).await;
    service.page_with(&held).await;
    drop(call);
    service.page_with("isotherm_held_bytes 0").await;
    service.page_with("isotherm_open_requests 0").await;
}

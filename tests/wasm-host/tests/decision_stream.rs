//! The decision stream to the service, inside the built module.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails may panic"
)]

use isotherm_decision_proto::{
    Action, ClientMessage, DecisionResponse, ImmediateResponse, METHOD, Route, SERVICE,
    ServerMessage,
};
use isotherm_fingerprint::outcome::Outcome;
use isotherm_wasm_host::{Action as FilterAction, Filter, Headers};
use prost::Message;

const CONFIGURATION: &str =
    r#"{"role":"request","default_cluster":"llama","decision_stream":{"cluster":"isotherm"}}"#;
const BODY: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"Hello?"}]}"#;

/// A filter whose decision stream is good, with a request that it holds back.
fn asked() -> (Filter, u32) {
    let mut filter = Filter::configured(CONFIGURATION).unwrap();
    assert_eq!(filter.host().tick_ms, 100);
    filter.tick().unwrap();
    assert_eq!(
        filter.host().streams,
        [format!("isotherm/{SERVICE}/{METHOD}")]
    );
    filter.stream_message(0, &[]).unwrap();
    send(&mut filter, FilterAction::Pause);
    let [message] = &*filter.host().sent else {
        panic!("{:?}", filter.host().sent);
    };
    let message = ClientMessage::decode(&**message).unwrap();
    let [ask] = &*message.requests else {
        panic!("{message:?}");
    };
    assert_eq!(ask.headers[0].name, ":method");
    assert_eq!(ask.headers[1].value, b"/v1/chat/completions");
    let id = ask.request_id;
    (filter, id)
}

fn send(filter: &mut Filter, becomes: FilterAction) {
    let request = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("x-session-id", "s"),
    ];
    filter.request_headers(headers(&request), false).unwrap();
    assert_eq!(filter.request_body(BODY, true).unwrap(), becomes);
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
    pairs.iter().map(owned).collect()
}

fn says(filter: &mut Filter, id: u32, action: Action) {
    let message = ServerMessage {
        responses: vec![DecisionResponse {
            request_id: id,
            action: Some(action),
        }],
        go_away: None,
    };
    filter.stream_message(0, &message.encode_to_vec()).unwrap();
}

fn value(filter: &Filter, name: &str) -> Option<String> {
    let headers = &filter.host().request_headers;
    let (_, value) = headers.iter().find(|(candidate, _)| candidate == name)?;
    Some(String::from_utf8(value.clone()).unwrap())
}

fn ends(filter: &Filter) -> Vec<(u32, Vec<u8>)> {
    let messages = filter.host().sent.iter();
    messages
        .flat_map(|message| ClientMessage::decode(&**message).unwrap().ends)
        .map(|end| (end.request_id, end.outcome))
        .collect()
}

#[test]
fn a_request_is_held_back_until_the_service_says_where_it_goes() {
    let (mut filter, id) = asked();
    assert_eq!(filter.host().resumed, 0);
    let routed = Route {
        destination: "10.0.0.1:8000".into(),
        ..Route::default()
    };
    says(&mut filter, id, Action::Route(routed));
    assert_eq!(filter.host().resumed, 1);
    let value = |name| value(&filter, name);
    assert_eq!(
        value("x-gateway-destination-endpoint").as_deref(),
        Some("10.0.0.1:8000")
    );
    assert_eq!(value("x-isotherm-cluster").as_deref(), Some("llama"));
    assert_eq!(value("x-isotherm-decided"), Some(id.to_string()));
    assert_eq!(value("x-isotherm-session").as_deref(), Some("s"));
    assert_eq!(
        value("x-isotherm-fingerprint"),
        None,
        "only the service reads it"
    );
}

#[test]
fn a_request_that_is_over_is_told_to_be_so() {
    let (mut filter, id) = asked();
    assert_eq!(ends(&filter), []);
    filter.over().unwrap();
    assert_eq!(ends(&filter), [], "a question may come that takes it along");
    assert_eq!(filter.host().tick_ms, 1);
    filter.tick().unwrap();
    assert_eq!(ends(&filter), [(id, Vec::new())]);
    assert_eq!(filter.host().tick_ms, 99);
}

#[test]
fn the_answer_to_a_request_is_told_on_the_decision_stream_and_the_trailers_stay_away() {
    let (mut filter, id) = asked();
    filter.host_mut().now_ns += 5_000_000;
    let routed = Route {
        destination: "10.0.0.1:8000".into(),
        ..Route::default()
    };
    says(&mut filter, id, Action::Route(routed));
    assert_eq!(
        value(&filter, "endpoint-load-metrics-format").as_deref(),
        Some("TEXT")
    );
    let served = ("upstream.address".to_owned(), "10.0.0.2:8000".to_owned());
    filter.host_mut().properties.extend([served]);
    filter.host_mut().now_ns += 4_000_000;
    let head = [(":status", "200"), ("content-type", "application/json")];
    filter.response_headers(headers(&head), false).unwrap();
    let body = br#"{"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;
    filter.response_body(body, true).unwrap();
    filter.tick().unwrap();
    let told = ends(&filter);
    let [(ended, outcome)] = &*told else {
        panic!("{told:?}");
    };
    assert_eq!(*ended, id);
    let outcome = Outcome::parse(outcome).unwrap();
    assert_eq!(outcome.status, 200);
    assert_eq!(outcome.ttft_us, Some(4_000));
    assert!(!outcome.is_stream);
    assert_eq!(
        (outcome.prompt_tokens, outcome.completion_tokens),
        (Some(9), Some(4))
    );
    assert_eq!(outcome.upstream.as_deref(), Some("10.0.0.2:8000"));
    assert_eq!(filter.host().response_trailers, Some(Headers::new()));
    assert_eq!(
        filter.host().metric("isotherm_filter_responses_with_usage"),
        1
    );
    filter.over().unwrap();
    filter.tick().unwrap();
    assert_eq!(ends(&filter).len(), 1, "it has ended once");
}

#[test]
fn an_answer_without_a_body_has_an_outcome_too() {
    let (mut filter, id) = asked();
    says(&mut filter, id, Action::Route(Route::default()));
    let head = [(":status", "500"), ("content-length", "0")];
    filter.response_headers(headers(&head), true).unwrap();
    filter.tick().unwrap();
    let told = ends(&filter);
    assert_eq!(Outcome::parse(&told[0].1).unwrap().status, 500);
}

#[test]
fn the_other_role_leaves_alone_what_was_decided_on_the_decision_stream() {
    let mut filter = Filter::configured(r#"{"role":"response","decision":true}"#).unwrap();
    let request = [
        (":path", "/v1/chat/completions"),
        ("x-isotherm-decided", "7"),
    ];
    let request = headers(&request);
    filter.request_headers(request.clone(), false).unwrap();
    assert_eq!(filter.host().request_headers, request);
    let head = headers(&[(":status", "200"), ("content-type", "application/json")]);
    filter.response_headers(head, false).unwrap();
    filter.response_body(b"{}", true).unwrap();
    assert_eq!(filter.host().response_trailers, Some(Headers::new()));
}

#[test]
fn the_service_can_answer_the_client() {
    let (mut filter, id) = asked();
    let answer = ImmediateResponse {
        status: 503,
        headers: Vec::new(),
        body: b"full".to_vec(),
    };
    says(&mut filter, id, Action::ImmediateResponse(answer));
    assert_eq!(filter.host().replied, Some((503, b"full".to_vec())));
    assert_eq!(filter.host().resumed, 0);
}

#[test]
fn a_decision_stream_that_breaks_leaves_its_requests_to_external_processing() {
    let (mut filter, _) = asked();
    filter.stream_closed(0).unwrap();
    assert_eq!(filter.host().resumed, 1);
    assert!(value(&filter, "x-isotherm-fingerprint").is_some());
    assert_eq!(value(&filter, "x-isotherm-decided"), None);
    assert_eq!(
        filter
            .host()
            .metric("isotherm_filter_decision_stream_fallbacks"),
        1
    );
}

#[test]
fn without_a_decision_stream_yet_a_request_goes_on_at_once() {
    let mut filter = Filter::configured(CONFIGURATION).unwrap();
    send(&mut filter, FilterAction::Continue);
    assert!(value(&filter, "x-isotherm-fingerprint").is_some());
    assert_eq!(filter.host().sent.len(), 0);
}

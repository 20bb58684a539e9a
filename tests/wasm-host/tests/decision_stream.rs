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
use isotherm_fingerprint::session::SessionSecret;
use isotherm_wasm_host::{Action as FilterAction, Filter, Headers, headers};
use prost::Message;

const CONFIGURATION: &str =
    r#"{"role":"request","default_cluster":"llama","decision_stream":{"cluster":"isotherm"}}"#;
const BODY: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"Hello?"}]}"#;

/// A filter with an open decision stream and a paused request; and the number of the request.
fn request_on_stream() -> (Filter, u32) {
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
    let [request] = &*message.requests else {
        panic!("{message:?}");
    };
    assert_eq!(request.headers[0].name, ":method");
    assert_eq!(request.headers[1].value, b"/v1/chat/completions");
    let id = request.request_id;
    (filter, id)
}

fn send(filter: &mut Filter, expected: FilterAction) {
    let request = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("x-session-id", "s"),
    ];
    filter.request_headers(headers(&request), false).unwrap();
    assert_eq!(filter.request_body(BODY, true).unwrap(), expected);
}

fn respond(filter: &mut Filter, id: u32, action: Action) {
    let message = ServerMessage {
        responses: vec![DecisionResponse {
            request_id: id,
            action: Some(action),
        }],
        go_away: None,
    };
    filter.stream_message(0, &message.encode_to_vec()).unwrap();
}

fn ends(filter: &Filter) -> Vec<(u32, Vec<u8>)> {
    let messages = filter.host().sent.iter();
    messages
        .flat_map(|message| ClientMessage::decode(&**message).unwrap().ends)
        .map(|end| (end.request_id, end.outcome))
        .collect()
}

#[test]
fn a_request_pauses_until_the_service_decides() {
    let (mut filter, id) = request_on_stream();
    assert_eq!(filter.host().resumed, 0);
    let routed = Route {
        destination: "10.0.0.1:8000".into(),
        ..Route::default()
    };
    respond(&mut filter, id, Action::Route(routed));
    assert_eq!(filter.host().resumed, 1);
    let header = |name| filter.host().request_header(name);
    assert_eq!(
        header("x-gateway-destination-endpoint"),
        Some("10.0.0.1:8000")
    );
    assert_eq!(header("x-isotherm-cluster"), Some("llama"));
    assert_eq!(header("x-isotherm-decided"), Some(&*id.to_string()));
    let session = SessionSecret::default().hash(b"s");
    assert_eq!(header("x-isotherm-session"), Some(&*session));
    assert_eq!(
        header("x-isotherm-fingerprint"),
        None,
        "only the service reads it"
    );
}

#[test]
fn the_decision_and_the_usage_go_to_the_access_log() {
    let (mut filter, id) = request_on_stream();
    assert_eq!(filter.host().filter_state["isotherm.model"], "m");
    let routed = Route {
        destination: "10.0.0.1:8000".into(),
        reason: "prefix".into(),
        queued_ms: 12,
        ..Route::default()
    };
    respond(&mut filter, id, Action::Route(routed));
    let head = [(":status", "200"), ("content-type", "application/json")];
    filter.response_headers(headers(&head), false).unwrap();
    let usage = br#"{"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    filter.response_body(usage, true).unwrap();
    let state = filter.host().filter_state.iter();
    let state: Vec<_> = state
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        state,
        [
            "isotherm.cached_tokens=4",
            "isotherm.model=m",
            "isotherm.output_tokens=2",
            "isotherm.prompt_tokens=9",
            "isotherm.queued_ms=12",
            "isotherm.reason=prefix",
        ]
    );
}

#[test]
fn a_named_prefill_replica_reaches_the_engine_and_the_first_token_the_service() {
    let (mut filter, id) = request_on_stream();
    let routed = Route {
        destination: "10.0.0.1:8000".into(),
        prefiller: "10.0.0.9:8000".into(),
        ..Route::default()
    };
    respond(&mut filter, id, Action::Route(routed));
    let prefiller = filter.host().request_header("x-prefiller-host-port");
    assert_eq!(prefiller, Some("10.0.0.9:8000"));
    let head = [(":status", "200"), ("content-type", "text/event-stream")];
    filter.response_headers(headers(&head), false).unwrap();
    filter.response_body(b"data: {}\n\n", false).unwrap();
    filter.tick().unwrap();
    let messages = filter.host().sent.iter();
    let starts = messages.flat_map(|message| ClientMessage::decode(&**message).unwrap().starts);
    assert_eq!(starts.collect::<Vec<_>>(), [id]);
}

#[test]
fn the_filter_reports_the_end_of_a_request_with_the_next_batch() {
    let (mut filter, id) = request_on_stream();
    assert_eq!(ends(&filter), []);
    filter.over().unwrap();
    assert_eq!(ends(&filter), [], "the report waits for the next batch");
    assert_eq!(filter.host().tick_ms, 1);
    filter.tick().unwrap();
    assert_eq!(ends(&filter), [(id, Vec::new())]);
    assert_eq!(filter.host().tick_ms, 99);
}

#[test]
fn the_outcome_goes_over_the_decision_stream_and_not_into_trailers() {
    let (mut filter, id) = request_on_stream();
    filter.host_mut().now_ns += 5_000_000;
    let routed = Route {
        destination: "10.0.0.1:8000".into(),
        ..Route::default()
    };
    respond(&mut filter, id, Action::Route(routed));
    assert_eq!(
        filter.host().request_header("endpoint-load-metrics-format"),
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
    let ended_requests = ends(&filter);
    let [(ended, outcome)] = &*ended_requests else {
        panic!("{ended_requests:?}");
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
    assert_eq!(ends(&filter).len(), 1, "the filter reports an end once");
}

#[test]
fn the_outcome_tells_what_the_proxy_did_itself() {
    let of = |status: &str, properties: &[(&str, &str)]| {
        let (mut filter, id) = request_on_stream();
        let routed = Route {
            destination: "10.0.0.1:8000,10.0.0.2:8000".into(),
            ..Route::default()
        };
        respond(&mut filter, id, Action::Route(routed));
        let properties = properties.iter();
        let properties = properties.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        filter.host_mut().properties.extend(properties);
        let head = headers(&[(":status", status), ("content-length", "0")]);
        filter.response_headers(head, true).unwrap();
        filter.tick().unwrap();
        Outcome::parse(&ends(&filter)[0].1).unwrap()
    };
    let selected = ("upstream.address", "10.0.0.1:8000");
    let limited = of("429", &[("response.code_details", "request_rate_limited")]);
    assert!(limited.is_unsent && !limited.is_timeout);
    let late = ("response.code_details", "upstream_per_try_timeout");
    let late = of("504", &[selected, late]);
    assert!(late.is_timeout && !late.is_unsent && !late.is_broken);
    let own = of(
        "504",
        &[selected, ("response.code_details", "via_upstream")],
    );
    assert!(!own.is_timeout && !own.is_unsent && own.attempts.is_none());

    let elsewhere = [
        ("upstream.address", "10.0.0.9:8000"),
        ("upstream.request_attempt_count", "\u{1}\0\0\0\0\0\0\0"),
        ("xds.cluster_name", "outbound|8000||old.llm"),
    ];
    let elsewhere = of("200", &elsewhere);
    assert_eq!(elsewhere.attempts, Some(1));
    assert_eq!(elsewhere.cluster.as_deref(), Some("outbound|8000||old.llm"));
}

#[test]
fn a_response_without_a_body_has_an_outcome() {
    let (mut filter, id) = request_on_stream();
    respond(&mut filter, id, Action::Route(Route::default()));
    let head = [(":status", "500"), ("content-length", "0")];
    filter.response_headers(headers(&head), true).unwrap();
    filter.tick().unwrap();
    let ended_requests = ends(&filter);
    assert_eq!(Outcome::parse(&ended_requests[0].1).unwrap().status, 500);
}

#[test]
fn the_response_role_ignores_a_request_decided_on_the_stream() {
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
fn the_service_can_respond_to_the_client() {
    let (mut filter, id) = request_on_stream();
    let answer = ImmediateResponse {
        replica: String::new(),
        status: 503,
        headers: Vec::new(),
        body: b"full".to_vec(),
        ..ImmediateResponse::default()
    };
    respond(&mut filter, id, Action::ImmediateResponse(answer));
    assert_eq!(filter.host().replied, Some((503, b"full".to_vec())));
    assert_eq!(filter.host().resumed, 0);
}

#[test]
fn requests_of_a_broken_decision_stream_fall_back_to_external_processing() {
    let (mut filter, _) = request_on_stream();
    filter.stream_closed(0).unwrap();
    assert_eq!(filter.host().resumed, 1);
    assert!(
        filter
            .host()
            .request_header("x-isotherm-fingerprint")
            .is_some()
    );
    assert_eq!(filter.host().request_header("x-isotherm-decided"), None);
    assert_eq!(
        filter
            .host()
            .metric("isotherm_filter_decision_stream_fallbacks"),
        1
    );
}

#[test]
fn a_request_before_the_decision_stream_is_open_continues_at_once() {
    let mut filter = Filter::configured(CONFIGURATION).unwrap();
    send(&mut filter, FilterAction::Continue);
    assert!(
        filter
            .host()
            .request_header("x-isotherm-fingerprint")
            .is_some()
    );
    assert_eq!(filter.host().sent.len(), 0);
}

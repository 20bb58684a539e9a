//! The role in front of the external processor, inside the built module.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_wasm_host::{Action, Filter, Headers};

const CHAT: &str = r#"{"model":"llama","user":"u-1","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;
const USUAL: &str = r#"{"role":"request","pools":[{"models":["llama"],"cluster":"llama-pool"}],"default_cluster":"rest"}"#;

fn headers(more: &[(&str, &str)]) -> Headers {
    [
        (":path", "/v1/chat/completions"),
        ("content-type", "application/json"),
    ]
    .iter()
    .chain(more)
    .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
    .collect()
}

fn value(filter: &Filter, name: &str) -> Option<String> {
    let headers = &filter.host().request_headers;
    let found = headers.iter().find(|(candidate, _)| candidate == name);
    found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
}

#[test]
fn a_request_is_held_back_until_its_body_was_read() {
    let mut filter = Filter::configured(USUAL).unwrap();
    assert_eq!(
        filter.request_headers(headers(&[]), false).unwrap(),
        Action::Pause
    );
    let (first, last) = CHAT.split_at(30);
    assert_eq!(
        filter.request_body(first.as_bytes(), false).unwrap(),
        Action::Pause
    );
    assert_eq!(
        filter.request_body(last.as_bytes(), true).unwrap(),
        Action::Continue
    );
    assert_eq!(
        filter.host().body_bytes_read,
        CHAT.len(),
        "each byte is read once"
    );
    assert_eq!(value(&filter, "x-isotherm-model").as_deref(), Some("llama"));
    assert_eq!(value(&filter, "x-isotherm-session").as_deref(), Some("u-1"));
    assert_eq!(
        value(&filter, "x-isotherm-cluster").as_deref(),
        Some("llama-pool")
    );
    assert!(value(&filter, "x-isotherm-fingerprint").is_some());
    assert_eq!(filter.host().metric("isotherm_filter_prompts_complete"), 1);
    assert_eq!(
        filter.host().metric("isotherm_filter_body_bytes"),
        CHAT.len() as u64
    );
    filter.over().unwrap();
}

#[test]
fn a_body_in_single_bytes_comes_to_the_same() {
    let mut whole = Filter::configured(USUAL).unwrap();
    whole.request_headers(headers(&[]), false).unwrap();
    whole.request_body(CHAT.as_bytes(), true).unwrap();

    let mut bytes = Filter::configured(USUAL).unwrap();
    bytes.request_headers(headers(&[]), false).unwrap();
    for byte in CHAT.as_bytes() {
        assert_eq!(bytes.request_body(&[*byte], false).unwrap(), Action::Pause);
    }
    assert_eq!(bytes.request_body(&[], true).unwrap(), Action::Continue);
    assert_eq!(bytes.host().request_headers, whole.host().request_headers);
}

#[test]
fn forged_headers_are_removed() {
    let mut filter = Filter::configured(USUAL).unwrap();
    let forged = [
        ("x-isotherm-fingerprint", "forged"),
        ("x-isotherm-anything", "forged"),
        ("x-gateway-destination-endpoint", "10.0.0.1:80"),
    ];
    filter.request_headers(headers(&forged), false).unwrap();
    filter.request_body(CHAT.as_bytes(), true).unwrap();
    assert_ne!(
        value(&filter, "x-isotherm-fingerprint").as_deref(),
        Some("forged")
    );
    assert_eq!(value(&filter, "x-isotherm-anything"), None);
    assert_eq!(value(&filter, "x-gateway-destination-endpoint"), None);
}

#[test]
fn a_body_is_let_go_before_the_buffer_is_full() {
    let configuration = r#"{"role":"request","buffer_bytes_max":10000}"#;
    let mut filter = Filter::configured(configuration).unwrap();
    filter.request_headers(headers(&[]), false).unwrap();
    let prompt = format!(r#"{{"model":"llama","prompt":"{}"#, "word ".repeat(10_000));
    let mut pieces = prompt.as_bytes().chunks(4_000);
    for action in [
        Action::Pause,
        Action::Pause,
        Action::Continue,
        Action::Continue,
    ] {
        assert_eq!(
            filter.request_body(pieces.next().unwrap(), false).unwrap(),
            action
        );
    }
    assert_eq!(
        filter.host().body_bytes_read,
        12_000,
        "what comes later is not read"
    );
    assert_eq!(value(&filter, "x-isotherm-model").as_deref(), Some("llama"));
    assert_eq!(filter.host().metric("isotherm_filter_prompts_partial"), 1);
}

#[test]
fn over_http1_a_body_that_outgrows_the_buffer_is_let_go_with_its_first_piece() {
    for (protocol, action) in [("HTTP/1.1", Action::Continue), ("HTTP/2", Action::Pause)] {
        let mut filter = Filter::configured(USUAL).unwrap();
        filter
            .host_mut()
            .properties
            .insert("request.protocol".to_owned(), protocol.to_owned());
        filter
            .request_headers(headers(&[("content-length", "30000000")]), false)
            .unwrap();
        assert_eq!(
            filter.request_body(CHAT.as_bytes(), false).unwrap(),
            action,
            "{protocol}"
        );
    }
}

#[test]
fn a_request_that_ends_with_trailers_is_let_go_by_them() {
    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(headers(&[]), false).unwrap();
    filter.request_body(CHAT.as_bytes(), false).unwrap();
    assert_eq!(filter.request_trailers().unwrap(), Action::Continue);
    assert!(value(&filter, "x-isotherm-fingerprint").is_some());
}

#[test]
fn what_cannot_be_read_is_never_held_back_and_counted() {
    for (more, is_end, metric) in [
        (
            ("content-encoding", "gzip"),
            false,
            "isotherm_filter_skipped_content_encoding",
        ),
        (("x-nothing", "1"), true, "isotherm_filter_skipped_no_body"),
    ] {
        let mut filter = Filter::configured(USUAL).unwrap();
        let client = ("source.address".to_owned(), "192.0.2.7:50000".to_owned());
        filter.host_mut().properties.extend([client]);
        assert_eq!(
            filter.request_headers(headers(&[more]), is_end).unwrap(),
            Action::Continue
        );
        assert_eq!(
            value(&filter, "x-isotherm-session").as_deref(),
            Some("192.0.2.7")
        );
        assert_eq!(
            value(&filter, "x-isotherm-cluster").as_deref(),
            Some("rest")
        );
        assert_eq!(filter.host().metric(metric), 1);
    }
    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(headers(&[]), false).unwrap();
    assert_eq!(
        filter.request_body(b"\xff\x00 nonsense", true).unwrap(),
        Action::Continue
    );
    assert_eq!(filter.host().metric("isotherm_filter_skipped_not_json"), 1);
}

#[test]
fn header_values_may_hold_any_bytes() {
    let mut filter = Filter::configured(USUAL).unwrap();
    let mut any = headers(&[]);
    any.push(("x-session-id".to_owned(), vec![0xff, 0xfe, b' ', b'a']));
    filter.request_headers(any, true).unwrap();
    assert_eq!(
        value(&filter, "x-isotherm-session").as_deref(),
        Some("%FF%FE%20a")
    );
}

#[test]
fn the_outcome_never_reaches_a_client() {
    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(headers(&[]), true).unwrap();
    let trailers = [("x-isotherm-outcome", "v=1;status=200"), ("x-own", "1")];
    let trailers = trailers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    filter.response_trailers(trailers.to_vec()).unwrap();
    assert_eq!(
        filter.host().response_trailers,
        Some(vec![("x-own".to_owned(), b"1".to_vec())])
    );
}

#[test]
fn a_bad_configuration_is_refused_with_a_line_that_says_why() {
    let error = Filter::configured(r#"{"role":"request","sesion":[]}"#)
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown field `sesion`"), "{error}");
    assert!(Filter::configured("").is_err());
}

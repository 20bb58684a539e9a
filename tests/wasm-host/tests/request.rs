//! The role in front of the external processor, inside the built module.

use isotherm_fingerprint::session::SessionSecret;
use isotherm_wasm_host::{Action, Filter, Headers, headers};

const CHAT: &str = r#"{"model":"llama","user":"u-1","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;
const USUAL: &str = r#"{"role":"request","pools":[{"models":["llama"],"cluster":"llama-pool"}],"default_cluster":"rest"}"#;

fn request(more: &[(&str, &str)]) -> Headers {
    let usual = [
        (":path", "/v1/chat/completions"),
        ("content-type", "application/json"),
    ];
    headers(&[&usual, more].concat())
}

#[test]
fn a_request_pauses_until_its_body_is_complete() {
    let mut filter = Filter::configured(USUAL).unwrap();
    assert_eq!(
        filter.request_headers(request(&[]), false).unwrap(),
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
    assert_eq!(
        filter.host().request_header("x-isotherm-model"),
        Some("llama")
    );
    assert_eq!(
        filter.host().request_header("x-isotherm-session"),
        Some(&*SessionSecret::default().hash(b"u-1"))
    );
    assert_eq!(
        filter.host().request_header("x-isotherm-cluster"),
        Some("llama-pool")
    );
    assert!(
        filter
            .host()
            .request_header("x-isotherm-fingerprint")
            .is_some()
    );
    assert_eq!(filter.host().metric("isotherm_filter_prompts_complete"), 1);
    assert_eq!(
        filter.host().metric("isotherm_filter_body_bytes"),
        CHAT.len() as u64
    );
    filter.over().unwrap();
}

#[test]
fn a_body_in_single_bytes_gives_the_same_headers() {
    let mut whole = Filter::configured(USUAL).unwrap();
    whole.request_headers(request(&[]), false).unwrap();
    whole.request_body(CHAT.as_bytes(), true).unwrap();

    let mut bytes = Filter::configured(USUAL).unwrap();
    bytes.request_headers(request(&[]), false).unwrap();
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
        ("x-prefiller-host-port", "10.0.0.1:80"),
        ("x-llm-d-prefiller-host-port", "10.0.0.1:80"),
    ];
    filter.request_headers(request(&forged), false).unwrap();
    filter.request_body(CHAT.as_bytes(), true).unwrap();
    for (name, value) in forged {
        assert_ne!(filter.host().request_header(name), Some(value), "{name}");
    }
    assert_ne!(
        filter.host().request_header("x-isotherm-fingerprint"),
        Some("forged")
    );
    assert_eq!(filter.host().request_header("x-isotherm-anything"), None);
    assert_eq!(
        filter
            .host()
            .request_header("x-gateway-destination-endpoint"),
        None
    );
}

#[test]
fn a_body_continues_before_the_buffer_is_full() {
    let configuration = r#"{"role":"request","buffer_bytes_max":10000}"#;
    let mut filter = Filter::configured(configuration).unwrap();
    filter.request_headers(request(&[]), false).unwrap();
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
        "the filter read bytes after the limit"
    );
    assert_eq!(
        filter.host().request_header("x-isotherm-model"),
        Some("llama")
    );
    assert_eq!(filter.host().metric("isotherm_filter_prompts_partial"), 1);
}

#[test]
fn over_http1_a_body_larger_than_the_buffer_continues_with_its_first_piece() {
    for (protocol, action) in [("HTTP/1.1", Action::Continue), ("HTTP/2", Action::Pause)] {
        let mut filter = Filter::configured(USUAL).unwrap();
        filter
            .host_mut()
            .properties
            .insert("request.protocol".to_owned(), protocol.to_owned());
        filter
            .request_headers(request(&[("content-length", "30000000")]), false)
            .unwrap();
        assert_eq!(
            filter.request_body(CHAT.as_bytes(), false).unwrap(),
            action,
            "{protocol}"
        );
    }
}

#[test]
fn a_request_that_ends_with_trailers_continues() {
    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(request(&[]), false).unwrap();
    filter.request_body(CHAT.as_bytes(), false).unwrap();
    assert_eq!(filter.request_trailers().unwrap(), Action::Continue);
    assert!(
        filter
            .host()
            .request_header("x-isotherm-fingerprint")
            .is_some()
    );
}

#[test]
fn unreadable_requests_continue_and_are_counted() {
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
            filter.request_headers(request(&[more]), is_end).unwrap(),
            if is_end {
                Action::Continue
            } else {
                Action::Pause
            }
        );
        if !is_end {
            let action = filter.request_body(b"bytes", true).unwrap();
            assert_eq!(action, Action::Continue);
        }
        assert_eq!(
            filter.host().request_header("x-isotherm-session"),
            Some(&*SessionSecret::default().hash(b"192.0.2.7"))
        );
        assert_eq!(
            filter.host().request_header("x-isotherm-cluster"),
            Some("rest")
        );
        assert_eq!(filter.host().metric(metric), 1);
    }
    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(request(&[]), false).unwrap();
    assert_eq!(
        filter.request_body(b"\xff\x00 nonsense", true).unwrap(),
        Action::Continue
    );
    assert_eq!(filter.host().metric("isotherm_filter_skipped_not_json"), 1);

    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(request(&[]), false).unwrap();
    let twice = br#"{"messages":[{"role":"user","content":"a long claim","c\u006fntent":"hi"}]}"#;
    assert_eq!(filter.request_body(twice, true).unwrap(), Action::Continue);
    assert_eq!(filter.host().request_header("x-isotherm-fingerprint"), None);
    let metric = "isotherm_filter_skipped_repeated_member";
    assert_eq!(filter.host().metric(metric), 1);
}

#[test]
fn header_values_may_hold_any_bytes() {
    let mut filter = Filter::configured(USUAL).unwrap();
    let mut any = request(&[]);
    any.push(("x-session-id".to_owned(), vec![0xff, 0xfe, b' ', b'a']));
    filter.request_headers(any, true).unwrap();
    assert_eq!(
        filter.host().request_header("x-isotherm-session"),
        Some(&*SessionSecret::default().hash(b"\xff\xfe a"))
    );
}

#[test]
fn the_outcome_never_reaches_a_client() {
    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(request(&[]), true).unwrap();
    let trailers = [("x-isotherm-outcome", "v=1;status=200"), ("x-own", "1")];
    filter.response_trailers(headers(&trailers)).unwrap();
    assert_eq!(
        filter.host().response_trailers,
        Some(headers(&[("x-own", "1")]))
    );
}

#[test]
fn an_invalid_configuration_is_refused_with_the_reason() {
    let error = Filter::configured(r#"{"role":"request","sesion":[]}"#)
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown field `sesion`"), "{error}");
}

#[test]
fn no_configuration_is_a_request_role_that_reads_prompts() {
    let mut filter = Filter::configured("").unwrap();
    filter.request_headers(request(&[]), false).unwrap();
    filter.request_body(CHAT.as_bytes(), true).unwrap();
    let header = |name| filter.host().request_header(name);
    assert!(header("x-isotherm-fingerprint").is_some());
    assert_eq!(header("x-isotherm-cluster"), None);
}

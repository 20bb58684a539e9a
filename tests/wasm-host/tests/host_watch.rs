//! A host that withholds the bodies of held requests, or that buffers less than the filter knows.
#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test that fails may panic"
)]

use isotherm_fingerprint::session::SessionSecret;
use isotherm_wasm_host::{Action, Filter, Headers, headers};

const CHAT: &str =
    r#"{"model":"llama","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;
const USUAL: &str = r#"{"default_cluster":"rest"}"#;
const WITH_STREAM: &str = r#"{"default_cluster":"rest","decision_stream":{"cluster":"isotherm"}}"#;
/// The period of the timer of bodies.
const BODY_TICK_MS: u32 = 1_000;
const WITHHELD: &str = "isotherm_filter_skipped_body_withheld";

fn request() -> Headers {
    headers(&[
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("x-session-id", "s"),
    ])
}

/// Sets the number of bytes that the host has received, headers included.
fn set_received(filter: &mut Filter, bytes: u64) {
    let value = String::from_utf8(bytes.to_le_bytes().to_vec()).unwrap();
    let property = ("request.total_size".to_owned(), value);
    filter.host_mut().properties.extend([property]);
}

/// Sends a request to a host that withholds its body, until the filter releases it.
fn send_withheld(filter: &mut Filter) {
    set_received(filter, 50);
    let resumed = filter.host().resumed;
    let action = filter.request_headers(request(), false).unwrap();
    assert_eq!(action, Action::Pause);
    set_received(filter, 100);
    for _ in 0..3 {
        filter.tick().unwrap();
        if filter.host().resumed > resumed {
            break;
        }
    }
    assert_eq!(filter.host().resumed, resumed + 1);
    let action = filter.request_body(CHAT.as_bytes(), true).unwrap();
    assert_eq!(action, Action::Continue, "the body follows at once");
}

fn errors(filter: &Filter) -> usize {
    let lines = filter.host().log.iter();
    lines
        .filter(|line| line.contains("allow_on_headers_stop_iteration"))
        .count()
}

#[test]
fn a_host_that_withholds_bodies_is_found_out_and_named_once() {
    let mut filter = Filter::configured(USUAL).unwrap();
    send_withheld(&mut filter);
    assert_eq!(
        filter.host().request_header("x-isotherm-session"),
        Some(&*SessionSecret::default().hash(b"s"))
    );
    assert_eq!(
        errors(&filter),
        0,
        "a single request might be a coincidence"
    );
    send_withheld(&mut filter);
    assert_eq!(errors(&filter), 1);
    for _ in 0..3 {
        let action = filter.request_headers(request(), false).unwrap();
        assert_eq!(action, Action::Continue);
    }
    assert_eq!(errors(&filter), 1);
    assert_eq!(filter.host().metric(WITHHELD), 5);
    assert_eq!(
        filter.host().request_header("x-isotherm-cluster"),
        Some("rest")
    );
    filter.tick().unwrap();
    assert_eq!(filter.host().tick_ms, BODY_TICK_MS, "the watch is over");
}

#[test]
fn the_decision_stream_decides_by_the_headers_where_the_body_is_withheld() {
    let mut filter = Filter::configured(WITH_STREAM).unwrap();
    filter.tick().unwrap();
    filter.stream_message(0, &[]).unwrap();
    send_withheld(&mut filter);
    send_withheld(&mut filter);
    assert!(filter.host().sent.is_empty());
    let action = filter.request_headers(request(), false).unwrap();
    assert_eq!(action, Action::Pause);
    assert_eq!(filter.host().sent.len(), 1);
    filter.tick().unwrap();
    filter.tick().unwrap();
    assert_eq!(filter.host().tick_ms, 100, "the period of the stream");
}

#[test]
fn a_body_that_arrives_ends_the_watch() {
    let mut filter = Filter::configured(USUAL).unwrap();
    set_received(&mut filter, 50);
    filter.request_headers(request(), false).unwrap();
    assert_eq!(filter.host().tick_ms, 10);
    filter.request_body(CHAT.as_bytes(), true).unwrap();
    filter.tick().unwrap();
    assert_eq!(filter.host().tick_ms, BODY_TICK_MS);
    assert_eq!(filter.host().resumed, 0);
    assert!(
        filter
            .host()
            .request_header("x-isotherm-fingerprint")
            .is_some()
    );
    assert_eq!(filter.host().metric(WITHHELD), 0);
}

#[test]
fn requests_without_bodies_take_no_tenant_and_no_prompt_from_others() {
    let configuration = r#"{"default_cluster":"rest","tenant_sources":[{"header":"x-tenant-id"}]}"#;
    let mut filter = Filter::configured(configuration).unwrap();
    set_received(&mut filter, 50);
    // More than the filter watches at a time.
    for _ in 0..1_100 {
        filter.begin_request().unwrap();
        let action = filter.request_headers(request(), false).unwrap();
        assert_eq!(action, Action::Pause);
    }
    for _ in 0..2 {
        let mut headers = request();
        headers.push(("x-tenant-id".to_owned(), b"team-a".to_vec()));
        filter.begin_request().unwrap();
        filter.request_headers(headers, false).unwrap();
        let (start, end) = CHAT.split_at(20);
        let action = filter.request_body(start.as_bytes(), false).unwrap();
        assert_eq!(action, Action::Pause);
        let action = filter.request_body(end.as_bytes(), true).unwrap();
        assert_eq!(action, Action::Continue);
        let host = filter.host();
        for (name, value) in [
            ("tenant", "team-a"),
            ("model", "llama"),
            ("cluster", "rest"),
        ] {
            let name = format!("x-isotherm-{name}");
            assert_eq!(host.request_header(&name), Some(value), "{name}");
        }
        assert!(host.request_header("x-isotherm-fingerprint").is_some());
    }
    filter.tick().unwrap();
    assert_eq!(filter.host().tick_ms, BODY_TICK_MS, "the watch is over");
}

#[test]
fn a_request_without_a_byte_of_its_body_stays_held() {
    let mut filter = Filter::configured(USUAL).unwrap();
    set_received(&mut filter, 50);
    filter.request_headers(request(), false).unwrap();
    for _ in 0..1_000 {
        filter.tick().unwrap();
    }
    assert_eq!(filter.host().resumed, 0);
    let action = filter.request_body(CHAT.as_bytes(), true).unwrap();
    assert_eq!(action, Action::Continue);
    assert_eq!(filter.host().metric(WITHHELD), 0, "its prompt was read");
    assert_eq!(errors(&filter), 0);
}

#[test]
fn a_413_of_the_host_names_the_key_and_lowers_the_limit() {
    let mut filter = Filter::configured(USUAL).unwrap();
    filter.request_headers(request(), false).unwrap();
    filter.request_body(&[b' '; 20_000], false).unwrap();
    filter.request_body(&[b' '; 20_000], false).unwrap();
    let details = ("response.code_details", "request_payload_too_large");
    let details = (details.0.to_owned(), details.1.to_owned());
    filter.host_mut().properties.extend([details]);
    let response = headers(&[(":status", "413")]);
    filter.response_headers(response.clone(), false).unwrap();
    let line = filter.host().log.join("\n");
    assert!(line.contains("request_body_buffer_limit"), "{line}");
    assert!(line.contains("a limit of 20000 bytes"), "{line}");
    assert_eq!(filter.host().metric("isotherm_filter_buffer_exceeded"), 1);

    let mut long = request();
    long.push(("content-length".to_owned(), b"20001".to_vec()));
    filter.request_headers(long, false).unwrap();
    let action = filter.request_body(&[b' '; 10_000], false).unwrap();
    assert_eq!(action, Action::Continue, "the body does not fit");
    filter.response_headers(response, false).unwrap();
    let exceeded = filter.host().metric("isotherm_filter_buffer_exceeded");
    assert_eq!(exceeded, 1, "this 413 is not the buffer's");
}

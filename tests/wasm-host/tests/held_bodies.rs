//! Bodies that the filter cannot read or that come slowly, inside the built module.
#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test that fails may panic"
)]

use isotherm_fingerprint::session::SessionSecret;
use isotherm_wasm_host::{Action, Filter, Headers, headers};

const CHAT: &str = r#"{"model":"llama","messages":[]}"#;
const USUAL: &str = r#"{"default_cluster":"rest","body_timeout_ms":8000}"#;
const TIMEOUTS: &str = "isotherm_filter_body_timeouts";
/// The ticks after which the time of a body without bytes is over.
const TICKS: usize = 10;

fn request(more: (&str, &str)) -> Headers {
    headers(&[
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("x-session-id", "s"),
        more,
    ])
}

fn has_continued(filter: &Filter) -> bool {
    filter.host().request_header("x-isotherm-cluster").is_some()
}

/// Fires the timer until the time of a body without bytes is over.
fn wait(filter: &mut Filter) {
    for _ in 0..TICKS {
        filter.tick().unwrap();
    }
}

#[test]
fn a_step_of_the_wall_clock_makes_no_body_late_and_no_token_slow() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let mut filter = Filter::configured(USUAL).unwrap();
    let body = br#"{"model":"llama","prompt":"hi"}"#;
    let more = ("content-type", "application/json");
    filter.request_headers(request(more), false).unwrap();
    filter.request_body(&body[..9], false).unwrap();
    filter.tick().unwrap();
    filter.host_mut().wall_step_ns = HOUR_NS;
    filter.tick().unwrap();
    filter.tick().unwrap();
    assert_eq!(filter.host().replied, None, "no 408");
    let action = filter.request_body(&body[9..], true).unwrap();
    assert_eq!(action, Action::Continue);
}

#[test]
fn a_body_that_the_filter_cannot_read_is_held_to_its_end_without_a_copy() {
    for (more, metric, bytes_read) in [
        (("content-encoding", "gzip"), "content_encoding", 0),
        // The first piece shows that it is no JSON.
        (
            ("content-type", "text/plain"),
            "not_json",
            b"some bytes".len(),
        ),
    ] {
        let mut filter = Filter::configured(USUAL).unwrap();
        let action = filter.request_headers(request(more), false).unwrap();
        assert_eq!(action, Action::Pause, "{metric}");
        for _ in 0..3 {
            let action = filter.request_body(b"some bytes", false).unwrap();
            assert_eq!(action, Action::Pause, "{metric}");
        }
        assert!(!has_continued(&filter));
        let action = filter.request_body(b"the end", true).unwrap();
        assert_eq!(action, Action::Continue, "{metric}");
        assert!(has_continued(&filter));
        assert_eq!(
            filter.host().request_header("x-isotherm-session"),
            Some(&*SessionSecret::default().hash(b"s"))
        );
        assert_eq!(filter.host().body_bytes_read, bytes_read, "{metric}");
        let metric = format!("isotherm_filter_skipped_{metric}");
        assert_eq!(filter.host().metric(&metric), 1);
    }
}

#[test]
fn a_body_of_an_unknown_api_is_held_too_and_an_upgrade_is_not() {
    let configuration = r#"{"default_cluster":"rest","paths":["/v1/files","/v1/realtime"]}"#;
    let mut filter = Filter::configured(configuration).unwrap();
    let upload = headers(&[(":method", "POST"), (":path", "/v1/files")]);
    let action = filter.request_headers(upload.clone(), false).unwrap();
    assert_eq!(action, Action::Pause);
    let action = filter.request_body(b"anything", true).unwrap();
    assert_eq!(action, Action::Continue);
    let action = filter.request_headers(upload, true).unwrap();
    assert_eq!(action, Action::Continue, "it has no body");

    let mut filter = Filter::configured(configuration).unwrap();
    let upgrade = headers(&[
        (":method", "GET"),
        (":path", "/v1/realtime"),
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
    ]);
    let action = filter.request_headers(upgrade, false).unwrap();
    assert_eq!(action, Action::Continue);
}

#[test]
fn a_request_of_another_application_is_neither_held_nor_read_nor_marked() {
    let configuration = r#"{"default_cluster":"rest","paths":["*"],"hide_cache":true}"#;
    for path in ["/files/a", "/demo.Echo/Bidi", "/metrics"] {
        let mut filter = Filter::configured(configuration).unwrap();
        let theirs = [
            (":method", "POST"),
            (":path", path),
            ("accept-encoding", "gzip"),
        ];
        let own = [("x-isotherm-cluster", "forged")];
        let request = headers(&[&theirs[..], &own].concat());
        let action = filter.request_headers(request, false).unwrap();
        assert_eq!(action, Action::Continue, "{path}");
        for is_end in [false, true] {
            let action = filter.request_body(&[b'x'; 100_000], is_end).unwrap();
            assert_eq!(action, Action::Continue, "{path}");
        }
        assert_eq!(filter.host().request_headers, headers(&theirs), "{path}");
        assert_eq!(filter.host().metric("isotherm_filter_passed_paths"), 1);

        let response = headers(&[
            (":status", "200"),
            ("content-type", "application/json"),
            ("content-length", "60"),
            ("endpoint-load-metrics", "theirs"),
        ]);
        filter.response_headers(response.clone(), false).unwrap();
        let usage = br#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}"#;
        filter.response_body(usage, true).unwrap();
        assert_eq!(filter.host().response_headers, response, "{path}");
        assert_eq!(filter.host().body_bytes_read, 0, "{path}");
    }
}

#[test]
fn an_unreadable_body_continues_at_the_limit() {
    let configuration = r#"{"default_cluster":"rest","buffer_bytes_max":10000}"#;
    let mut filter = Filter::configured(configuration).unwrap();
    let headers = request(("content-encoding", "gzip"));
    filter.request_headers(headers, false).unwrap();
    let piece = [0; 6_000];
    assert_eq!(filter.request_body(&piece, false).unwrap(), Action::Pause);
    let action = filter.request_body(&piece, false).unwrap();
    assert_eq!(action, Action::Continue);
}

#[test]
fn a_body_that_does_not_arrive_gets_a_408_once() {
    for more in [("content-encoding", "gzip"), ("x-nothing", "1")] {
        let mut filter = Filter::configured(USUAL).unwrap();
        filter.request_headers(request(more), false).unwrap();
        filter.request_body(b"{", false).unwrap();
        wait(&mut filter);
        let (status, body) = filter.host().replied.clone().unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(status, 408);
        assert!(body.contains(r#""code":"body_timeout""#), "{body}");
        assert!(!has_continued(&filter));
        wait(&mut filter);
        assert_eq!(filter.host().metric(TIMEOUTS), 1);
        filter.over().unwrap();
    }
}

#[test]
fn a_complete_body_may_wait_for_any_time() {
    let configuration = r#"{"default_cluster":"rest","body_timeout_ms":8000,"decision_stream":{"cluster":"isotherm","timeout_ms":3600000}}"#;
    let mut filter = Filter::configured(configuration).unwrap();
    filter.tick().unwrap();
    filter.stream_message(0, &[]).unwrap();
    filter
        .request_headers(request(("x-nothing", "1")), false)
        .unwrap();
    let action = filter.request_body(CHAT.as_bytes(), true).unwrap();
    assert_eq!(action, Action::Pause, "it waits for a decision");
    for _ in 0..10 {
        wait(&mut filter);
    }
    assert_eq!(filter.host().replied, None);
    assert_eq!(filter.host().metric(TIMEOUTS), 0);
}

#[test]
fn a_timeout_of_zero_needs_no_timer() {
    let configuration = r#"{"body_timeout_ms":0}"#;
    let mut filter = Filter::configured(configuration).unwrap();
    assert_eq!(filter.host().tick_ms, 0);
    let headers = request(("content-encoding", "gzip"));
    let action = filter.request_headers(headers, false).unwrap();
    assert_eq!(action, Action::Pause);
}

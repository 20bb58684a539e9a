//! The role behind the external processor, inside the built module.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_fingerprint::outcome::{LoadReport, Outcome};
use isotherm_wasm_host::{Action, Filter, headers};

const MS: u64 = 1_000_000;

/// A filter after a whole request, which ended at 10 ms.
fn after_a_request(configuration: &str) -> Filter {
    let mut filter = Filter::configured(configuration).unwrap();
    filter.host_mut().now_ns = 5 * MS;
    let upstream = ("upstream.address".to_owned(), "10.0.0.3:8000".to_owned());
    filter.host_mut().properties.extend([upstream]);
    let request = headers(&[
        (":path", "/v1/chat/completions"),
        ("x-isotherm-decision", "why"),
    ]);
    assert_eq!(
        filter.request_headers(request, false).unwrap(),
        Action::Continue
    );
    filter.host_mut().now_ns = 10 * MS;
    assert_eq!(filter.request_body(b"{}", true).unwrap(), Action::Continue);
    filter
}

fn outcome(filter: &Filter) -> Option<Outcome> {
    let trailers = filter.host().response_trailers.as_ref()?;
    let (_, value) = trailers
        .iter()
        .find(|(name, _)| name == "x-isotherm-outcome")?;
    Some(Outcome::parse(value).unwrap())
}

#[test]
fn a_stream_ends_with_its_outcome_in_a_trailer() {
    let mut filter = after_a_request(r#"{"role":"response"}"#);
    let asked = headers(&[("endpoint-load-metrics-format", "TEXT")]);
    assert!(filter.host().request_headers.ends_with(&asked));
    let response = headers(&[(":status", "200"), ("content-type", "text/event-stream")]);
    filter.response_headers(response.clone(), false).unwrap();
    assert_eq!(
        filter.host().response_headers,
        response,
        "the client got the decision"
    );

    filter.host_mut().now_ns = 17 * MS;
    for _ in 0..500 {
        let event = b"data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n";
        assert_eq!(
            filter.response_body(event, false).unwrap(),
            Action::Continue
        );
        filter.host_mut().now_ns += MS;
    }
    let last = b"data: {\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":500,\
        \"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n";
    filter.response_body(last, false).unwrap();
    filter.response_body(b"", true).unwrap();
    assert_eq!(
        outcome(&filter),
        Some(Outcome {
            status: 200,
            ttft_us: Some(7_000),
            is_stream: true,
            prompt_tokens: Some(90),
            cached_tokens: Some(64),
            completion_tokens: Some(500),
            load: None,
            response_id: None,
            upstream: Some("10.0.0.3:8000".to_owned()),
            is_broken: false,
            is_timeout: false,
            is_unsent: false,
            attempts: None,
            cluster: None,
            is_error: false,
        })
    );
    assert_eq!(
        filter.host().metric("isotherm_filter_responses_with_usage"),
        1
    );
    filter.over().unwrap();
}

#[test]
fn the_filter_reads_a_large_response_once() {
    let mut filter = after_a_request(r#"{"role":"response"}"#);
    let report = "TEXT named_metrics.num_requests_waiting=3";
    let response = [
        (":status", "200"),
        ("content-type", "application/json"),
        ("endpoint-load-metrics", report),
    ];
    filter.response_headers(headers(&response), false).unwrap();
    assert_eq!(
        filter.host().response_headers,
        headers(&response[..2]),
        "the client got the load report"
    );
    let answer = format!(
        r#"{{"choices":["{}"],"usage":{{"prompt_tokens":7,"completion_tokens":1}}}}"#,
        "x".repeat(1_000_000)
    );
    filter.response_body(answer.as_bytes(), true).unwrap();
    let outcome = outcome(&filter).unwrap();
    assert_eq!(outcome.prompt_tokens, Some(7));
    assert_eq!(
        outcome.load,
        Some(LoadReport {
            waiting: 3,
            running: None,
            kv_usage: None
        })
    );
    assert_eq!(filter.host().body_bytes_read, answer.len());
}

#[test]
fn a_response_keeps_its_own_trailers() {
    let mut filter = after_a_request(r#"{"role":"response"}"#);
    filter
        .response_headers(
            headers(&[(":status", "200"), ("content-type", "text/event-stream")]),
            false,
        )
        .unwrap();
    filter.response_body(b"data: x\n\n", false).unwrap();
    filter
        .response_trailers(headers(&[("x-own", "1"), ("x-isotherm-outcome", "forged")]))
        .unwrap();
    let trailers = filter.host().response_trailers.clone().unwrap();
    assert_eq!(trailers.len(), 2);
    assert_eq!(trailers[..1], headers(&[("x-own", "1")]));
    assert_eq!(outcome(&filter).unwrap().status, 200);
}

#[test]
fn errors_and_compressed_responses_have_outcomes_without_reading_their_bodies() {
    for (status, encoding) in [("500", "identity"), ("200", "gzip")] {
        let mut filter = after_a_request(r#"{"role":"response"}"#);
        let response = [
            (":status", status),
            ("content-type", "application/json"),
            ("content-encoding", encoding),
        ];
        filter.response_headers(headers(&response), false).unwrap();
        filter.response_body(b"\x1f\x8b whatever", true).unwrap();
        assert_eq!(outcome(&filter).unwrap().status.to_string(), status);
        assert_eq!(filter.host().body_bytes_read, 0);
        assert_eq!(
            filter
                .host()
                .metric("isotherm_filter_responses_without_usage"),
            1
        );
    }
}

#[test]
fn a_response_without_a_body_passes_unchanged() {
    let mut filter = after_a_request(r#"{"role":"response"}"#);
    let response = headers(&[(":status", "204")]);
    assert_eq!(
        filter.response_headers(response, true).unwrap(),
        Action::Continue
    );
    assert_eq!(filter.host().response_trailers, None);
    filter.over().unwrap();
}

#[test]
fn a_local_response_has_no_outcome() {
    let mut filter = Filter::configured(r#"{"role":"response"}"#).unwrap();
    filter
        .response_headers(headers(&[(":status", "503")]), false)
        .unwrap();
    filter.response_body(b"queue full", true).unwrap();
    assert_eq!(outcome(&filter), None);
}

#[test]
fn the_decision_reaches_the_client_if_configured() {
    let mut filter = after_a_request(r#"{"role":"response","decision":true}"#);
    filter
        .response_headers(headers(&[(":status", "200")]), false)
        .unwrap();
    assert!(
        filter
            .host()
            .response_headers
            .ends_with(&headers(&[("x-isotherm-decision", "why")]))
    );
}

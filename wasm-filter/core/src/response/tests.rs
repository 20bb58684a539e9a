use super::*;
use crate::headers::from_pairs;

const MS: Nanoseconds = 1_000_000;

type ReportHeader = Option<(&'static str, &'static str)>;

fn start(request: &[(&str, &str)]) -> (ResponseFlow, ReportHeader) {
    start_with(ResponseConfig::default(), request)
}

fn start_with(config: ResponseConfig, request: &[(&str, &str)]) -> (ResponseFlow, ReportHeader) {
    let request = from_pairs(request);
    let header = |name| headers::get(&request, name).map(<[u8]>::to_vec);
    ResponseFlow::new(config, header, 10 * MS)
}

fn telling_decisions() -> ResponseConfig {
    ResponseConfig {
        decision: true,
        ..ResponseConfig::default()
    }
}

fn feed(flow: &mut ResponseFlow, pieces: &[&str], now: Nanoseconds) {
    for piece in pieces {
        let range = flow.body(piece.len(), || now);
        flow.feed(&piece.as_bytes()[range]);
    }
}

#[test]
fn the_outcome_of_a_plain_response_is_complete() {
    let (mut flow, added) = start(&[(":path", "/v1/chat/completions")]);
    assert_eq!(added, Some(("endpoint-load-metrics-format", "TEXT")));
    flow.end_request(20 * MS);
    let edits = flow.headers(&from_pairs(&[
        (":status", "200"),
        ("content-type", "application/json"),
        (
            "endpoint-load-metrics",
            "TEXT named_metrics.num_requests_waiting=2",
        ),
    ]));
    assert_eq!(
        edits,
        [HeaderEdit::Remove("endpoint-load-metrics".to_owned())]
    );
    feed(
        &mut flow,
        &[
            "{\"usage\":{\"prompt_",
            "tokens\":9,\"completion_tokens\":4}}",
        ],
        25 * MS,
    );
    assert_eq!(
        flow.outcome(Some("10.0.0.1:80".to_owned())),
        Some(Outcome {
            status: 200,
            ttft_us: Some(5_000),
            is_stream: false,
            prompt_tokens: Some(9),
            cached_tokens: None,
            completion_tokens: Some(4),
            load: Some(LoadReport {
                waiting: 2,
                running: None,
                kv_usage: None
            }),
            response_id: None,
            upstream: Some("10.0.0.1:80".to_owned()),
            attempts: None,
            cluster: None,
            is_broken: false,
            is_timeout: false,
            is_unsent: false,
            is_error: false,
        })
    );
}

#[test]
fn usage_at_the_end_of_a_long_stream_is_found() {
    let (mut flow, _) = start(&[]);
    let _ = flow.headers(&from_pairs(&[
        (":status", "200"),
        ("content-type", "text/event-stream; charset=utf-8"),
    ]));
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n";
    feed(&mut flow, &[event; 1000], 11 * MS);
    feed(
        &mut flow,
        &["data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1000}}\n\n"],
        99 * MS,
    );
    feed(&mut flow, &["data: [DONE]\n\n"], 99 * MS);
    let outcome = flow.outcome(None).unwrap();
    assert_eq!(outcome.completion_tokens, Some(1000));
    assert_eq!(outcome.ttft_us, Some(1_000));
}

#[test]
fn usage_far_before_the_end_of_a_whole_response_is_found() {
    let (mut flow, _) = start(&[]);
    let _ = flow.headers(&from_pairs(&[
        (":status", "200"),
        ("content-type", "application/json"),
    ]));
    let usage =
        r#"{"choices":[],"usage":{"prompt_tokens":4009,"completion_tokens":1},"prompt_logprobs":["#;
    feed(&mut flow, &[usage], 30 * MS);
    let logprob = r#"{"12":{"logprob":-0.25,"rank":1,"decoded_token":"usage"}},"#.repeat(200);
    feed(&mut flow, &[logprob.as_str(); 60], 40 * MS);
    feed(&mut flow, &["null]}"], 41 * MS);
    let outcome = flow.outcome(None).unwrap();
    assert_eq!(outcome.prompt_tokens, Some(4009));
    assert_eq!(outcome.completion_tokens, Some(1));
}

#[test]
fn the_load_report_stays_for_a_client_that_asked_for_it() {
    let (mut flow, added) = start(&[("endpoint-load-metrics-format", "JSON")]);
    assert_eq!(added, None);
    let edits = flow.headers(&from_pairs(&[
        (":status", "200"),
        (
            "endpoint-load-metrics",
            r#"JSON {"named_metrics":{"num_requests_waiting":1}}"#,
        ),
    ]));
    assert_eq!(edits, []);
    assert_eq!(
        flow.outcome(None).unwrap().load.map(|load| load.waiting),
        Some(1)
    );
}

#[test]
fn bodies_without_usage_are_not_read() {
    for answer in [
        [
            (":status", "500"),
            ("content-type", "application/json"),
            ("content-encoding", "identity"),
        ],
        [
            (":status", "200"),
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
        ],
        [
            (":status", "200"),
            ("content-type", "audio/mpeg"),
            ("content-encoding", "identity"),
        ],
    ] {
        let (mut flow, _) = start(&[]);
        let _ = flow.headers(&from_pairs(&answer));
        assert!(flow.body(100, || 0).is_empty(), "{answer:?}");
        assert_eq!(flow.outcome(None).unwrap().status.to_string(), answer[0].1);
    }
}

#[test]
fn a_response_before_the_end_of_its_request_is_timed_from_the_headers() {
    let (mut flow, _) = start(&[]);
    let _ = flow.headers(&from_pairs(&[(":status", "413")]));
    feed(&mut flow, &["too large"], 12 * MS);
    flow.end_request(50 * MS);
    assert_eq!(flow.outcome(None).unwrap().ttft_us, Some(2_000));
}

#[test]
fn a_clock_that_is_set_back_gives_zero() {
    let (mut flow, _) = start(&[]);
    let _ = flow.headers(&from_pairs(&[(":status", "200")]));
    feed(&mut flow, &["x"], 0);
    assert_eq!(flow.outcome(None).unwrap().ttft_us, Some(0));
}

#[test]
fn the_client_sees_the_decision_only_when_configured() {
    let request = [("x-isotherm-decision", "replica=a")];
    let response = from_pairs(&[(":status", "200")]);
    let (mut flow, _) = start_with(telling_decisions(), &request);
    assert_eq!(
        flow.headers(&response),
        [HeaderEdit::set("x-isotherm-decision", "replica=a")]
    );
    let (mut flow, _) = start_with(ResponseConfig::default(), &request);
    assert_eq!(flow.headers(&response), []);
}

#[test]
fn the_decision_of_another_region_is_appended_and_the_header_of_an_engine_is_not() {
    let sent = |own: &str, next: &str| {
        let request = [("x-isotherm-decision", own)];
        let response = from_pairs(&[(":status", "200"), ("x-isotherm-decision", next)]);
        let (mut flow, _) = start_with(telling_decisions(), &request);
        flow.headers(&response)
    };
    let set = |value: &str| [HeaderEdit::set("x-isotherm-decision", value)];
    let next = "replica=b;origin=us";
    assert_eq!(
        sent("region=eu", next),
        set("region=eu, replica=b;origin=us")
    );
    assert_eq!(sent("region=eu", &"x".repeat(10_000)), set("region=eu"));
    assert_eq!(sent("replica=a", next), set("replica=a"));
}

#[test]
fn a_response_without_headers_has_no_outcome() {
    let (flow, _) = start(&[]);
    assert_eq!(flow.outcome(None), None);
}

#[test]
fn usage_split_between_the_start_and_the_end_of_a_long_stream_is_found() {
    let (mut flow, _) = start(&[(":path", "/v1/messages")]);
    let _ = flow.headers(&from_pairs(&[
        (":status", "200"),
        ("content-type", "text/event-stream"),
    ]));
    // The first event comes in two pieces.
    let beginning = [
        "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,",
        "\"cache_read_input_tokens\":80,\"output_tokens\":1}}}\r\n\r\n",
    ];
    feed(&mut flow, &beginning, 11 * MS);
    let event = "event: content_block_delta\r\ndata: {\"delta\":{\"text\":\"word\"}}\r\n\r\n";
    feed(&mut flow, &[event; 2000], 12 * MS);
    let cut = flow.outcome(None).unwrap();
    assert_eq!(
        cut.completion_tokens, None,
        "the count at the start is stale"
    );
    feed(
        &mut flow,
        &["data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":2000}}\r\n\r\n"],
        99 * MS,
    );
    let outcome = flow.outcome(None).unwrap();
    assert_eq!(outcome.prompt_tokens, Some(100));
    assert_eq!(outcome.cached_tokens, Some(80));
    assert_eq!(outcome.completion_tokens, Some(2000));
}

#[test]
fn response_created_is_no_first_token() {
    let (mut flow, _) = start(&[(":path", "/v1/responses")]);
    flow.end_request(20 * MS);
    let _ = flow.headers(&from_pairs(&[
        (":status", "200"),
        ("content-type", "text/event-stream"),
    ]));
    let instructions = "text.delta event: error response.completed ".repeat(500);
    let created = format!(
        "event: response.created\ndata: {{\"type\":\"response.created\",\"response\":{{\"instructions\":\"{instructions}\"}}}}\n\n"
    );
    let added = "event: response.output_item.added\ndata: {}\n\nevent: response.output_text.del";
    feed(&mut flow, &[&created], 21 * MS);
    assert!(!flow.has_begun());
    feed(&mut flow, &[added], 22 * MS);
    assert!(!flow.has_begun());
    feed(&mut flow, &["ta\ndata: {\"delta\":\"hi\"}\n\n"], 520 * MS);
    assert!(flow.has_begun());
    let end = "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":40,\"output_tokens\":7}}}\n\n";
    feed(&mut flow, &[end], 900 * MS);
    let outcome = flow.outcome(None).unwrap();
    assert_eq!(outcome.ttft_us, Some(500_000));
    assert_eq!(
        (outcome.prompt_tokens, outcome.completion_tokens),
        (Some(40), Some(7))
    );
}

#[test]
fn the_id_of_a_response_is_known_before_its_first_token() {
    let mut flow = streaming();
    let created = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_0a\"}}\n\n";
    feed(&mut flow, &[created], 21 * MS);
    assert!(!flow.has_begun());
    assert_eq!(flow.take_new_id(), Some("resp_0a"));
    assert_eq!(flow.take_new_id(), None, "it is new once");
    let outcome = flow.outcome(None).unwrap();
    assert_eq!(outcome.response_id.as_deref(), Some("resp_0a"));
}

#[test]
fn an_error_has_no_id_of_a_response() {
    let (mut flow, _) = start(&[(":path", "/v1/responses")]);
    let _ = flow.headers(&from_pairs(&[
        (":status", "404"),
        ("content-type", "application/json"),
    ]));
    feed(&mut flow, &[r#"{"id":"resp_0a"}"#], 21 * MS);
    assert_eq!(flow.take_new_id(), None);
}

#[test]
fn a_responses_stream_without_event_lines_opens_with_its_first_delta() {
    let (mut flow, _) = start(&[(":path", "/v1/responses")]);
    flow.end_request(20 * MS);
    let _ = flow.headers(&from_pairs(&[
        (":status", "200"),
        ("content-type", "text/event-stream"),
    ]));
    let created = "data: {\"type\":\"response.created\",\"response\":{}}\r\n\r\n";
    feed(&mut flow, &[created], 21 * MS);
    assert!(!flow.has_begun());
    let delta = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\r\n\r\n";
    feed(&mut flow, &[delta], 520 * MS);
    assert!(flow.has_begun());
}

/// A flow of a stream, whose request ended at 20 ms.
fn streaming() -> ResponseFlow {
    let (mut flow, _) = start(&[]);
    flow.end_request(20 * MS);
    let _ = flow.headers(&from_pairs(&[
        (":status", "200"),
        ("content-type", "text/event-stream"),
    ]));
    flow
}

#[test]
fn the_first_event_of_any_other_stream_has_its_first_token() {
    for piece in [
        "data: {\"choices\":[]}\n\n",
        "data: {\"id\"",
        "data: {\"type\":\"message_start\"}\n\n",
        "data:hello",
        "event: message_start\n",
        "event: error\ndata: {}\n\n",
        "{\"text\":\"no event at all\"}\n",
    ] {
        let mut flow = streaming();
        feed(&mut flow, &[piece], 30 * MS);
        assert!(flow.has_begun(), "{piece}");
    }
}

#[test]
fn what_keeps_a_stream_alive_is_no_first_token_wherever_the_pieces_end() {
    let tokens = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        "event: message_start\ndata: {\"type\":\"message_start\"}\n\n",
        "event: response.output_text.delta\ndata: {}\n\n",
    ];
    let alive = [
        ": keep-alive\n\n",
        ":\n\n",
        "\n\n",
        ":data: {\"choices\":[]}\n\n",
        "\u{feff}: ping\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event:ping\ndata: {}\n\n",
        "event: ping\ndata:\n\n",
        "data: { \"type\" : \"ping\" }\n\n",
        "data:{\"type\":\"ping\",\"cost\":\"0\"}\n\n",
        "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n",
        "id: 1\nretry: 10\ndata:\n\n",
        ": a\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n: b\n\nevent: response.created\ndata: {\"x\":1}\n\n",
    ];
    for end in ["\n", "\r\n", "\r"] {
        for (alive, token) in alive
            .iter()
            .flat_map(|alive| tokens.map(|token| (alive, token)))
        {
            let (alive, token) = (alive.replace('\n', end), token.replace('\n', end));
            for piece_bytes in [1, 2, 3, 5, 8, 1000] {
                let mut flow = streaming();
                let case = format!("{alive:?} in pieces of {piece_bytes}");
                for piece in alive.as_bytes().chunks(piece_bytes) {
                    let range = flow.body(piece.len(), || 30 * MS);
                    flow.feed(&piece[range]);
                    assert!(!flow.has_begun(), "{case}");
                }
                for piece in token.as_bytes().chunks(piece_bytes) {
                    let range = flow.body(piece.len(), || 520 * MS);
                    flow.feed(&piece[range]);
                }
                assert!(flow.has_begun(), "{case}");
                let outcome = flow.outcome(None).unwrap();
                assert_eq!(outcome.ttft_us, Some(500_000), "{case}");
            }
        }
    }
}

#[test]
fn a_replica_broke_when_its_connection_ended_after_it_got_the_request() {
    let details = |reason| format!("upstream_reset_before_response_started{{{reason}}}");
    for reason in ["connection_termination", "remote_reset", "protocol_error"] {
        assert!(is_broken(&details(reason)), "{reason}");
    }
    for reason in [
        "remote_connection_failure|delayed",
        "connection_timeout",
        "overflow",
    ] {
        assert!(!is_broken(&details(reason)), "{reason}");
    }
    assert!(!is_broken("via_upstream"));
}

#[test]
fn a_page_and_a_stream_that_begins_with_an_error_are_no_answers() {
    let outcome = |media_type: &str, body: &[u8]| {
        let (mut flow, _) = start(&[]);
        let _ = flow.headers(&from_pairs(&[
            (":status", "200"),
            ("content-type", media_type),
        ]));
        let range = flow.body(body.len(), || 5_000_000);
        flow.feed(&body[range]);
        flow.outcome(None).unwrap()
    };
    let error = b"data: {\"error\": {\"message\": \"no memory\"}}\n\n";
    assert!(outcome("text/event-stream", error).is_error);
    assert!(outcome("text/html; charset=utf-8", b"<html>log in</html>").is_error);
    assert!(outcome("text/plain", b"ok").is_error);
    assert!(!outcome("application/json", b"{\"choices\":[]}").is_error);
    let token = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    assert!(!outcome("text/event-stream", token).is_error);
}

#[test]
fn what_the_proxy_did_itself_is_told_by_its_details() {
    let explained = |upstream: Option<&str>, details: &str| {
        let mut outcome = Outcome {
            status: 503,
            upstream: upstream.map(str::to_owned),
            ..Outcome::default()
        };
        explain_local(&mut outcome, details);
        (outcome.is_timeout, outcome.is_unsent, outcome.is_broken)
    };
    let replica = Some("10.0.0.1:80");
    for details in ["response_timeout", "upstream_per_try_timeout"] {
        assert_eq!(explained(replica, details), (true, false, false));
    }
    for details in [
        "request_rate_limited",
        "route_not_found",
        "no_healthy_upstream",
        "direct_response",
    ] {
        assert_eq!(explained(None, details), (false, true, false), "{details}");
    }
    let reset = "upstream_reset_before_response_started{remote_reset}";
    assert_eq!(explained(replica, reset), (false, false, true));
    assert_eq!(explained(replica, "via_upstream"), (false, false, false));
    assert_eq!(explained(None, "via_upstream"), (false, false, false));
}

#[test]
fn a_response_of_another_endpoint_than_the_selected_one_is_noticed() {
    let mut flow = ResponseFlow::sent(0, false, None);
    assert!(!flow.is_elsewhere(Some("10.0.0.1:80")), "none is known");
    flow.select("10.0.0.1:80,10.0.0.2:80");
    assert!(!flow.is_elsewhere(Some("10.0.0.1:80")) && !flow.is_elsewhere(None));
    assert!(flow.is_elsewhere(Some("10.0.0.2:80")));
}

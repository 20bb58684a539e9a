use isotherm_fingerprint::session::SessionSecret;
use isotherm_fingerprint::{BodyError, Fingerprint};

use proptest::prelude::*;

use super::*;
use crate::PluginConfig;
use crate::headers::from_pairs;

/// The time of the tests' clock.
const NOW_UNIX_MS: u64 = 1_764_085_164_000;

const CHAT: &str = r#"{"model":"llama","user":"u-1","max_tokens":64,"messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;

fn config(json: &str) -> Arc<RequestConfig> {
    match PluginConfig::parse(json.as_bytes()).unwrap() {
        PluginConfig::Request(config) => config,
        PluginConfig::Response(_) | PluginConfig::Gate => panic!("another role"),
    }
}

fn usual() -> Arc<RequestConfig> {
    config(
        r#"{"role":"request","pools":[{"models":["llama"],"cluster":"llama-pool"}],"default_cluster":"rest"}"#,
    )
}

fn chat_with(more: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    let usual = [
        (":path", "/v1/chat/completions"),
        ("content-type", "application/json"),
    ];
    from_pairs(&[&usual, more].concat())
}

fn set<'a>(release: &'a Release, name: &str) -> Option<&'a str> {
    release.edits.iter().find_map(|edit| match edit {
        HeaderEdit::Set(candidate, value) if *candidate == name => str::from_utf8(value).ok(),
        _ => None,
    })
}

/// Sends a body in pieces of `piece_bytes` and releases the request at its end, or when the flow says so.
/// The header value of a session key, without a configured secret.
fn hashed(key: &str) -> Option<String> {
    Some(SessionSecret::default().hash(key.as_bytes()))
}

fn send(config: Arc<RequestConfig>, headers: &Headers, body: &[u8], piece_bytes: usize) -> Release {
    let mut flow = RequestFlow::new(config, headers, !body.is_empty());
    if flow.is_held() {
        for piece in body.chunks(piece_bytes) {
            if flow.feed(piece) {
                return flow.release(|| NOW_UNIX_MS, || Some("192.0.2.7:50000".to_owned()));
            }
        }
    }
    flow.end_body();
    flow.release(|| NOW_UNIX_MS, || Some("192.0.2.7:50000".to_owned()))
}

#[test]
fn a_chat_request_gets_every_header() {
    let release = send(
        usual(),
        &chat_with(&[("x-tier", "interactive-fast")]),
        CHAT.as_bytes(),
        10,
    );
    assert_eq!(release.coverage, PromptCoverage::Complete);
    assert_eq!(release.body_bytes, CHAT.len());
    assert_eq!(set(&release, names::MODEL), Some("llama"));
    assert_eq!(set(&release, names::SESSION), hashed("u-1").as_deref());
    assert_eq!(set(&release, names::TIER), Some("interactive-fast"));
    assert_eq!(set(&release, names::CLUSTER), Some("llama-pool"));
    let tokens = tokens::parse(set(&release, names::TOKENS).unwrap().as_bytes()).unwrap();
    assert_eq!((tokens.output_max, tokens.is_partial), (Some(64), false));
    let fingerprint =
        Fingerprint::decode(set(&release, names::FINGERPRINT).unwrap().as_bytes()).unwrap();
    assert!(fingerprint.total_bytes() > 0);
}

#[test]
fn the_service_learns_whether_a_request_asks_for_a_stream() {
    let stream = |body: &str| {
        let release = send(usual(), &chat_with(&[]), body.as_bytes(), 10);
        set(&release, names::STREAM).map(str::to_owned)
    };
    let with = |members: &str| stream(&format!(r#"{{"model":"llama",{members}"messages":[]}}"#));
    assert_eq!(with(""), None);
    assert_eq!(with(r#""stream":false,"#), None);
    assert_eq!(with(r#""stream":true,"#).as_deref(), Some("1"));
    // An engine reads the last one.
    assert_eq!(with(r#""stream":true,"stream":false,"#), None);
}

#[test]
fn the_service_learns_the_stored_response_that_a_request_continues() {
    let previous = |path: &str, id: &str| {
        let body = format!(r#"{{"model":"llama","input":"hi","previous_response_id":{id}}}"#);
        let mut headers = chat_with(&[]);
        headers[0].1 = path.as_bytes().to_vec();
        let release = send(usual(), &headers, body.as_bytes(), 10);
        set(&release, names::PREVIOUS_RESPONSE).map(str::to_owned)
    };
    let responses = "/v1/responses";
    assert_eq!(
        previous(responses, "\"resp_0a\"").as_deref(),
        Some("resp_0a")
    );
    for other in ["null", "7", "\"\"", "\"msg_1\"", "\"resp_a b\""] {
        assert_eq!(previous(responses, other), None, "{other}");
    }
    let twice = r#""resp_0a","previous_response_id":"resp_0b""#;
    assert_eq!(previous(responses, twice), None);
    assert_eq!(previous("/v1/chat/completions", "\"resp_0a\""), None);
}

#[test]
fn the_objectives_of_a_request_become_headers() {
    let objectives = |more: &[(&str, &str)], body: &str| {
        let release = send(usual(), &chat_with(more), body.as_bytes(), 10);
        [names::TIER, names::TTFT_MS, names::DEADLINE]
            .map(|name| set(&release, name).map(str::to_owned).unwrap_or_default())
    };
    assert_eq!(objectives(&[], CHAT), ["", "", ""]);
    let headers = [
        ("x-llm-d-slo-ttft-ms", "none"),
        ("x-slo-ttft-ms", "1500"),
        ("x-deadline", "1764085224"),
    ];
    let flex = r#"{"model":"llama","service_tier":"flex","messages":[]}"#;
    assert_eq!(
        objectives(&headers, flex),
        ["non-interactive", "1500", "60000"]
    );
    // The header stands before the member, unless it cannot be read.
    let tiers = |tier| objectives(&[("x-tier", tier)], flex)[0].clone();
    assert_eq!(tiers("interactive_fast"), "interactive-fast");
    assert_eq!(tiers("urgent"), "non-interactive");
    let passed = [("x-deadline", "1764085000")];
    assert_eq!(objectives(&passed, CHAT), ["", "", "0"]);
    let endless = [
        ("x-slo-ttft-ms", "99999999999999999999"),
        ("x-deadline", "99999999999999999999"),
    ];
    assert_eq!(objectives(&endless, CHAT), ["", "3600000", "2592000000"]);
}

#[test]
fn a_trusted_peer_states_what_is_left_of_the_objectives() {
    let headers = chat_with(&[
        ("x-tier", "interactive-fast"),
        ("x-slo-ttft-ms", "1500"),
        ("x-deadline", "1764085224"),
        (names::TIER, "non-interactive"),
        (names::TTFT_MS, "400"),
        (names::DEADLINE, "0"),
    ]);
    let left = |json: &str| {
        let release = send(config(json), &headers, CHAT.as_bytes(), 10);
        [names::TIER, names::TTFT_MS, names::DEADLINE]
            .map(|name| set(&release, name).map(str::to_owned).unwrap_or_default())
    };
    assert_eq!(
        left(r#"{"trusted_origin":true}"#),
        ["non-interactive", "400", "0"]
    );
    assert_eq!(left("{}"), ["interactive-fast", "1500", "60000"]);
}

#[test]
fn objectives_are_read_without_a_body() {
    let headers = chat_with(&[("x-tier", "flex"), ("x-slo-ttft-ms", "9")]);
    assert_eq!(
        objectives_in_headers(&usual(), &headers, || NOW_UNIX_MS),
        [
            HeaderEdit::set(names::TIER, "non-interactive"),
            HeaderEdit::set(names::TTFT_MS, "9")
        ]
    );
}

#[test]
fn the_headers_do_not_depend_on_the_pieces_of_the_body() {
    let whole = send(usual(), &chat_with(&[]), CHAT.as_bytes(), usize::MAX);
    let bytes = send(usual(), &chat_with(&[]), CHAT.as_bytes(), 1);
    assert_eq!(whole.edits, bytes.edits);
}

#[test]
fn a_body_is_released_at_the_limit_with_the_fingerprint_of_its_beginning() {
    let config = config(r#"{"role":"request","buffer_bytes_max":4096,"default_cluster":"rest"}"#);
    let body = format!(
        r#"{{"model":"llama","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "word ".repeat(4000)
    );
    let release = send(config, &chat_with(&[]), body.as_bytes(), 1000);
    assert_eq!(release.coverage, PromptCoverage::Partial);
    let tokens = tokens::parse(set(&release, names::TOKENS).unwrap().as_bytes()).unwrap();
    assert!(tokens.is_partial);
    assert_eq!(release.body_bytes, 5000);
    assert_eq!(set(&release, names::MODEL), Some("llama"));
    let fingerprint =
        Fingerprint::decode(set(&release, names::FINGERPRINT).unwrap().as_bytes()).unwrap();
    assert!(!fingerprint.blocks().is_empty());
}

#[test]
fn a_body_that_exceeds_the_buffer_can_be_released_at_once() {
    let announcing = |config: Arc<RequestConfig>, bytes: &str| {
        RequestFlow::new(config, &chat_with(&[("content-length", bytes)]), true)
    };
    let with_room = config(r#"{"role":"request","request_body_buffer_limit":4194304}"#);
    assert!(!announcing(usual(), "1048576").exceeds_buffer());
    assert!(!announcing(with_room, "30000000").exceeds_buffer());
    let mut flow = announcing(usual(), "30000000");
    assert!(flow.exceeds_buffer());
    flow.release_after_first_piece();
    assert!(flow.feed(CHAT.as_bytes()));
    let release = flow.release(|| NOW_UNIX_MS, || None);
    assert_eq!(set(&release, names::MODEL), Some("llama"));
}

#[test]
fn a_small_buffer_holds_only_what_fits() {
    let flow = |json: &str, length: Option<&str>| {
        let length: Vec<_> = length
            .map(|bytes| ("content-length", bytes))
            .into_iter()
            .collect();
        RequestFlow::new(config(json), &chat_with(&length), true)
    };
    const SMALL: &str = r#"{"request_body_buffer_limit":32768}"#;
    assert!(!flow(SMALL, Some("32768")).exceeds_buffer());
    assert!(flow(SMALL, Some("32769")).exceeds_buffer());
    assert!(flow(SMALL, None).exceeds_buffer(), "its length is unknown");
    assert!(!flow("{}", None).exceeds_buffer());

    let mut long = flow(SMALL, Some("220000"));
    assert!(!long.feed(&[b' '; 16_000]));
    assert!(long.feed(&[b' '; 1_000]), "one more frame might not fit");
    let mut short = flow(SMALL, Some("32768"));
    assert!(!short.feed(&[b' '; 32_768]), "all of it fits");
}

#[test]
fn a_body_larger_than_the_buffer_waits_for_no_decision() {
    let json = r#"{"request_body_buffer_limit":100,"decision_stream":{"cluster":"isotherm"}}"#;
    let release = send(config(json), &chat_with(&[]), CHAT.as_bytes(), usize::MAX);
    assert_eq!(release.coverage, PromptCoverage::Complete);
    assert_eq!(release.target, None);
}

#[test]
fn a_request_whose_body_is_withheld_is_decided_by_its_headers() {
    let json = r#"{"default_cluster":"rest","decision_stream":{"cluster":"isotherm"}}"#;
    let headers = chat_with(&[("x-session-id", "s"), ("x-tier", "interactive-fast")]);
    let mut flow = RequestFlow::new(config(json), &headers, true);
    flow.skip_body();
    assert!(!flow.is_held());
    let release = flow.release(|| NOW_UNIX_MS, || None);
    let reason = SkipReason::BodyWithheld;
    assert_eq!(release.coverage, PromptCoverage::Skipped(reason));
    assert_eq!(set(&release, names::SESSION), hashed("s").as_deref());
    assert_eq!(set(&release, names::TIER), Some("interactive-fast"));
    assert_eq!(set(&release, names::CLUSTER), Some("rest"));
    assert_eq!(set(&release, names::FINGERPRINT), None);
    assert!(release.target.is_some());
}

#[test]
fn the_decision_stream_decides_on_a_whole_body_without_a_readable_prompt() {
    let json = r#"{"request_body_buffer_limit":100,"decision_stream":{"cluster":"isotherm"}}"#;
    let repeated = r#"{"model":"m","messages":[],"messages":[]}"#;
    let long = format!("{repeated}{}", " ".repeat(100));
    for (body, has_ended, is_asked) in [
        (repeated, true, true),
        (r#"{"messages":[{"content":"cut"#, true, true),
        (repeated, false, false),
        (&long, true, false),
    ] {
        let mut flow = RequestFlow::new(config(json), &chat_with(&[]), true);
        let _is_full = flow.feed(body.as_bytes());
        if has_ended {
            flow.end_body();
        }
        let release = flow.release(|| NOW_UNIX_MS, || None);
        assert_ne!(release.coverage, PromptCoverage::Complete, "{body}");
        assert_eq!(release.target.is_some(), is_asked, "{body} {has_ended}");
    }
    let bodiless = RequestFlow::new(config(json), &from_pairs(&[(":path", "/v1/models")]), false);
    assert!(bodiless.release(|| NOW_UNIX_MS, || None).target.is_some());
    let upgrade = [
        (":path", "/v1/realtime"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
    ];
    let upgrade = RequestFlow::new(config(json), &from_pairs(&upgrade), true);
    assert!(!upgrade.is_held(), "its bytes come after its response");
    assert_eq!(upgrade.release(|| NOW_UNIX_MS, || None).target, None);
}

#[test]
fn internal_headers_are_stripped() {
    let headers = from_pairs(&[
        ("x-isotherm-fingerprint", "forged"),
        ("x-isotherm-new", "1"),
        ("x-isotherm-new", "2"),
        ("x-gateway-destination-endpoint", "10.0.0.1:80"),
        ("x-session-id", "s"),
    ]);
    let removed: Vec<HeaderEdit> = [
        "x-gateway-destination-endpoint",
        "x-isotherm-fingerprint",
        "x-isotherm-new",
    ]
    .map(|name| HeaderEdit::Remove(name.to_owned()))
    .into();
    assert_eq!(strip(&usual(), &headers), removed);
}

#[test]
fn the_default_cluster_that_a_listener_names_stays() {
    let config = config(
        r#"{"pools":[{"models":["llama"],"cluster":"llama-pool"}],"default_cluster":"rest"}"#,
    );
    let named = |clusters: &[&str]| {
        let headers: Vec<_> = clusters
            .iter()
            .map(|cluster| ("x-isotherm-cluster", *cluster))
            .collect();
        strip(&config, &from_pairs(&headers))
    };
    assert_eq!(named(&["rest"]), []);
    let removed = [HeaderEdit::Remove("x-isotherm-cluster".to_owned())];
    for forged in [
        &["llama-pool"][..],
        &["rest", "llama-pool"],
        &["rest", "rest"],
    ] {
        assert_eq!(named(forged), removed, "{forged:?}");
    }
}

#[test]
fn a_client_that_must_not_learn_of_caches_asks_for_no_load_report() {
    let headers = chat_with(&[
        ("accept-encoding", "gzip"),
        ("endpoint-load-metrics-format", "TEXT"),
    ]);
    let json = r#"{"hide_cache":true,"decision_stream":{"cluster":"isotherm"}}"#;
    let removed = ["accept-encoding", "endpoint-load-metrics-format"]
        .map(|name| HeaderEdit::Remove(name.to_owned()));
    assert_eq!(strip(&config(json), &headers), removed);
    let wants_report = |json: &str| {
        let release = send(config(json), &headers, CHAT.as_bytes(), 9);
        release.target.unwrap().wants_report
    };
    assert!(!wants_report(json));
    assert!(wants_report(&json.replace("true", "false")));
}

#[test]
fn forged_headers_never_become_values() {
    let forged = [
        ("x-isotherm-session", "forged"),
        ("x-isotherm-model", "forged"),
        ("x-isotherm-fingerprint", "AA"),
    ];
    let release = send(usual(), &chat_with(&forged), CHAT.as_bytes(), 100);
    assert_eq!(release.coverage, PromptCoverage::Complete);
    assert_eq!(set(&release, names::SESSION), hashed("u-1").as_deref());
    assert_eq!(set(&release, names::MODEL), Some("llama"));
}

#[test]
fn headers_of_a_trusted_peer_are_kept_except_its_routing() {
    let trusting = config(
        r#"{"role":"request","trusted_origin":true,"pools":[{"models":["llama"],"cluster":"llama-pool"}]}"#,
    );
    let headers = chat_with(&[
        ("x-isotherm-fingerprint", "AA"),
        ("x-isotherm-model", "llama"),
        ("x-isotherm-session", "s"),
        ("x-isotherm-origin", "eu"),
        ("x-isotherm-tried", "asia,us"),
        ("x-isotherm-cluster", "gateway-us"),
        ("x-gateway-destination-endpoint", "10.0.0.1:80"),
    ]);
    let removed = ["x-gateway-destination-endpoint", "x-isotherm-cluster"]
        .map(|name| HeaderEdit::Remove(name.to_owned()));
    assert_eq!(strip(&trusting, &headers), removed);
    let flow = RequestFlow::new(trusting.clone(), &headers, true);
    assert!(!flow.reads_body(), "its prompt was read already");
    let release = flow.release(|| NOW_UNIX_MS, || None);
    assert_eq!(release.coverage, PromptCoverage::Forwarded);
    assert_eq!(set(&release, names::CLUSTER), Some("llama-pool"));
    assert_eq!(set(&release, names::SESSION), Some("s"));
    assert_eq!(set(&release, names::FINGERPRINT), None, "the peer's stays");

    let release = send(
        trusting,
        &chat_with(&[("x-isotherm-session", "s")]),
        CHAT.as_bytes(),
        9,
    );
    assert_eq!(
        release.coverage,
        PromptCoverage::Complete,
        "a peer without a filter sends no fingerprint"
    );
    assert_eq!(set(&release, names::SESSION), Some("s"));
}

#[test]
fn the_decision_stream_decides_on_a_forwarded_request_with_its_whole_body() {
    let trusting = config(
        r#"{"role":"request","trusted_origin":true,"buffer_bytes_max":10,"decision_stream":{"cluster":"i"}}"#,
    );
    let headers = chat_with(&[
        ("x-isotherm-fingerprint", "AA"),
        ("x-isotherm-origin", "eu"),
    ]);
    for (bytes, has_ended, is_asked) in [(9, true, true), (9, false, false), (11, false, false)] {
        let mut flow = RequestFlow::new(trusting.clone(), &headers, true);
        assert!(flow.is_held());
        assert_eq!(flow.pass_over(bytes), bytes > 10);
        if has_ended {
            flow.end_body();
        }
        let release = flow.release(|| NOW_UNIX_MS, || None);
        assert_eq!(release.target.is_some(), is_asked, "{bytes} {has_ended}");
    }
    let flow = RequestFlow::new(trusting, &headers, false);
    assert!(!flow.is_held(), "it has no body");
    assert!(flow.release(|| NOW_UNIX_MS, || None).target.is_some());
}

#[test]
fn an_unreadable_request_continues_with_the_known_headers() {
    let chat = ("content-type", "application/json");
    for (headers, body, reason) in [
        (vec![(":path", "/v1/models")], "", SkipReason::UnknownPath),
        (
            vec![(":path", "/v1/files"), chat],
            CHAT,
            SkipReason::UnknownPath,
        ),
        (
            vec![(":path", "/v1/chat/completions")],
            "",
            SkipReason::NoBody,
        ),
        (
            vec![
                (":path", "/v1/chat/completions"),
                chat,
                ("content-encoding", "gzip"),
            ],
            CHAT,
            SkipReason::ContentEncoding,
        ),
        (
            vec![
                (":path", "/v1/chat/completions"),
                ("content-type", "multipart/form-data; boundary=b"),
            ],
            CHAT,
            SkipReason::ContentType,
        ),
        (
            vec![(":path", "/v1/chat/completions"), chat],
            "not json",
            SkipReason::Body(BodyError::NotJson),
        ),
        (
            vec![(":path", "/v1/chat/completions"), chat],
            "{\"model\":\"llama\",]",
            SkipReason::Body(BodyError::Malformed),
        ),
        (
            vec![(":path", "/v1/completions"), chat],
            r#"{"model":"llama","prompt":"a long claim","pro\u006dpt":"hi"}"#,
            SkipReason::Body(BodyError::RepeatedMember),
        ),
    ] {
        let headers = from_pairs(&[headers.as_slice(), &[("x-session-id", "s")]].concat());
        let release = send(usual(), &headers, body.as_bytes(), 5);
        assert_eq!(release.coverage, PromptCoverage::Skipped(reason));
        assert_eq!(
            set(&release, names::SESSION),
            hashed("s").as_deref(),
            "{reason:?}"
        );
        assert_eq!(set(&release, names::FINGERPRINT), None, "{reason:?}");
        assert!(set(&release, names::CLUSTER).is_some(), "{reason:?}");
    }
}

#[test]
fn a_path_or_method_that_clients_may_not_use_is_rejected_in_the_shape_of_its_api() {
    let of = |method: &str, path: &str| {
        let headers = from_pairs(&[(":method", method), (":path", path)]);
        Admission::of(&usual(), &headers)
    };
    for (method, path) in [
        ("POST", "/v1/completions"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/v1/models/a"),
        ("GET", "/health"),
    ] {
        assert_eq!(of(method, path), Admission::Serve, "{method} {path}");
    }
    assert_eq!(Admission::of(&usual(), &from_pairs(&[])), Admission::Serve);
    for (method, path, status, allow, start) in [
        ("GET", "/metrics", 404, None, r#"{"error":{"#),
        (
            "POST",
            "/v1/messages/batches",
            404,
            None,
            r#"{"error":{"message""#,
        ),
        (
            "DELETE",
            "/v1/models/a",
            405,
            Some("GET, HEAD"),
            r#"{"error":{"#,
        ),
        (
            "OPTIONS",
            "/v1/completions",
            405,
            Some("POST"),
            r#"{"error":{"#,
        ),
        (
            "TRACE",
            "/v1/messages",
            405,
            Some("POST"),
            r#"{"error":{"message""#,
        ),
    ] {
        let Admission::Reject(rejection) = of(method, path) else {
            panic!("{method} {path}");
        };
        assert_eq!(
            (rejection.status, rejection.allow),
            (status, allow),
            "{path}"
        );
        assert!(rejection.body.starts_with(start), "{}", rejection.body);
        let is_anthropic = rejection.body.contains(r#""type":"error""#);
        assert_eq!(is_anthropic, path.starts_with("/v1/messages"), "{path}");
    }
}

#[test]
fn a_request_of_another_application_loses_nothing_but_isotherms_own_headers() {
    let config = config(r#"{"paths":["*","/v1/rerank"],"default_cluster":"llama"}"#);
    let of = |path: &str| {
        let headers = [
            (":method", "POST"),
            (":path", path),
            ("accept-encoding", "gzip"),
            ("x-override-theme", "dark"),
            (names::CLUSTER, "llama"),
            (names::DESTINATION, "10.0.0.1:8000"),
        ];
        Admission::of(&config, &from_pairs(&headers))
    };
    let own = [names::DESTINATION, names::CLUSTER];
    let own = own.map(|name| HeaderEdit::Remove(name.to_owned())).to_vec();
    for path in [
        "/files/a",
        "/metrics",
        "/demo.Echo/Bidi",
        "/images/generate",
    ] {
        assert_eq!(of(path), Admission::Pass(own.clone()), "{path}");
    }
    for path in ["/v1/rerank", "/llm/v1/chat/completions", "/generate"] {
        assert_eq!(of(path), Admission::Serve, "{path}");
    }
}

#[test]
fn json_is_read_whatever_its_type_says() {
    let usually = send(usual(), &chat_with(&[]), CHAT.as_bytes(), 9);
    for more in [
        &[("content-type", "text/plain")][..],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "application/octet-stream")],
        &[],
    ] {
        let headers = [&[(":path", "/v1/chat/completions")], more].concat();
        let release = send(usual(), &from_pairs(&headers), CHAT.as_bytes(), 9);
        assert_eq!(release.coverage, PromptCoverage::Complete, "{more:?}");
        assert_eq!(release.edits, usually.edits, "{more:?}");
    }
}

#[test]
fn a_model_is_read_on_every_path_and_in_forms() {
    let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nllama\r\n--b--\r\n";
    for (path, content_type, body, coverage) in [
        (
            "/v1/rerank",
            "application/json",
            CHAT,
            SkipReason::UnknownPath,
        ),
        ("/v1/score", "text/plain", CHAT, SkipReason::UnknownPath),
        (
            "/tokenize?x",
            "application/json",
            CHAT,
            SkipReason::NoPrompt,
        ),
        (
            "/v1/messages/count_tokens",
            "application/json",
            CHAT,
            SkipReason::NoPrompt,
        ),
        (
            "/v1/audio/transcriptions",
            "multipart/form-data; boundary=b",
            form,
            SkipReason::ContentType,
        ),
        (
            "/openai/deployments/llama/images/generations",
            "application/json",
            "{}",
            SkipReason::UnknownPath,
        ),
    ] {
        let headers = from_pairs(&[(":path", path), ("content-type", content_type)]);
        let release = send(usual(), &headers, body.as_bytes(), 9);
        assert_eq!(
            release.coverage,
            PromptCoverage::Skipped(coverage),
            "{path}"
        );
        assert_eq!(set(&release, names::MODEL), Some("llama"), "{path}");
        assert_eq!(set(&release, names::CLUSTER), Some("llama-pool"), "{path}");
        assert_eq!(set(&release, names::UNREAD_MODEL), None, "{path}");
        assert_eq!(set(&release, names::FINGERPRINT), None, "{path}");
    }
}

#[test]
fn the_reason_why_a_model_cannot_be_told_is_announced() {
    let of = |more: &[(&str, &str)], body: &str| {
        let release = send(usual(), &chat_with(more), body.as_bytes(), 9);
        assert_eq!(set(&release, names::MODEL), None, "{body}");
        set(&release, names::UNREAD_MODEL).map(str::to_owned)
    };
    let form = ("content-type", "multipart/form-data; boundary=b");
    for (more, body, reason) in [
        (&[][..], "", None),
        (&[], " ", None),
        (&[], "{}", None),
        (&[], r#"{"model":"","prompt":"a","prompt":"b"}"#, None),
        (&[], "[]", Some("not_json")),
        (&[], "\u{feff}x", Some("not_json")),
        (&[], r#"{"messages":["#, Some("malformed")),
        (&[], r#"{"a":1"b":2}"#, Some("malformed")),
        (&[], r#"{"model":"a","model":"b"}"#, Some("contradictory")),
        (&[("content-encoding", "gzip")], "?", Some("encoding")),
    ] {
        assert_eq!(of(more, body).as_deref(), reason, "{body}");
    }
    let of_form = |body: &str| {
        let headers = from_pairs(&[(":path", "/v1/files"), form]);
        let release = send(usual(), &headers, body.as_bytes(), 9);
        set(&release, names::UNREAD_MODEL).map(str::to_owned)
    };
    assert_eq!(of_form("--b--\r\n"), None, "no field has the name");
    assert_eq!(of_form("--b\r\n").as_deref(), Some("malformed"));

    let short = config(r#"{"buffer_bytes_max":100}"#);
    let late = format!(r#"{{"messages":["{}"],"model":"llama"}}"#, "x".repeat(200));
    let release = send(short, &chat_with(&[]), late.as_bytes(), 9);
    assert_eq!(set(&release, names::UNREAD_MODEL), Some("too_far"));
    let release = send(usual(), &chat_with(&[]), late.as_bytes(), 9);
    assert_eq!(set(&release, names::MODEL), Some("llama"));

    let mut withheld = RequestFlow::new(usual(), &chat_with(&[]), true);
    withheld.skip_body();
    let release = withheld.release(|| NOW_UNIX_MS, || None);
    assert_eq!(set(&release, names::UNREAD_MODEL), Some("withheld"));
}

#[test]
fn a_prompt_that_cannot_be_read_is_estimated_by_its_bytes() {
    let tokens = |more: &[(&str, &str)], body: &str| {
        let release = send(usual(), &chat_with(more), body.as_bytes(), 90);
        assert_eq!(set(&release, names::FINGERPRINT), None);
        let tokens = set(&release, names::TOKENS).map(|value| tokens::parse(value.as_bytes()));
        tokens.map(|tokens| tokens.unwrap().prompt)
    };
    let prompt = "word ".repeat(800);
    let deep = format!(r#"{{"x":{}"prompt":"{prompt}"}}"#, "[".repeat(140));
    for body in [
        deep,
        format!(r#"{{"messages":"hi","messages":"{prompt}"}}"#),
        format!(r#"{{"x":?,"prompt":"{prompt}"}}"#),
        format!("prompt={prompt}"),
    ] {
        let expected = u32::try_from(body.len().div_ceil(4)).unwrap();
        assert_eq!(tokens(&[], &body), Some(expected), "{}", &body[..9]);
    }
    let encoded = ("content-encoding", "gzip");
    assert_eq!(tokens(&[encoded], &prompt), Some(1000));
    assert_eq!(
        tokens(&[encoded, ("content-length", "8000")], &prompt),
        Some(2000)
    );
    assert_eq!(tokens(&[], ""), None);

    let mut withheld = RequestFlow::new(usual(), &chat_with(&[("content-length", "4000")]), true);
    withheld.skip_body();
    let release = withheld.release(|| NOW_UNIX_MS, || None);
    assert_eq!(set(&release, names::TOKENS), Some("1000"));
}

#[test]
fn no_session_key_is_in_the_headers_in_clear() {
    let body = br#"{"model":"llama","user":"the-key","messages":[]}"#;
    for more in [
        ("x-session-id", "the-key"),
        ("cookie", "session=the-key"),
        ("x-none", ""),
    ] {
        let json =
            r#"{"session":[{"header":"x-session-id"},{"cookie":"session"},{"body":"user"}]}"#;
        let secret = json.replacen('{', r#"{"session_secret":"a secret of the operator","#, 1);
        let of = |json: &str| {
            let release = send(config(json), &chat_with(&[more]), body, 9);
            assert!(!format!("{:?}", release.edits).contains("the-key"));
            set(&release, names::SESSION).unwrap().to_owned()
        };
        assert_eq!(
            Some(of(json)),
            hashed("the-key"),
            "the source does not matter"
        );
        assert_ne!(of(json), of(&secret));
        assert_eq!(of(&secret), of(&secret));
    }
}

#[test]
fn the_sessions_of_agents_are_known_by_the_headers_that_they_send() {
    let body = br#"{"model":"llama","user":"team","messages":[]}"#;
    let claude = ("x-claude-code-session-id", "s1");
    for (headers, session) in [
        (&[claude][..], "s1"),
        (&[claude, ("x-claude-code-agent-id", "a1")], "a1"),
        (&[("session-id", "codex")], "codex"),
        (&[("x-session-id", "open")], "open"),
        (&[("x-dynamo-session-id", "run")], "run"),
    ] {
        let release = send(usual(), &chat_with(headers), body, 9);
        let of = hashed(session);
        assert_eq!(set(&release, names::SESSION), of.as_deref(), "{headers:?}");
    }
}

#[test]
fn the_client_address_is_the_last_session_source() {
    let body = br#"{"model":"llama","prompt":"x"}"#;
    let headers = from_pairs(&[(":path", "/v1/completions")]);
    let release = send(usual(), &headers, body, 9);
    assert_eq!(
        set(&release, names::SESSION),
        hashed("192.0.2.7").as_deref()
    );

    let known = chat_with(&[("x-envoy-external-address", "2001:db8::7")]);
    let release = RequestFlow::new(usual(), &known, false)
        .release(|| NOW_UNIX_MS, || panic!("the header has it"));
    assert_eq!(
        set(&release, names::SESSION),
        hashed("2001:db8::7").as_deref()
    );

    let flow = RequestFlow::new(usual(), &chat_with(&[("x-session-id", "s")]), false);
    let _ = flow.release(|| NOW_UNIX_MS, || panic!("no lookup is needed"));
    let none = config(r#"{"role":"request","session":[]}"#);
    let flow = RequestFlow::new(none, &chat_with(&[]), false);
    assert_eq!(
        set(
            &flow.release(|| NOW_UNIX_MS, || panic!("the address is no source")),
            names::SESSION
        ),
        None
    );
}

#[test]
fn nothing_in_a_body_can_break_a_header() {
    let body = br#"{"model":"a\r\nx-evil: 1","session_id":"\u0000\n","messages":[]}"#;
    let release = send(usual(), &chat_with(&[]), body, 3);
    for name in [names::MODEL, names::SESSION] {
        let value = set(&release, name).unwrap();
        assert!(
            value.bytes().all(|byte| byte.is_ascii_graphic()),
            "{name}: {value}"
        );
    }
}

proptest! {
    #[test]
    fn any_request_continues_with_valid_header_values(
        path in "/v1/chat/completions|/generate|/v1/models|.*",
        names in prop::collection::vec("x-session-id|cookie|x-tier|content-length|content-encoding|x-isotherm-[a-z]{1,3}", 0..4),
        value in prop::collection::vec(any::<u8>(), 0..40),
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "\\{(\"(model|user|messages|stream)\":(\"[^\"]{0,9}\"|\\[|\\{|1|null)[,\\]}]?){0,6}".prop_map(String::into_bytes),
        ],
        piece_bytes in 1..50_usize,
    ) {
        let mut headers = from_pairs(&[(":path", path.as_ref())]);
        headers.extend(names.into_iter().map(|name| (name, value.clone())));
        let release = send(usual(), &headers, &body, piece_bytes);
        for edit in release.edits {
            let HeaderEdit::Set(name, value) = edit else { continue };
            prop_assert!(!value.is_empty(), "{name}");
            prop_assert!(value.iter().all(u8::is_ascii_graphic), "{name}");
        }
    }
}

#[test]
fn tenants_with_equal_requests_share_neither_prompt_nor_session() {
    let config = config(r#"{"tenant_sources":[{"header":"X-Tenant-Id"}]}"#);
    let of = |headers: &[(&str, &str)]| {
        send(
            config.clone(),
            &chat_with(headers),
            CHAT.as_bytes(),
            usize::MAX,
        )
    };
    let (a, b) = (of(&[("x-tenant-id", "a")]), of(&[("x-tenant-id", "b")]));
    let common = of(&[]);
    assert_eq!(set(&a, names::TENANT), Some("a"));
    assert_eq!(set(&common, names::TENANT), None);
    for name in [names::FINGERPRINT, names::SESSION] {
        assert_ne!(set(&a, name), set(&b, name));
        assert_ne!(set(&a, name), set(&common, name));
    }
    let without_sources = send(usual(), &chat_with(&[]), CHAT.as_bytes(), usize::MAX);
    for name in [names::FINGERPRINT, names::SESSION, names::TOKENS] {
        assert_eq!(set(&common, name), set(&without_sources, name));
    }
}

#[test]
fn the_tenant_of_a_token_comes_from_dynamic_metadata() {
    let config = config(
        r#"{"tenant_sources":[{"metadata":{"filter":"jwt","path":["payload","sub"]}},{"header":"x-tenant-id"}]}"#,
    );
    let headers = chat_with(&[("x-tenant-id", "from-header")]);
    let of = |subject: Option<&str>| {
        let flow = RequestFlow::with_metadata(config.clone(), &headers, false, |path| {
            assert_eq!(
                path,
                ["metadata", "filter_metadata", "jwt", "payload", "sub"]
            );
            subject.map(|subject| subject.as_bytes().to_vec())
        });
        let release = flow.release(|| NOW_UNIX_MS, || None);
        set(&release, names::TENANT).map(str::to_owned)
    };
    assert_eq!(of(Some("ann")).as_deref(), Some("ann"));
    assert_eq!(of(None).as_deref(), Some("from-header"));
    assert_eq!(of(Some("Ann B.")), hashed("Ann B."));
}

#[test]
fn a_client_names_no_tenant_and_a_trusted_peer_does() {
    let headers = chat_with(&[(names::TENANT, "forged"), ("x-tenant-id", "own")]);
    let of = |json: &str| {
        let release = send(config(json), &headers, CHAT.as_bytes(), usize::MAX);
        set(&release, names::TENANT).map(str::to_owned)
    };
    assert_eq!(of("{}"), None);
    let sources = r#""tenant_sources":[{"header":"x-tenant-id"}]"#;
    assert_eq!(of(&format!("{{{sources}}}")).as_deref(), Some("own"));
    let trusting = format!(r#"{{{sources},"trusted_origin":true}}"#);
    assert_eq!(of(&trusting).as_deref(), Some("forged"));
}

#[test]
fn an_engine_is_not_asked_to_compress_unless_the_configuration_keeps_it() {
    let removes = |json: &str, more: &[(&str, &str)]| {
        let release = send(config(json), &chat_with(more), CHAT.as_bytes(), usize::MAX);
        let removed = HeaderEdit::Remove(ACCEPT_ENCODING.to_owned());
        release.edits.contains(&removed)
    };
    let gzip = [("accept-encoding", "gzip, br")];
    assert!(removes("{}", &gzip));
    assert!(!removes("{}", &[]), "there is none");
    assert!(!removes(r#"{"keep_accept_encoding":true}"#, &gzip));
}

#[test]
fn a_path_that_a_route_rewrites_has_the_fingerprint_of_its_api() {
    let json = r#"{"paths":["*"],"apis":[{"path":"/llm/openai","api":"chat_completions"}]}"#;
    let of = |path: &str| {
        let headers = from_pairs(&[(":method", "POST"), (":path", path)]);
        assert_eq!(
            Admission::of(&config(json), &headers),
            Admission::Serve,
            "{path}"
        );
        let release = send(config(json), &headers, CHAT.as_bytes(), usize::MAX);
        set(&release, names::FINGERPRINT).map(str::to_owned)
    };
    let usual = of("/v1/chat/completions");
    assert!(usual.is_some());
    for path in [
        "/llm/openai",
        "/llm/openai?x=1",
        "/gateway/v1/chat/completions",
        "/openai/deployments/llama/chat/completions?api-version=2024-02-01",
    ] {
        assert_eq!(of(path), usual, "{path}");
    }
}

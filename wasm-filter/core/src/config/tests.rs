use super::*;

fn request(json: &str) -> Arc<RequestConfig> {
    match PluginConfig::parse(json.as_bytes()).unwrap() {
        PluginConfig::Request(config) => config,
        PluginConfig::Response(_) | PluginConfig::Gate => panic!("another role"),
    }
}

fn refusal(json: &str) -> String {
    PluginConfig::parse(json.as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn the_role_alone_is_a_valid_configuration() {
    let config = request(r#"{"role":"request"}"#);
    assert_eq!(config.buffer_bytes_max, BUFFER_BYTES_MAX);
    assert_eq!(
        config.session.first(),
        Some(&Source::Header("x-session-id".to_owned()))
    );
    assert_eq!(config.session.last(), Some(&Source::ClientAddress));
    assert_eq!(config.cluster(Some("any")), None);
    assert!(matches!(
        PluginConfig::parse(br#"{"role":"response"}"#),
        Ok(PluginConfig::Response(ResponseConfig {
            decision: false,
            ..
        }))
    ));
}

#[test]
fn a_model_matches_exactly_or_gets_the_default_cluster() {
    let config = request(
        r#"{"role":"request","pools":[{"models":["a","b"],"cluster":"one"}],"default_cluster":"other"}"#,
    );
    assert_eq!(config.cluster(Some("b")), Some("one"));
    assert_eq!(config.cluster(Some("B")), Some("other"));
    assert_eq!(config.cluster(None), Some("other"));
}

#[test]
fn body_sources_keep_their_rank_among_all_sources() {
    let config = request(
        r#"{"role":"request","session":[{"body":"a"},{"cookie":"c"},{"body":"b.c"},"client_address"]}"#,
    );
    assert_eq!(
        config.session,
        [
            Source::Body("a".to_owned()),
            Source::Cookie("c".to_owned()),
            Source::Body("b.c".to_owned()),
            Source::ClientAddress
        ]
    );
    assert_eq!(config.members.session, ["a", "b.c"]);
}

#[test]
fn unknown_keys_are_refused_with_their_line() {
    let error = refusal("{\"role\":\"request\",\n \"bufer_bytes_max\":1}");
    assert!(
        error.contains("bufer_bytes_max") && error.contains("line 2"),
        "{error}"
    );
    let error = refusal(r#"{"role":"response","pools":[]}"#);
    assert!(error.contains("unknown field `pools`"), "{error}");
    let error = refusal(r#"{"role":"both"}"#);
    assert!(error.contains("`request`, `response`, `gate`"), "{error}");
}

#[test]
fn no_configuration_is_the_request_role_with_every_default() {
    let default = format!("{:?}", request(r#"{"role":"request"}"#));
    for json in ["", " \n", "null", "{}"] {
        assert_eq!(format!("{:?}", request(json)), default, "{json:?}");
    }
    assert_eq!(
        request(r#"{"default_cluster":"a"}"#).cluster(None),
        Some("a")
    );
}

#[test]
fn the_name_of_a_plugin_gives_the_role_where_the_configuration_does_not() {
    let is_response = |json: &str, name| {
        let config = PluginConfig::parse_named(json.as_bytes(), name).unwrap();
        matches!(config, PluginConfig::Response(_))
    };
    assert!(is_response("", "isotherm-response"));
    assert!(is_response(r#"{"decision":true}"#, "isotherm.response"));
    assert!(!is_response("", "isotherm"));
    assert!(!is_response(r#"{"role":"request"}"#, "isotherm-response"));
}

#[test]
fn a_text_that_is_no_json_object_is_refused_with_an_example() {
    for (json, part) in [
        ("role: request", "begins with `role: request`"),
        ("[1]", "begins with `[1]`"),
        ("\u{12}\u{4}role", "google.protobuf.StringValue"),
        (r#"{"role":"request""#, "EOF while parsing an object"),
        (r#"{"role":"request",}"#, "trailing comma"),
    ] {
        let error = refusal(json);
        assert!(error.contains(part), "{error}");
        assert!(error.contains(EXAMPLE), "{error}");
    }
}

#[test]
fn a_decision_stream_needs_a_cluster_and_defaults_to_half_a_second() {
    assert_eq!(request(r#"{"role":"request"}"#).decision_stream(), None);
    let config = request(r#"{"role":"request","decision_stream":{"cluster":"isotherm"}}"#);
    let decision_stream = DecisionStreamConfig {
        cluster: "isotherm".into(),
        timeout_ms: 500,
        decision: false,
    };
    assert_eq!(config.decision_stream(), Some(&decision_stream));
    let error = refusal(r#"{"role":"request","decision_stream":{"cluster":"","timeout_ms":0}}"#);
    for part in ["decision_stream.cluster", "decision_stream.timeout_ms"] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn numbers_in_compressed_responses_cannot_be_hidden() {
    let error = refusal(r#"{"hide_cache":true,"keep_accept_encoding":true}"#);
    assert!(
        error.contains("hide_cache excludes keep_accept_encoding"),
        "{error}"
    );
}

#[test]
fn every_mistake_is_reported_at_once() {
    let error = refusal(
        r#"{"role":"request","buffer_bytes_max":0,"default_cluster":"",
            "pools":[{"models":[],"cluster":"a b"},{"models":["m","m"],"cluster":"c"}],
            "session":[{"header":""}],"tier":["client_address"],"ttft_ms":[{"header":"a b"}],"deadline":["client_address"],"session_secret":"short","paths":["v1"],
            "apis":[{"path":"/llm/*","api":"messages"},{"path":"/llm","api":"chat"}]}"#,
    );
    for part in [
        "buffer_bytes_max",
        "default_cluster",
        "pools[0].cluster",
        "pools[0].models",
        "pools[1].models: \"m\"",
        "session[0]",
        "tier[0]",
        "ttft_ms[0]",
        "deadline[0]",
        "session_secret",
        "paths[0]",
        "apis[0].path",
        "apis[1].api: \"chat\" is not one of chat_completions",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn a_secret_in_the_environment_must_be_there_and_long_enough() {
    // Every test process of Cargo has these two variables.
    let variable = |name: &str| format!(r#"{{"session_secret":{{"env":"{name}"}}}}"#);
    let manifest = variable("CARGO_MANIFEST_DIR");
    assert!(request(&manifest).secret != request("{}").secret);
    let error = refusal(&variable("CARGO_PKG_VERSION_MAJOR"));
    assert!(
        error.contains("the variable CARGO_PKG_VERSION_MAJOR of session_secret has 1 bytes"),
        "{error}"
    );
    let error = refusal(&variable("ISOTHERM_NO_SUCH_VARIABLE"));
    assert!(error.contains("host_env_keys"), "{error}");
    let error = refusal(r#"{"session_secret":{"file":"/secret"}}"#);
    assert!(error.contains("expected a text or"), "{error}");
}

#[test]
fn the_gate_has_no_key_but_its_role() {
    let gate = PluginConfig::parse(br#"{"role":"gate"}"#);
    assert!(matches!(gate, Ok(PluginConfig::Gate)));
    assert!(refusal(r#"{"role":"gate","pools":[]}"#).contains("unknown field `pools`"));
    assert!(request(r#"{"gate":true}"#).has_gate());
    assert!(!request("{}").has_gate());
}

#[test]
fn every_mistake_in_a_source_of_a_tenant_is_named() {
    let error = refusal(
        r#"{"tenant_sources":[{"header":"a b"},{"metadata":{"filter":"","path":[]}},{"metadata":{"filter":"f","path":["a",""]}}]}"#,
    );
    for path in [
        "tenant_sources[0]",
        "tenant_sources[1].metadata.filter",
        "tenant_sources[1].metadata.path",
        "tenant_sources[2].metadata.path[1]",
    ] {
        assert!(error.contains(path), "{path}: {error}");
    }
    let error = refusal(r#"{"tenant_sources":[{"cookie":"c"}]}"#);
    assert!(error.contains("cookie"), "{error}");
}

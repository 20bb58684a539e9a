use super::*;
use crate::add::{Request, add};

/// A configuration without a finding: Isotherm in front of an application.
fn good() -> String {
    let owner = include_str!("../../tests/data/lua-and-llm-route.yaml");
    let routes = vec!["/v1/".to_owned()];
    add(
        owner,
        &Request {
            routes,
            ..Request::default()
        },
    )
    .unwrap()
    .text
}

/// The good configuration with one part replaced.
fn changed(part: &str, replacement: &str) -> String {
    let text = good();
    assert!(text.contains(part), "no {part} in\n{text}");
    text.replacen(part, replacement, 1)
}

fn findings(texts: &[&str]) -> Vec<Mistake> {
    let sources = texts.iter().enumerate().map(|(at, text)| Source {
        name: format!("file{at}"),
        text: (*text).to_owned(),
    });
    check(&sources.collect::<Vec<Source>>()).unwrap()
}

/// Checks that a text has exactly one kind of finding, at the line that has this part.
fn assert_found(text: &str, rule: &str, severity: Severity, part: &str) {
    let found = findings(&[text]);
    let rules: Vec<&str> = found.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, [rule], "{found:#?}");
    assert_eq!(found[0].severity, severity);
    let line = text.lines().position(|line| line.contains(part)).unwrap() + 1;
    assert_eq!(found[0].line, line, "{}", found[0]);
}

#[test]
fn the_shipped_configurations_and_an_added_one_have_no_findings() {
    let region = include_str!("../../../../envoy/region.yaml");
    for text in [crate::shipped::TEXT, region, &good()] {
        assert_eq!(findings(&[text]), []);
    }
}

#[test]
fn filters_that_reject_or_rewrite_belong_in_front() {
    let router = "          # The router is the last filter.";
    for (kind, rule) in [
        ("jwt_authn.v3.JwtAuthentication", "rejected-behind"),
        ("ext_authz.v3.ExtAuthz", "rejected-behind"),
        ("local_ratelimit.v3.LocalRateLimit", "rejected-behind"),
        ("lua.v3.Lua", "body-rewritten-behind"),
        (
            "grpc_json_transcoder.v3.GrpcJsonTranscoder",
            "body-rewritten-behind",
        ),
    ] {
        let filter = format!(
            "          - name: another\n            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.{kind} }}\n{router}"
        );
        assert_found(
            &changed(router, &filter),
            rule,
            Severity::Error,
            "- name: another",
        );
    }
}

#[test]
fn compression_hides_usage_behind_the_filter_and_when_the_engine_is_asked_for_it() {
    let router = "          # The router is the last filter.";
    let compressor = "          - name: gzip\n            typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor }\n";
    let text = changed(router, &format!("{compressor}{router}"));
    assert_found(&text, "compression-behind", Severity::Warning, "name: gzip");
    let lua = "          - name: envoy.filters.http.lua";
    let decompressor = compressor
        .replace("compressor", "decompressor")
        .replace("v3.Compressor", "v3.Decompressor");
    let text = changed(lua, &format!("{decompressor}{lua}"));
    assert_found(
        &text,
        "compressed-responses",
        Severity::Warning,
        "name: gzip",
    );
    let limit = "                request_body_buffer_limit";
    let header = "                request_headers_to_add:\n                - header: { key: Accept-Encoding, value: gzip }\n";
    let text = changed(limit, &format!("{header}{limit}"));
    assert_found(
        &text,
        "compressed-responses",
        Severity::Warning,
        "key: Accept-Encoding",
    );
}

#[test]
fn filters_run_on_every_route_to_a_pool_and_on_no_other() {
    let enabled = good()
        .lines()
        .filter(|line| line.trim_start().starts_with("isotherm.request: {"))
        .collect::<String>();
    let text = changed(&format!("{enabled}\n"), "");
    assert_found(
        &text,
        "not-enabled",
        Severity::Error,
        "- match: { prefix: /v1/ }",
    );
    let text = good().replace("            disabled: true\n", "");
    assert_found(
        &text,
        "enabled-elsewhere",
        Severity::Error,
        "- match: { prefix: / }",
    );
}

#[test]
fn a_route_in_front_that_takes_the_chat_is_reported_and_one_of_a_single_api_is_not() {
    let first = "              - match: { prefix: /v1/ }   # the engines";
    let with = |matched: &str| {
        let route = format!(
            "              - match: {{ {matched} }}\n                route: {{ cluster: engines, timeout: 0s }}\n{first}"
        );
        changed(first, &route)
    };
    for matched in [
        "prefix: /",
        "path: /v1/chat/completions",
        "safe_regex: { regex: \"/v1/.*\" }",
        "path_separated_prefix: /v1",
    ] {
        let text = with(matched);
        assert_found(
            &text,
            "route-shadows-isotherm",
            Severity::Error,
            &format!("match: {{ {matched} }}"),
        );
    }
    for matched in [
        "path: /v1/embeddings",
        "prefix: /other",
        "prefix: /, headers: [{ name: x-old, present_match: true }]",
    ] {
        assert_eq!(findings(&[&with(matched)]), [], "{matched}");
    }
}

#[test]
fn a_requirement_on_one_of_two_routes_with_one_match_is_a_security_error() {
    let first = "              - match: { prefix: /v1/ }   # the engines";
    let text = good();
    let at = text.find(first).unwrap();
    let end = text.find("              # everything else").unwrap();
    let own = &text[at..end];
    let header =
        "{ prefix: /v1/, headers: [{ name: x-isotherm-cluster, present_match: true }] } # first";
    let twin = own.replacen("{ prefix: /v1/ }   # the engines", header, 1);
    let jwt = "                  envoy.filters.http.jwt_authn: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig, requirement_name: need }\n";
    let twin = format!("{}{jwt}", twin.trim_end_matches(' '));
    let text = format!("{}{twin}{}", &text[..at], &text[at..]);
    assert_found(&text, "setting-on-one-route", Severity::Error, "# first");
    assert!(findings(&[&text])[0].hazard.starts_with("security: "));
}

#[test]
fn times_that_end_requests_in_the_queue_are_reported() {
    let timeout = "timeout: 300s";
    for replacement in ["timeout: 15s", "timeout: 30s"] {
        let text = changed(timeout, replacement);
        assert_found(&text, "short-timeout", Severity::Error, replacement);
    }
    let text = changed("                  timeout: 300s\n", "");
    assert_eq!(findings(&[&text])[0].rule, "short-timeout");
    let text = changed("idle_timeout: 3600s", "idle_timeout: 5s");
    assert_found(&text, "short-timeout", Severity::Error, "idle_timeout: 5s");
    let text = changed(
        "num_retries: 1",
        "num_retries: 1\n                    per_try_timeout: 60s",
    );
    assert_found(&text, "attempt-timeout", Severity::Error, "per_try_timeout");
    let text = good();
    let hosts = "              domains: [\"*\"]";
    let policy = format!("{hosts}\n              retry_policy: {{ per_try_idle_timeout: 1s }}");
    let own = text.find("                  retry_policy:").unwrap();
    let end = text
        .find("                request_body_buffer_limit")
        .unwrap();
    let text = format!("{}{}", &text[..own], &text[end..]).replacen(hosts, &policy, 1);
    assert_found(
        &text,
        "attempt-timeout",
        Severity::Error,
        "per_try_idle_timeout",
    );
}

#[test]
fn a_shadow_without_the_upstream_filter_sees_headers() {
    let shadow =
        "idle_timeout: 3600s\n                  request_mirror_policies: [{ cluster: app }]";
    let text = changed("idle_timeout: 3600s", shadow);
    assert_found(
        &text,
        "shadow-sees-headers",
        Severity::Warning,
        "request_mirror_policies",
    );
}

#[test]
fn a_rewrite_that_leaves_no_path_of_an_api_to_the_filter_is_reported() {
    let text = changed(
        "{ prefix: /v1/ }   # the engines",
        "{ prefix: /llm/openai }",
    );
    let text = text.replacen(
        "timeout: 300s",
        "timeout: 300s\n                  prefix_rewrite: /v1/chat/completions",
        1,
    );
    assert_found(&text, "path-is-no-api", Severity::Warning, "prefix_rewrite");
    let named = text.replacen(
        "\"pools\":",
        "\"apis\": [{\"path\": \"/llm/openai\", \"api\": \"chat_completions\"}],\n                    \"pools\":",
        1,
    );
    assert_ne!(named, text);
    assert_eq!(findings(&[&named]), []);
    let text = text.replacen("/llm/openai", "/llm", 1).replacen(
        "prefix_rewrite: /v1/chat/completions",
        "prefix_rewrite: /",
        1,
    );
    assert_eq!(findings(&[&text]), []);
}

#[test]
fn a_route_by_a_header_that_a_filter_sets_is_chosen_too_late() {
    let first = "              - match: { prefix: /v1/ }   # the engines";
    let own = "              - match: { prefix: /v1/, headers: [{ name: x-model, present_match: true }] }";
    let other = "              - match: { prefix: /v1/ }\n                route: { cluster: app }\n              # everything else";
    let text = changed(first, own).replacen("              # everything else", other, 1);
    assert_found(&text, "route-chosen-late", Severity::Warning, "x-model");
}

#[test]
fn a_bootstrap_needs_a_node_and_the_cluster_of_the_service() {
    let text = changed("\nnode: { id: isotherm-standalone, cluster: isotherm }", "");
    assert_found(&text, "no-node", Severity::Error, "# An API gateway");
    let text = changed("cluster: isotherm }", "id2: isotherm }");
    assert_found(&text, "no-node", Severity::Error, "node: {");
    let text = good();
    let service = text
        .rfind("  - name: isotherm\n")
        .or(text.rfind("  - name: isotherm"))
        .unwrap();
    let node = text.find("\nnode:").unwrap();
    let text = format!("{}{}", &text[..service], &text[node..]);
    assert_eq!(findings(&[&text])[0].rule, "service-not-static");
}

#[test]
fn the_service_in_a_discovery_file_is_found_together_with_the_bootstrap() {
    let text = good();
    let clusters = text.find("  clusters:\n").unwrap();
    let node = text.find("\nnode:").unwrap();
    let by_discovery = text[clusters..node].replacen("  clusters:", "resources:", 1);
    let by_discovery = by_discovery.replace("\n  ", "\n");
    let bootstrap = format!("{}{}", &text[..clusters], &text[node..]);
    let found = findings(&[&bootstrap, &by_discovery]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (found[0].rule, found[0].file.as_str()),
        ("service-not-static", "file1")
    );
}

#[test]
fn listeners_in_a_discovery_file_are_checked_with_their_routes_in_another() {
    let text = good();
    let at = text.find("          route_config:\n").unwrap();
    let end = text.find("          http_filters:\n").unwrap();
    let table = text[at..end]
        .replacen("          route_config:", "", 1)
        .replace("\n            ", "\n  ");
    let table = format!(
        "resources:\n- \"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration{table}"
    );
    let table = table.replacen("timeout: 300s", "timeout: 3s", 1);
    let rds = "          rds: { route_config_name: local, config_source: { path_config_source: { path: /r.yaml } } }\n";
    let bootstrap = format!("{}{rds}{}", &text[..at], &text[end..]);
    let found = findings(&[&bootstrap, &table]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (found[0].rule, found[0].file.as_str()),
        ("short-timeout", "file1")
    );
    assert_eq!(discovery_files(&bootstrap), ["/r.yaml"]);
}

#[test]
fn a_configuration_without_isotherm_says_so() {
    let owner = include_str!("../../tests/data/lua-and-llm-route.yaml");
    assert_eq!(findings(&[owner])[0].rule, "no-isotherm");
    assert!(!has_isotherm(owner) && has_isotherm(&good()));
}

//! Configurations of other shapes: one command adds Isotherm, and what is not Isotherm's stays as it is.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a failure fails the test"
)]

use std::fs;
use std::path::Path;

use isotherm_envoy_config::add::{Request, add};
use isotherm_envoy_config::check::{Source, check};
use isotherm_envoy_config::create::{Addresses, create};
use isotherm_envoy_config::pool::{Pool, Setup};

/// Lines that a configuration with one listener may gain. Envoys before 1.38 need up to eight of them: the decision of external
/// processing as filter state, since their access log has no `COALESCE`.
const LINES_MAX: usize = 158;
/// Lines that a further route may gain: its times, hash policy, retry policy and filters.
const ROUTE_LINES_MAX: usize = 25;
/// Lines that a further listener may gain: its early header mutation.
const LISTENER_LINES_MAX: usize = 6;
/// Lines that the cluster of a shadow may gain: the removal of internal headers.
const SHADOW_LINES_MAX: usize = 12;

/// The files with the routes that become Isotherm's, and the number of listeners.
const CONFIGURATIONS: [(&str, &[&str], Option<&str>); 18] = [
    ("lua-and-llm-route.yaml", &["/v1/"], None),
    ("shared-virtual-host.yaml", &["llm"], None),
    ("another-virtual-host.yaml", &["/"], Some("llm")),
    ("jwt-per-route.yaml", &["/v1/"], None),
    ("provider-by-header.yaml", &["/v1"], None),
    (
        "short-times-and-weights.yaml",
        &["/v1/(chat/)?completions", "/v1/models"],
        None,
    ),
    ("rewritten-prefix.yaml", &["/llm/"], None),
    ("compression.yaml", &["/v1/"], None),
    ("shadow.yaml", &["/v1/"], None),
    ("sni-and-anchors.yaml", &["/v1/"], None),
    ("scoped-routes.yaml", &["/v1/"], None),
    (
        "authorization-and-tls-engines.yaml",
        &["/v1/chat/completions", "/v1/completions"],
        None,
    ),
    ("camel-case.json", &["/v1/"], None),
    ("tcp-beside-http.yaml", &["/"], None),
    ("redirects-and-methods.yaml", &["llm"], None),
    ("quic-beside-tcp.yaml", &["/v1"], None),
    ("routes-by-matcher.yaml", &["/v1/"], None),
    ("internal-listener-and-template.yaml", &["chat"], None),
];

fn text(file: &str) -> String {
    fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(file),
    )
    .unwrap()
}

fn added(file: &str, routes: &[&str], host: Option<&str>) -> String {
    let request = Request {
        routes: routes.iter().map(|route| (*route).to_owned()).collect(),
        virtual_host: host.map(str::to_owned),
        ..Request::default()
    };
    add(&text(file), &request).expect(file).text
}

#[test]
fn one_command_adds_isotherm_and_the_check_finds_nothing() {
    for (file, routes, host) in CONFIGURATIONS {
        let text = added(file, routes, host);
        let findings = check(&[Source {
            name: file.into(),
            text,
        }])
        .unwrap();
        assert!(findings.is_empty(), "{file}: {findings:#?}");
    }
}

#[test]
fn every_comment_of_the_owner_survives() {
    for (file, routes, host) in CONFIGURATIONS {
        let after = added(file, routes, host);
        for line in text(file).lines() {
            // A member that goes takes the comment behind it.
            let comment = line.find("# ").filter(|_| !line.contains("# too short"));
            let comment = comment.and_then(|at| line.get(at..)).unwrap_or_default();
            assert!(after.contains(comment), "{file}: {comment}");
        }
    }
}

#[test]
fn an_addition_has_few_lines() {
    for (file, routes, host) in CONFIGURATIONS
        .iter()
        .filter(|(file, ..)| file.ends_with(".yaml"))
    {
        let (before, after) = (text(file), added(file, routes, *host));
        let more = after.lines().count() - before.lines().count();
        let own = after.matches("isotherm.request: {").count();
        let shadows = after.matches("- name: isotherm.internal_headers").count() - 1;
        let listeners = after
            .matches("- name: envoy.http.early_header_mutation")
            .count();
        let further = (own - 1) * ROUTE_LINES_MAX + (listeners - 1) * LISTENER_LINES_MAX;
        let allowed = LINES_MAX + further + shadows * SHADOW_LINES_MAX;
        assert!(
            more <= allowed,
            "{file}: {more} lines, at most {allowed}\n{after}"
        );
    }
}

#[test]
fn the_default_of_new_is_the_shipped_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../envoy/standalone.yaml");
    let shipped = fs::read_to_string(path).unwrap();
    assert_eq!(
        create(&Setup::default(), &Addresses::default()).unwrap(),
        shipped
    );
}

#[test]
fn new_names_pools_addresses_and_the_module_where_they_stand() {
    let pool = |model: &str, cluster: &str| Pool {
        models: vec![model.into()],
        cluster: cluster.into(),
    };
    let setup = Setup {
        pools: vec![pool("a", "first"), pool("*", "second")],
        service: Some("isotherm.example:9102".parse().unwrap()),
        filter: Some("/etc/envoy/filter.wasm".into()),
    };
    let addresses = Addresses {
        clients: Some("127.0.0.1:8443".parse().unwrap()),
        admin: Some("127.0.0.1:9909".parse().unwrap()),
    };
    let text = create(&setup, &addresses).unwrap();
    for part in [
        "\"pools\": [{ \"models\": [\"a\"], \"cluster\": \"first\" }]",
        "\"default_cluster\": \"second\"",
        "    - name: first\n",
        "    - name: second\n",
        "service_name: first #",
        "service_name: second #",
        "{ address: 127.0.0.1, port_value: 8443 }",
        "{ address: 127.0.0.1, port_value: 9909 }",
        "local: { filename: \"/etc/envoy/filter.wasm\" }",
        "type: STRICT_DNS",
        "isotherm.example",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(
        !text.contains("cluster: llama") && !text.contains("name: llama\n"),
        "{text}"
    );
    let findings = check(&[Source {
        name: "new".into(),
        text,
    }])
    .unwrap();
    assert!(findings.is_empty(), "{findings:#?}");
}

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The names of the rules that these documents break.
fn rules(text: &str) -> Vec<&'static str> {
    let mut manifests = Manifests::default();
    manifests.add(Path::new("test.yaml"), text).unwrap();
    violations(&manifests)
        .into_iter()
        .map(|violation| violation.rule)
        .collect()
}

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The text of a shipped manifest, with one part replaced.
fn changed(path: &str, part: &str, replacement: &str) -> String {
    let text = fs::read_to_string(file(path)).unwrap();
    assert!(text.contains(part), "{path} has no {part}");
    text.replace(part, replacement)
}

const ISTIO_POOL: &str = "deploy/mesh/istio.yaml";
const ISTIO_SERVICE: &str = "deploy/mesh/istio-service.yaml";
const ENVOY_GATEWAY: &str = "deploy/mesh/envoy-gateway.yaml";
const AI_GATEWAY: &str = "deploy/mesh/ai-gateway.yaml";
const POOL: &str = "deploy/mesh/inference-pool.yaml";

#[test]
fn the_shipped_manifests_and_bootstraps_have_no_hazards() {
    for path in [
        ISTIO_POOL,
        ISTIO_SERVICE,
        ENVOY_GATEWAY,
        AI_GATEWAY,
        POOL,
        "deploy/mesh/standalone.yaml",
        "envoy/standalone.yaml",
        "envoy/region.yaml",
    ] {
        let manifests = Manifests::read(&[file(path)]).unwrap();
        let violations = violations(&manifests);
        assert!(violations.is_empty(), "{path}:\n{}", report(&violations));
    }
}

#[test]
fn a_filter_that_cannot_hold_headers_is_reported_in_envoy_istio_and_envoy_gateway() {
    let flag = "allow_on_headers_stop_iteration: true";
    for path in ["envoy/standalone.yaml", ISTIO_POOL, ISTIO_SERVICE] {
        let text = changed(path, flag, "fail_open: false");
        assert_eq!(rules(&text), ["headers-not-held"], "{path}");
    }
    let patch = "path: allow_on_headers_stop_iteration";
    for path in [ENVOY_GATEWAY, AI_GATEWAY] {
        let text = changed(path, patch, "path: fail_open");
        assert_eq!(rules(&text), ["headers-not-held"], "{path}");
    }
    let plugin = "
kind: WasmPlugin
metadata: {name: isotherm}
spec: {url: 'oci://registry.example/isotherm-filter:1', pluginConfig: {role: request}}";
    assert_eq!(rules(plugin), ["headers-not-held"]);
}

#[test]
fn a_filter_with_a_gate_behind_it_needs_no_flag() {
    for (role, rule) in [
        ("role: request, gate: true", None),
        ("role: gate", None),
        ("gate: false", Some("headers-not-held")),
    ] {
        let plugin = format!(
            "
kind: WasmPlugin
metadata: {{name: isotherm}}
spec: {{url: 'oci://registry.example/isotherm-filter:1', pluginConfig: {{{role}}}}}"
        );
        assert_eq!(rules(&plugin), Vec::from_iter(rule), "{role}");
    }
}

#[test]
fn the_response_role_needs_no_flag() {
    let plugin = "
kind: WasmPlugin
metadata: {name: isotherm}
spec: {url: 'oci://registry.example/isotherm-filter:1', pluginConfig: {role: response}}";
    assert_eq!(rules(plugin), [""; 0]);
}

#[test]
fn a_filter_behind_external_processing_is_reported() {
    let order = "    - { name: envoy.filters.http.wasm, before: envoy.filters.http.ext_proc }";
    let text = changed(ENVOY_GATEWAY, order, "    []");
    assert_eq!(rules(&text), ["filter-behind-ext-proc"]);
    let text = changed(ISTIO_POOL, "INSERT_BEFORE", "INSERT_AFTER");
    assert_eq!(rules(&text), ["filter-behind-ext-proc"]);
    let router = "subFilter: { name: envoy.filters.http.router }";
    let text = changed(
        ISTIO_POOL,
        "subFilter: { name: envoy.filters.http.ext_proc }",
        router,
    );
    assert_eq!(rules(&text), ["filter-behind-ext-proc"]);
}

#[test]
fn a_configuration_dump_with_the_filter_behind_ext_proc_is_reported() {
    let dump = r#"{"configs": [{"active_state": {"listener": {"http_filters": [
        {"name": "picker", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor"}},
        {"name": "isotherm", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {"root_id": "isotherm", "allow_on_headers_stop_iteration": true,
                "configuration": {"value": "{\"role\": \"request\"}"}}}}]}}}]}"#;
    assert_eq!(rules(dump), ["filter-behind-ext-proc"]);
}

#[test]
fn a_buffer_below_what_the_filter_holds_is_reported() {
    let limit = "path: request_body_buffer_limit";
    let text = changed(ENVOY_GATEWAY, limit, "path: name");
    assert_eq!(rules(&text), ["buffer-below-filter"]);
    let text = changed(
        ISTIO_POOL,
        "value: { request_body_buffer_limit: 4194304 }",
        "value: {}",
    );
    assert_eq!(rules(&text), ["buffer-below-filter"]);
    let text = changed(
        "envoy/standalone.yaml",
        "request_body_buffer_limit: 4194304\n",
        "include_is_timeout_retry_header: false\n",
    );
    assert_eq!(rules(&text), ["buffer-below-filter"]);
}

#[test]
fn a_small_listener_of_envoy_gateway_is_enough_for_a_small_filter() {
    let text = changed(
        ENVOY_GATEWAY,
        "path: request_body_buffer_limit",
        "path: name",
    );
    let text = text.replace("buffer_bytes_max: 3145728", "buffer_bytes_max: 700000");
    assert_eq!(rules(&text), [""; 0]);
    let without_policy = text.replace("bufferLimit: 1Mi", "bufferLimit: 32Ki");
    assert_eq!(rules(&without_policy), ["buffer-below-filter"]);
}

#[test]
fn the_edge_profile_of_istio_limits_the_filter() {
    let text = changed(
        ISTIO_POOL,
        "value: { request_body_buffer_limit: 4194304 }",
        "value: {}",
    );
    let small = text.replace(
        "\"buffer_bytes_max\": 3145728",
        "\"buffer_bytes_max\": 700000",
    );
    assert_eq!(rules(&small), [""; 0]);
    let edge = "\n---\nkind: ProxyConfig\nspec: {connectionSettings: {profile: EDGE}}\n";
    assert_eq!(rules(&(small + edge)), ["buffer-below-filter"]);
}

#[test]
fn a_mistake_in_the_filters_configuration_is_reported_with_the_filters_words() {
    let text = changed(
        ENVOY_GATEWAY,
        "buffer_bytes_max: 3145728",
        "buffer_bytes: 3145728",
    );
    let mut manifests = Manifests::default();
    manifests.add(Path::new("test.yaml"), &text).unwrap();
    let violations = violations(&manifests);
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(
        violations[0]
            .hazard
            .contains("unknown field `buffer_bytes`"),
        "{violations:?}"
    );
    assert!(report(&violations).starts_with(
        "test.yaml: document 4, EnvoyExtensionPolicy default/isotherm: filter-configuration\n"
    ));
}

#[test]
fn fail_open_with_full_duplex_bodies_is_reported_in_envoy_gateway() {
    let text = changed(ENVOY_GATEWAY, "body: Streamed", "body: FullDuplexStreamed");
    assert_eq!(rules(&text), ["fail-open-duplex"]);
    let closed = text.replace("failOpen: true", "failOpen: false");
    assert_eq!(rules(&closed), [""; 0]);
}

#[test]
fn a_timer_shorter_than_the_queue_is_reported() {
    let text = changed(ENVOY_GATEWAY, "      messageTimeout: 60s\n", "");
    assert_eq!(rules(&text), ["timer-below-queue"]);
    let text = changed(
        "envoy/standalone.yaml",
        "max_message_timeout: 120s",
        "disable_clear_route_cache: false",
    );
    assert_eq!(rules(&text), ["timer-below-queue"]);
}

#[test]
fn patches_that_envoy_gateway_ignores_are_reported() {
    let disabled = "\n---\nkind: EnvoyGateway\nextensionApis: {enableBackend: true}\n";
    let text = fs::read_to_string(file(ENVOY_GATEWAY)).unwrap() + disabled;
    assert_eq!(rules(&text), ["patches-disabled"]);
}

#[test]
fn a_decision_that_no_policy_reads_is_reported() {
    let header = "- header: x-gateway-destination-endpoint";
    let text = changed(ENVOY_GATEWAY, header, "- header: x-other");
    assert_eq!(rules(&text), ["decision-without-effect"]);
}

#[test]
fn buffered_bodies_without_a_mode_override_are_reported_in_ai_gateway() {
    let annotation = "allow-mode-override: \"true\"";
    let text = changed(AI_GATEWAY, annotation, "allow-mode-override: \"false\"");
    assert_eq!(rules(&text), ["buffered-without-override"]);
}

#[test]
fn buffered_bodies_under_the_default_limit_are_reported_in_ai_gateway() {
    let pool = "
kind: InferencePool
metadata:
  name: llm
  annotations:
    aigateway.envoyproxy.io/processing-body-mode: buffered
    aigateway.envoyproxy.io/allow-mode-override: 'true'";
    assert_eq!(rules(pool), ["buffered-below-prompts"]);
}

#[test]
fn a_fingerprint_that_the_service_does_not_trust_is_reported_in_ai_gateway() {
    let service = "
---
kind: ConfigMap
data:
  isotherm.yaml: |
    pools: []
    ext_proc: { endpoints_max: 1, trusted_headers: auto }
";
    let text = fs::read_to_string(file(AI_GATEWAY)).unwrap() + service;
    assert_eq!(rules(&text), ["fingerprint-not-trusted"]);
    assert_eq!(rules(&text.replace("auto", "always")), [""; 0]);
}

#[test]
fn several_matches_that_lead_to_a_pool_are_reported_in_ai_gateway() {
    let one = fs::read_to_string(file(AI_GATEWAY)).unwrap();
    let start = "    - matches:\n";
    let two = format!("{start}        - path: {{ type: Exact, value: /generate }}\n");
    assert_eq!(rules(&one.replace(start, &two)), ["picker-repeated"]);
    let class = "gatewayClassName: envoy-ai-gateway";
    let elsewhere = one.replace(class, "gatewayClassName: istio");
    assert!(!rules(&elsewhere.replace(start, &two)).contains(&"picker-repeated"));
}

#[test]
fn fail_open_is_reported_where_the_gateway_ignores_it() {
    let text = changed(
        AI_GATEWAY,
        "failureMode: FailClose",
        "failureMode: FailOpen",
    );
    assert_eq!(rules(&text), ["fail-open-ignored"]);
    let text = changed(
        POOL,
        "gatewayClassName: istio",
        "gatewayClassName: envoy-ai-gateway",
    );
    assert_eq!(rules(&text), ["picker-repeated", "fail-open-ignored"]);
}

/// A service that names so many endpoints in a decision.
fn service(endpoints_max: u32) -> String {
    let own = format!("'{{pools: [], ext_proc: {{endpoints_max: {endpoints_max}}}}}'");
    format!("\n---\nkind: ConfigMap\ndata: {{isotherm.yaml: {own}}}\n")
}

#[test]
fn several_endpoints_are_reported_at_a_gateway_that_takes_one_address() {
    for (class, is_reported) in [("istio", false), ("agentgateway", true), ("nginx", true)] {
        let class = format!("gatewayClassName: {class}");
        let text = changed(POOL, "gatewayClassName: istio", &class);
        assert_eq!(rules(&text), [""; 0], "{class}: one by default");
        assert_eq!(rules(&(text.clone() + &service(1))), [""; 0], "{class}");
        let found = rules(&(text + &service(2)));
        assert_eq!(
            found == ["list-of-addresses"],
            is_reported,
            "{class}: {found:?}"
        );
    }
}

#[test]
fn the_controller_of_a_class_says_which_gateway_it_is() {
    let class = "
---
kind: GatewayClass
metadata: {name: edge}
spec: {controllerName: agentgateway.dev/agentgateway}
";
    let text = changed(POOL, "gatewayClassName: istio", "gatewayClassName: edge");
    let found = rules(&(text + class + &service(2)));
    assert_eq!(found, ["list-of-addresses"]);
}

#[test]
fn cors_and_faults_on_a_route_of_a_pool_are_reported_in_istio() {
    let backend = "      backendRefs:\n        - { group: inference";
    let cors =
        "      filters: [{type: CORS, cors: {}}]\n      backendRefs:\n        - { group: inference";
    assert_eq!(rules(&changed(POOL, backend, cors)), ["picker-dropped"]);
    let service = "
---
kind: VirtualService
metadata: {name: llm}
spec:
  http:
    - fault: {}
      route: [{destination: {host: llm-ip-1a2b3c4d.default.svc.cluster.local}}]
";
    let text = fs::read_to_string(file(POOL)).unwrap();
    assert_eq!(rules(&(text + service)), ["picker-dropped"]);
}

/// Configuration dumps of an Envoy that a real control plane configured, and the rules that each breaks.
///
/// Envoy Gateway 1.9.0 and Istio at eed52ebb66ad got the shipped manifests. `unpatched` is without the EnvoyPatchPolicy,
/// `plain` without the EnvoyFilter.
#[test]
fn dumps_of_real_control_planes_have_the_hazards_of_their_manifests() {
    let dumps: [(&str, &[&str]); 5] = [
        ("envoy-gateway", &[]),
        (
            "envoy-gateway-unpatched",
            &["headers-not-held", "buffer-below-filter"],
        ),
        ("istio-inference-pool", &[]),
        ("istio-service", &[]),
        ("istio-plain", &[]),
    ];
    for (name, expected) in dumps {
        let text = fs::read_to_string(file(&format!("tests/mesh/golden/{name}.json"))).unwrap();
        assert_eq!(rules(&text), expected, "{name}");
    }
}

#[test]
fn a_dump_of_istio_without_the_flag_is_reported() {
    let flag = "\"allow_on_headers_stop_iteration\": true";
    let text = changed(
        "tests/mesh/golden/istio-inference-pool.json",
        flag,
        "\"fail_open\": false",
    );
    assert_eq!(rules(&text), ["headers-not-held"]);
}

#[test]
fn full_duplex_without_trailers_is_reported_for_each_direction() {
    let mode = "
kind: EnvoyFilter
spec:
  processing_mode: {request_body_mode: FULL_DUPLEX_STREAMED, response_body_mode: 4, response_trailer_mode: SEND}";
    assert_eq!(rules(mode), ["duplex-without-trailers"]);
    let both = mode.replace("response_trailer_mode: SEND", "requestTrailerMode: SKIP");
    assert_eq!(rules(&both).len(), 2);
}

#[test]
fn the_items_of_a_list_are_documents() {
    let list = r#"{"kind": "List", "items": [{"kind": "WasmPlugin", "metadata": {"name": "isotherm"},
        "spec": {"pluginConfig": {"role": "request"}, "url": "isotherm"}}]}"#;
    assert_eq!(rules(list), ["headers-not-held"]);
}

#[test]
fn an_envoy_file_gets_the_checks_of_its_own_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("envoy.yaml");
    let text = changed("envoy/standalone.yaml", "timeout: 0s", "timeout: 15s");
    fs::write(&written, text).unwrap();
    assert_eq!(
        run(&[file("envoy/standalone.yaml")]).unwrap(),
        ExitCode::SUCCESS
    );
    assert_eq!(run(&[written]).unwrap(), ExitCode::FAILURE);
}

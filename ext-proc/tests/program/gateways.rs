//! The chart's presets of gateways: `deploy/mesh` holds what each one renders, and each page needs few commands.
//!
//! Without helm, the files in `deploy/mesh` stand for the chart's output; other tests read them.

use std::fs;

use serde_json::{Value, json};

use crate::deploy::{
    check_mesh, configuration, defaults, helm_or_skip, objects, render, rendered, root,
};

/// Values that every manifest has: the images of the registry of the documents.
const IMAGES: &str = "image.repository=registry.example/isotherm";

/// A provider, the name of its file in `deploy/mesh` and of its page in `docs/mesh`, and what the file is rendered with.
struct Preset {
    provider: &'static str,
    file: &'static str,
    page: &'static str,
    values: &'static [&'static str],
}

const POOL: &[&str] = &[
    "gateway.create=true",
    "route.create=true",
    "inferencePool.create=true",
    "inferencePool.selector.app=vllm",
];
const SERVICE: &[&str] = &[
    "gateway.create=true",
    "route.create=true",
    "engines.selector.app=vllm",
];

const PRESETS: [Preset; 6] = [
    Preset {
        provider: "none",
        file: "inference-pool",
        page: "inference-pool",
        values: &[
            "gateway.className=istio",
            "gateway.create=true",
            "route.create=true",
            "inferencePool.create=true",
            "inferencePool.selector.app=vllm",
        ],
    },
    Preset {
        provider: "istio",
        file: "istio",
        page: "istio",
        values: POOL,
    },
    Preset {
        provider: "istio-service",
        file: "istio-service",
        page: "istio",
        values: SERVICE,
    },
    Preset {
        provider: "envoy-gateway",
        file: "envoy-gateway",
        page: "envoy-gateway",
        values: SERVICE,
    },
    Preset {
        provider: "ai-gateway",
        file: "ai-gateway",
        page: "ai-gateway",
        values: POOL,
    },
    Preset {
        provider: "standalone",
        file: "standalone",
        page: "standalone",
        values: &["engines.selector.app=vllm"],
    },
];

/// The page of the chart.
const CHART_PAGE: &str = "deploy/helm/isotherm/README.md";

/// Most commands, and most lines of YAML of their own, that users need from a working mesh to the first request.
const COMMANDS_MAX: usize = 3;
const LINES_MAX: usize = 15;

impl Preset {
    /// The values of the manifest.
    fn values(&self) -> Vec<String> {
        let provider = format!("gateway.provider={}", self.provider);
        let others = self.values.iter().map(|value| (*value).to_owned());
        [provider, IMAGES.to_owned()]
            .into_iter()
            .chain(others)
            .collect()
    }

    /// The manifest that the chart renders: the objects of the gateway. `standalone` has the service in the same pod, so its
    /// manifest is the whole chart.
    fn manifest(&self, rendered: &str) -> String {
        let documents = rendered.split("---\n").filter(|document| {
            let source = document.lines().next().unwrap_or_default();
            let is_pod = self.provider == "standalone" && !source.contains("/templates/tests/");
            is_pod || source.contains("/templates/gateway/")
        });
        let mut text = format!(
            "# What the chart renders for this gateway (docs/mesh/{}.md). A test compares the file, and writes it:\n\
             # UPDATE_GENERATED=1 cargo test -p isotherm-ext-proc --test program gateways\n#\n\
             #   helm template isotherm deploy/helm/isotherm",
            self.page
        );
        for value in self.values() {
            text += &format!(" \\\n#     --set {value}");
        }
        text += "\n";
        for document in documents.filter(|document| !document.trim().is_empty()) {
            text += &format!("---\n{}\n", document.trim_end());
        }
        text
    }
}

/// The chart's output for these values, if helm is there.
fn chart(values: &[String]) -> Option<String> {
    let helm = helm_or_skip()?;
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    Some(rendered(helm, &values))
}

#[test]
fn every_manifest_of_a_mesh_is_what_the_chart_renders() {
    for preset in PRESETS {
        let Some(rendered) = chart(&preset.values()) else {
            return;
        };
        let manifest = preset.manifest(&rendered);
        let path = root(&format!("deploy/mesh/{}.yaml", preset.file));
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&path, &manifest).unwrap();
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == manifest,
            "{} is out of date: UPDATE_GENERATED=1 writes it",
            path.display()
        );
    }
}

/// The commands of a page below the heading `Apply`, each in one line, and the number of lines of YAML there.
fn steps(page: &str) -> (Vec<String>, usize) {
    let (_, apply) = page.split_once("\n## Apply\n").unwrap();
    let apply = apply.split("\n## ").next().unwrap();
    let (mut commands, mut yaml_lines) = (Vec::new(), 0);
    for block in apply.split("```").skip(1).step_by(2) {
        if let Some(block) = block.strip_prefix("sh\n") {
            commands.extend(block.replace("\\\n", " ").lines().map(str::to_owned));
        } else if let Some(block) = block.strip_prefix("yaml\n") {
            yaml_lines += block.lines().count();
        }
    }
    (commands, yaml_lines)
}

#[test]
fn every_page_of_a_gateway_needs_few_commands_and_little_yaml() {
    for preset in PRESETS {
        let path = format!("docs/mesh/{}.md", preset.page);
        let page = fs::read_to_string(root(&path)).unwrap();
        let (commands, lines) = steps(&page);
        assert!(commands.len() <= COMMANDS_MAX, "{path}: {commands:?}");
        assert!(lines <= LINES_MAX, "{path}: {lines} lines of YAML");
        let provider = format!("gateway.provider={}", preset.provider);
        assert!(
            preset.provider == "none" || page.contains(&provider),
            "{path}: no {provider}"
        );
    }
}

/// The values that `helm install` and `helm template` get in a page, each list with its command.
fn documented_values(page: &str) -> Vec<(String, Vec<String>)> {
    let text = page.replace("\\\n", " ");
    let is_command = |line: &&str| {
        ["helm install isotherm", "helm template isotherm"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let values = |command: &str| {
        let values = command.split('|').next().unwrap().split("--set ").skip(1);
        let values = values.map(|value| value.trim().trim_matches('\'').to_owned());
        (command.to_owned(), values.collect())
    };
    text.lines().filter(is_command).map(values).collect()
}

/// Pages with commands and values of the chart.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = PRESETS
        .iter()
        .map(|preset| format!("docs/mesh/{}.md", preset.page))
        .collect();
    pages.extend(["docs/mesh/README.md", "docs/install.md", CHART_PAGE].map(str::to_owned));
    pages
}

#[test]
fn the_commands_of_the_pages_install_a_chart_without_hazards() {
    for path in pages() {
        let page = fs::read_to_string(root(&path)).unwrap();
        let commands = documented_values(&page);
        assert!(!commands.is_empty(), "{path}");
        for (_, values) in commands {
            let Some(rendered) = chart(&values) else {
                return;
            };
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("chart.yaml");
            fs::write(&file, rendered).unwrap();
            check_mesh(&file);
        }
    }
}

/// Whether the chart has a value, by the path of its keys. What an empty value may hold is the schema's to know.
fn has_value(values: &Value, path: &str) -> bool {
    let mut at = values;
    for key in path.split('.') {
        let key = key.split('[').next().unwrap();
        let is_open = match at {
            Value::Object(members) => members.is_empty(),
            Value::Array(_) | Value::Null => true,
            _ => false,
        };
        if is_open {
            return true;
        }
        let Some(member) = at.get(key) else {
            return false;
        };
        at = member;
    }
    true
}

#[test]
fn every_value_that_a_page_names_is_one_of_the_chart() {
    let values = fs::read_to_string(root("deploy/helm/isotherm/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    for path in pages() {
        let page = fs::read_to_string(root(&path)).unwrap();
        let (_, table) = page.split_once("\n| value |").unwrap_or_default();
        let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let mut names: Vec<String> = quoted.map(str::to_owned).collect();
        for (_, set) in documented_values(&page) {
            names.extend(
                set.iter()
                    .map(|value| value.split('=').next().unwrap().to_owned()),
            );
        }
        for name in names {
            assert!(has_value(&values, &name), "{path}: no value {name}");
        }
    }
    assert!(!has_value(&values, "gateway.nmae"));
    assert!(!has_value(&values, "gateways.name"));
}

/// The rows of the table in the chart's page that says what each provider sets, as cells without quotes.
fn provider_rows() -> Vec<Vec<String>> {
    let page = fs::read_to_string(root(CHART_PAGE)).unwrap();
    let (_, table) = page.split_once("\n| `gateway.provider` |").unwrap();
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let cells = |row: &str| {
        row.split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    };
    rows.map(cells).collect()
}

/// The cells of a row of the table, but the last one, for what a provider sets.
fn preset_cells(provider: &str, objects: &[Value]) -> [String; 6] {
    let service = configuration(objects);
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind);
    let port = match (&service["tls"]["listen"][0], &service["listen"][0]) {
        (Value::String(listen), _) => listen.rsplit(':').next(),
        (_, Value::String(listen)) if listen.starts_with("127.") => Some("loopback"),
        (_, listen) => listen.as_str().and_then(|listen| listen.rsplit(':').next()),
    };
    [
        provider.to_owned(),
        port.unwrap().to_owned(),
        service["ext_proc"]["endpoints_max"].to_string(),
        service["ext_proc"]["trusted_headers"]
            .as_str()
            .unwrap()
            .to_owned(),
        (service["drain_ms_max"].as_u64().unwrap() / 1000).to_string(),
        of_kind("Deployment").unwrap()["spec"]["replicas"].to_string(),
    ]
}

#[test]
fn each_provider_sets_what_the_charts_page_says() {
    let rows = provider_rows();
    assert_eq!(rows.len(), PRESETS.len());
    for row in rows {
        let provider = &row[1];
        let Some(rendered) = chart(&[format!("gateway.provider={provider}")]) else {
            return;
        };
        let objects = objects(&rendered);
        assert_eq!(row[1..7], preset_cells(provider, &objects));
        let rules = opened(&objects, &json!("grpc-ext-proc"));
        let rules = [rules, opened(&objects, &json!("grpc-tls"))].concat();
        let is_bounded = |rule: &Value| !rule["from"].is_null();
        assert_eq!(
            rules.iter().any(is_bounded),
            row[7].ends_with("pods"),
            "{provider}: {rules:?}"
        );
    }
}

#[test]
fn the_pool_names_the_port_that_the_gateway_speaks() {
    for (provider, port) in [("istio", 9002), ("ai-gateway", 9012)] {
        let mut values = vec![format!("gateway.provider={provider}")];
        values.extend(POOL.iter().map(|value| (*value).to_owned()));
        let Some(rendered) = chart(&values) else {
            return;
        };
        let objects = objects(&rendered);
        let pool = objects
            .iter()
            .find(|object| object["kind"] == "InferencePool");
        let picker = &pool.unwrap()["spec"]["endpointPickerRef"];
        assert_eq!(picker["port"]["number"], port, "{provider}");
    }
}

#[test]
fn a_value_that_is_given_beats_the_preset() {
    let values = [
        "gateway.provider=ai-gateway",
        "plaintext=true",
        "tls.enabled=false",
        "inferencePool.pickerPort=9002",
        "drainSeconds=7",
    ];
    let Some(rendered) = chart(&values.map(str::to_owned)) else {
        return;
    };
    let service = configuration(&objects(&rendered));
    assert_eq!(service["tls"], Value::Null);
    assert_eq!(service["drain_ms_max"], 7_000);
}

#[test]
fn a_route_that_exists_gets_a_patch_for_each_of_its_rules() {
    let values = [
        "gateway.provider=istio",
        "route.name=mine",
        "route.rules={0,2}",
        "gateway.namespace=gateways",
    ];
    let Some(rendered) = chart(&values.map(str::to_owned)) else {
        return;
    };
    assert!(!rendered.contains("kind: HTTPRoute"), "{rendered}");
    for rule in ["default.mine.0", "default.mine.2"] {
        assert!(rendered.contains(rule), "no patch of {rule}");
    }
    let objects = objects(&rendered);
    let filter = objects
        .iter()
        .find(|object| object["kind"] == "EnvoyFilter");
    assert_eq!(filter.unwrap()["metadata"]["namespace"], "gateways");
}

/// Rules of the service's NetworkPolicy that open a port.
fn opened(objects: &[Value], port: &Value) -> Vec<Value> {
    let policy = objects
        .iter()
        .find(|object| object["kind"] == "NetworkPolicy");
    let rules = policy.unwrap()["spec"]["ingress"].as_array().unwrap();
    let opens = |rule: &&Value| {
        let ports = rule["ports"].as_array().unwrap();
        ports.iter().any(|entry| entry["port"] == *port)
    };
    rules.iter().filter(opens).cloned().collect()
}

#[test]
fn gateways_and_siblings_in_an_ambient_mesh_reach_the_service() {
    let tunnel = opened(&defaults(), &json!(15008));
    let has = |port: &str| {
        tunnel
            .iter()
            .any(|rule| rule["ports"].to_string().contains(port))
    };
    assert!(has("grpc-ext-proc"), "{tunnel:?}");
    assert!(has("tls-siblings"), "{tunnel:?}");
}

#[test]
fn services_of_other_regions_reach_the_port_of_siblings() {
    let peers = [
        "config.region.peers[0].name=eu",
        "config.region.peers[0].address=eu.example:9004",
        "networkPolicy.peers[0].ipBlock.cidr=10.2.0.0/16",
    ];
    let Some(rendered) = chart(&peers.map(str::to_owned)) else {
        return;
    };
    let rules = opened(&objects(&rendered), &json!("tls-siblings"));
    let from = json!([{"ipBlock": {"cidr": "10.2.0.0/16"}}]);
    assert!(rules.iter().any(|rule| rule["from"] == from), "{rules:?}");
    assert_eq!(opened(&defaults(), &json!("tls-siblings")).len(), 1);
}

#[test]
fn a_gateways_pods_alone_reach_the_service() {
    for (provider, label) in [
        ("istio", "gateway.networking.k8s.io/gateway-name"),
        ("envoy-gateway", "gateway.envoyproxy.io/owning-gateway-name"),
    ] {
        let values = [
            format!("gateway.provider={provider}"),
            "gateway.name=edge".into(),
        ];
        let Some(rendered) = chart(&values) else {
            return;
        };
        let rules = opened(&objects(&rendered), &json!("grpc-ext-proc"));
        let [rule] = &rules[..] else {
            panic!("{rules:?}");
        };
        let labels = &rule["from"][0]["podSelector"]["matchLabels"];
        assert_eq!(labels[label], "edge", "{provider}: {rule}");
    }
}

#[test]
fn a_platform_may_choose_the_user_and_add_files() {
    let values = [
        "podSecurityContext.runAsUser=null",
        "podSecurityContext.runAsGroup=null",
        "podSecurityContext.fsGroup=null",
        "extraVolumes[0].name=authority",
        "extraVolumes[0].configMap.name=authority",
        "extraVolumeMounts[0].name=authority",
        "extraVolumeMounts[0].mountPath=/etc/authority",
    ];
    let Some(rendered) = chart(&values.map(str::to_owned)) else {
        return;
    };
    let objects = objects(&rendered);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let pod = &deployment.unwrap()["spec"]["template"]["spec"];
    let security = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(pod["securityContext"], security);
    let mounts = pod["containers"][0]["volumeMounts"].to_string();
    assert!(mounts.contains("/etc/authority"), "{mounts}");
}

#[test]
fn a_scaled_deployment_leaves_its_number_of_pods_to_the_scaler() {
    let Some(rendered) = chart(&["autoscaling.enabled=true".to_owned()]) else {
        return;
    };
    let objects = objects(&rendered);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    assert_eq!(deployment.unwrap()["spec"]["replicas"], Value::Null);
}

#[test]
fn a_gateway_without_a_class_is_refused_with_the_value_to_set() {
    let Some(helm) = helm_or_skip() else {
        return;
    };
    let error = render(helm, &["gateway.create=true"]).unwrap_err();
    assert!(error.contains("gateway.className must name"), "{error}");
}

/// The containers of the pod with Envoy: the service's, and Envoy's.
fn standalone_containers() -> [Value; 2] {
    let text = fs::read_to_string(root("deploy/mesh/standalone.yaml")).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let pod = &deployment.unwrap()["spec"]["template"]["spec"];
    let named = |list: &str, name: &str| {
        let containers = pod[list].as_array().unwrap();
        let found = containers
            .iter()
            .find(|container| container["name"] == name);
        found.unwrap().clone()
    };
    [
        named("initContainers", "isotherm"),
        named("containers", "envoy"),
    ]
}

#[test]
fn envoy_in_the_pod_starts_after_the_service_knows_its_replicas() {
    let [service, _] = standalone_containers();
    assert_eq!(service["restartPolicy"], "Always");
    assert_eq!(service["startupProbe"]["grpc"]["service"], "readiness");
}

#[test]
fn envoy_in_the_pod_has_a_number_of_workers_and_pages_for_probes_and_prometheus() {
    let [service, envoy] = standalone_containers();
    let metrics = json!({"name": "http-metrics", "containerPort": 9091});
    assert!(service["ports"].as_array().unwrap().contains(&metrics));
    let arguments: Vec<&str> = envoy["args"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let after = |option: &str| {
        let place = arguments.iter().position(|argument| *argument == option);
        arguments[place.unwrap() + 1]
    };
    assert_eq!(after("--concurrency"), "2");
    let pages: Value = serde_saphyr::from_str(after("--config-yaml")).unwrap();
    let listener = &pages["static_resources"]["listeners"][0];
    let port = &listener["address"]["socket_address"]["port_value"];
    assert!(
        envoy["ports"]
            .as_array()
            .unwrap()
            .contains(&json!({"name": "http-envoy", "containerPort": port}))
    );
    assert_eq!(
        envoy["readinessProbe"]["httpGet"],
        json!({"path": "/ready", "port": "http-envoy"})
    );
    let routes = "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
    let routes = listener.pointer(routes).and_then(Value::as_array).unwrap();
    let paths: Vec<&Value> = routes.iter().map(|route| &route["match"]).collect();
    let path = |path: &str| json!({ "path": path });
    assert_eq!(paths, [&path("/ready"), &path("/stats/prometheus")]);
}

#[test]
fn the_test_of_a_release_checks_the_configuration_of_the_release() {
    let objects = defaults();
    let is_test = |object: &&Value| object["metadata"]["annotations"]["helm.sh/hook"] == "test";
    let pod = objects.iter().find(is_test).unwrap();
    let check = &pod["spec"]["containers"][0];
    let path = "/etc/isotherm/isotherm.yaml";
    assert_eq!(check["args"], json!(["check", "--config", path]));
    let map = json!({"name": "isotherm"});
    assert_eq!(pod["spec"]["volumes"][0]["configMap"], map);
    let service = objects.iter().find(|object| object["kind"] == "Service");
    let selector = &service.unwrap()["spec"]["selector"];
    let name = "app.kubernetes.io/name";
    assert_ne!(selector[name], pod["metadata"]["labels"][name]);
}

#[test]
fn a_secret_in_the_gateways_environment_reaches_the_filter() {
    const VARIABLE: &str = "ISOTHERM_SESSION_SECRET";
    let secret = format!("filter.config.session_secret.env={VARIABLE}");
    for (provider, passed) in [
        (
            "istio",
            "environment_variables: { host_env_keys: [\"ISOTHERM_SESSION_SECRET\"] }",
        ),
        (
            "envoy-gateway",
            "env: { hostKeys: [\"ISOTHERM_SESSION_SECRET\"] }",
        ),
    ] {
        let Some(helm) = helm_or_skip() else { return };
        let provider = format!("gateway.provider={provider}");
        let text = rendered(helm, &[&provider, "gateway.name=gateway", &secret]);
        assert!(text.contains(passed), "{provider}: {text}");
    }
}

/// The rule of the NetworkPolicy that opens a port, if one does.
fn rule_of<'a>(objects: &'a [Value], port: &str) -> Option<&'a Value> {
    let is_policy = |object: &&Value| object["kind"] == "NetworkPolicy";
    let policy = objects.iter().find(is_policy).unwrap();
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let opens = |rule: &&Value| {
        let ports = rule["ports"].as_array().unwrap();
        ports.iter().any(|open| open["port"] == port)
    };
    rules.iter().find(opens)
}

#[test]
fn the_port_without_tls_is_open_to_pods_of_gateways_alone() {
    const PORT: &str = "grpc-ext-proc";
    let rule = rule_of(&defaults(), PORT).cloned().unwrap();
    let pods = rule["from"].as_array().unwrap();
    assert!(pods.iter().all(|pod| !pod["podSelector"].is_null()));
    for preset in PRESETS {
        let Some(rendered) = chart(&preset.values()) else {
            return;
        };
        let objects = objects(&rendered);
        let encrypts = ["ai-gateway", "standalone"].contains(&preset.provider);
        let senders = rule_of(&objects, PORT).map(|rule| rule["from"].as_array().unwrap());
        assert_eq!(senders.is_none(), encrypts, "{}", preset.provider);
        let selectors = senders
            .into_iter()
            .flatten()
            .map(|from| &from["podSelector"]);
        for selector in selectors {
            let text = selector.to_string();
            assert!(text.contains("gateway-name"), "{}: {text}", preset.provider);
        }
    }
}

//! The files of `deploy/`: they parse, they have no known hazards, and the chart renders what its golden file says.
//!
//! With a helm in the folder that `ISOTHERM_MESH_TOOLS` names (`cargo xtask mesh-tools --only helm`), the chart is rendered
//! for a matrix of values. Without one, the golden file that helm wrote stands for the chart's defaults.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use isotherm_fingerprint::names;
use serde_json::{Value, json};

/// The chart's defaults as helm renders them, without certificates. `UPDATE_GENERATED=1` writes it.
const GOLDEN: &str = "tests/mesh/golden/chart-defaults.json";

/// The Kubernetes version that charts are rendered for.
const KUBERNETES: &str = "1.37.0";

/// Values that change what the chart renders, and the kinds that they add or remove.
/// A value that names a file is one of values.
const MATRIX: [(&[&str], &[&str], &[&str]); 15] = [
    (
        &[],
        &["Deployment", "NetworkPolicy", "Secret", "Role"],
        &["InferencePool", "Certificate"],
    ),
    (
        &[
            "inferencePool.create=true",
            "inferencePool.selector.app=vllm",
        ],
        &["InferencePool"],
        &[],
    ),
    (
        &["siblings.enabled=false", "replicaCount=1"],
        &["Deployment"],
        &["Secret"],
    ),
    (
        &["siblings.certificate.source=certManager"],
        &["Certificate", "Issuer"],
        &["Secret"],
    ),
    (
        &[
            "siblings.certificate.source=secret",
            "siblings.certificate.secretName=mine",
        ],
        &["Deployment"],
        &["Secret"],
    ),
    (
        &["tls.enabled=true", "extProc.endpointsMax=1"],
        &["Service"],
        &[],
    ),
    (
        &[
            "tls.enabled=true",
            "tls.secretName=mine",
            "admin.tokenSecret.name=token",
            "bindAddress=[::]",
        ],
        &["Service"],
        &[],
    ),
    (
        &[
            "serviceMonitor.enabled=true",
            "alertRules[0].name=isotherm",
            "dashboards.overview\\.json=text",
        ],
        &["ServiceMonitor", "PrometheusRule"],
        &[],
    ),
    (
        &[
            "scaling.keda=true",
            "scaling.stateVolume.emptyDir.sizeLimit=16Mi",
        ],
        &["Service", "NetworkPolicy"],
        &[],
    ),
    (
        &[
            "monitoring.alertRules=true",
            "monitoring.aliases=true",
            "monitoring.dashboard=true",
        ],
        &["PrometheusRule", "ConfigMap"],
        &["ServiceMonitor"],
    ),
    (
        &["deploy/helm/isotherm/values-ha.yaml"],
        &["ServiceMonitor", "PrometheusRule", "Certificate"],
        &["Secret"],
    ),
    (
        &[
            "batch.enabled=true",
            "batch.url=http://llm",
            "batch.keysSecret.name=keys",
            "serviceMonitor.enabled=true",
        ],
        &["PersistentVolumeClaim", "ServiceMonitor"],
        &[],
    ),
    (
        &[
            "batch.enabled=true",
            "batch.url=https://llm",
            "batch.keysSecret.name=keys",
            "batch.tokenSecret.name=token",
            "batch.tlsSecretName=tls",
            "batch.database.postgresSecret.name=postgres",
            "batch.work.replicas=2",
        ],
        &["Deployment", "NetworkPolicy"],
        &["PersistentVolumeClaim"],
    ),
    (
        &["autoscaling.enabled=true"],
        &["HorizontalPodAutoscaler"],
        &["InferencePool"],
    ),
    (
        &[
            "rbac.create=false",
            "networkPolicy.enabled=false",
            "podDisruptionBudget.enabled=false",
        ],
        &["Deployment"],
        &["Role", "NetworkPolicy", "PodDisruptionBudget"],
    ),
];

/// A path of the repository.
pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Every YAML file below a folder that is no template.
fn yaml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml");
        if path.is_dir() && !path.ends_with("templates") {
            yaml_files(&path, found);
        } else if is_yaml {
            found.push(path);
        }
    }
}

fn isotherm(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs `isotherm check --mesh` on a file and stops at a hazard.
pub(crate) fn check_mesh(file: &Path) {
    let output = isotherm(&["check", "--mesh", file.to_str().unwrap()]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The helm that is built, if it is.
fn helm() -> Option<Command> {
    let folder = std::env::var_os("ISOTHERM_MESH_TOOLS")?;
    let program = PathBuf::from(folder).join("helm");
    if !program.is_file() {
        return None;
    }
    let mut helm = Command::new(program);
    helm.current_dir(root(""));
    Some(helm)
}

/// The helm that is built; without one, the test says that it is left out.
pub(crate) fn helm_or_skip() -> Option<Command> {
    let helm = helm();
    if helm.is_none() {
        eprintln!("skipped: no helm; `cargo xtask mesh-tools --only helm` builds it");
    }
    helm
}

/// The chart's objects with these values.
pub(crate) fn rendered(helm: Command, values: &[&str]) -> String {
    render(helm, values).unwrap_or_else(|error| panic!("{values:?}: {error}"))
}

/// Renders the chart with these values; the error is that of Helm.
pub(crate) fn render(mut helm: Command, values: &[&str]) -> Result<String, String> {
    helm.args([
        "template",
        "isotherm",
        "deploy/helm/isotherm",
        "--kube-version",
        KUBERNETES,
    ]);
    for value in values {
        let is_file = value.ends_with(".yaml");
        helm.args([if is_file { "--values" } else { "--set" }, value]);
    }
    let output = helm.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// The objects of a rendered chart. A certificate differs each time, so its text is left out.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    for object in &mut objects {
        if object["kind"] == "Secret" {
            for value in object["data"].as_object_mut().unwrap().values_mut() {
                *value = json!("");
            }
        }
    }
    objects
}

/// The chart's defaults: from helm, else from the golden file.
pub(crate) fn defaults() -> Vec<Value> {
    match helm() {
        Some(helm) => objects(&rendered(helm, &[])),
        None => serde_json::from_str(&fs::read_to_string(root(GOLDEN)).unwrap()).unwrap(),
    }
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects
        .iter()
        .filter_map(|object| object["kind"].as_str())
        .collect()
}

#[test]
fn every_route_of_a_mesh_keeps_the_filters_headers_from_replicas() {
    let mut files = Vec::new();
    yaml_files(&root("deploy/mesh"), &mut files);
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let routes: Vec<String> = texts
        .filter(|text| text.contains(names::FINGERPRINT))
        .collect();
    assert!(routes.len() >= 4, "{}", routes.len());
    let internal = names::ALL.iter().filter(|header| {
        let is_of_request = ![names::OUTCOME, names::HELD].contains(&header.name);
        header.sender.starts_with("filter") && header.receiver == "service" && is_of_request
    });
    for header in internal {
        for route in &routes {
            assert!(route.contains(header.name), "{}: {route}", header.name);
        }
    }
}

#[test]
fn every_manifest_is_free_of_known_hazards() {
    let mut files = Vec::new();
    yaml_files(&root("deploy"), &mut files);
    for file in files {
        check_mesh(&file);
    }
}

#[test]
fn the_chart_renders_its_golden_file() {
    let Some(helm) = helm_or_skip() else {
        return;
    };
    let objects = objects(&rendered(helm, &[]));
    let text = serde_json::to_string_pretty(&objects).unwrap() + "\n";
    let golden = root(GOLDEN);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::create_dir_all(golden.parent().unwrap()).unwrap();
        fs::write(&golden, &text).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    assert!(
        expected == text,
        "{GOLDEN} is out of date: UPDATE_GENERATED=1 writes it"
    );
}

#[test]
fn the_chart_renders_for_every_row_of_the_matrix() {
    for (values, present, absent) in MATRIX {
        let Some(helm) = helm_or_skip() else {
            return;
        };
        let text = rendered(helm, values);
        let objects = objects(&text);
        let kinds = kinds(&objects);
        for kind in present {
            assert!(kinds.contains(kind), "{values:?}: no {kind} in {kinds:?}");
        }
        for kind in absent {
            assert!(!kinds.contains(kind), "{values:?}: {kind} in {kinds:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chart.yaml");
        fs::write(&file, text).unwrap();
        check_mesh(&file);
    }
}

#[test]
fn the_chart_passes_helms_own_check() {
    let Some(mut helm) = helm_or_skip() else {
        return;
    };
    let output = helm
        .args(["lint", "--strict", "deploy/helm/isotherm"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn a_value_that_the_chart_does_not_know_is_refused() {
    let Some(mut helm) = helm_or_skip() else {
        return;
    };
    helm.args([
        "template",
        "deploy/helm/isotherm",
        "--kube-version",
        KUBERNETES,
    ]);
    let output = helm.args(["--set", "replicas=3"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("'replicas' not allowed"),
        "{error}"
    );
}

/// Values that would leave a wish without effect, and what the error says about each.
const CONTRADICTIONS: [(&[&str], &str); 15] = [
    (&["plaintext=false"], "Set tls.enabled=true"),
    (&["tls.secretName=mine"], "Set tls.enabled=true"),
    (
        &[
            "tls.enabled=true",
            "plaintext=false",
            "tls.verifyClients=true",
        ],
        "tls.verifyClients needs tls.enabled=true and tls.secretName",
    ),
    (&["tls.verifyClients=true"], "tls.verifyClients needs"),
    (
        &[
            "tls.enabled=true",
            "tls.secretName=mine",
            "tls.verifyClients=true",
        ],
        "Set plaintext=false",
    ),
    (
        &[
            "inferencePool.create=true",
            "inferencePool.selector.app=vllm",
            "inferencePool.pickerPort=9012",
        ],
        "inferencePool.pickerPort is 9012",
    ),
    (
        &[
            "inferencePool.create=true",
            "inferencePool.selector.app=vllm",
            "inferencePool.pickerPort=9002",
            "plaintext=false",
            "tls.enabled=true",
        ],
        "gateways reach the service at 9012",
    ),
    (
        &["pools[0].modle=llama"],
        "additional properties 'modle' not allowed",
    ),
    (
        &["gateway.provider=standalone", "route.create=true"],
        "have no effect with gateway.provider=standalone",
    ),
    (
        &[
            "gateway.provider=standalone",
            "filter.config.hide_cache=true",
        ],
        "name its ConfigMap in standalone.configMap",
    ),
    (
        &["gateway.provider=istio", "filter.pullSecret=mine"],
        "Give Istio's agents the credentials",
    ),
    (
        &[
            "gateway.provider=istio",
            "plaintext=false",
            "tls.enabled=true",
        ],
        "Set plaintext=true, and let the mesh encrypt",
    ),
    (
        &["batch.enabled=true", "batch.url=http://llm"],
        "batch.keysSecret.name, a Secret",
    ),
    (
        &[
            "batch.enabled=true",
            "batch.url=http://llm",
            "batch.keysSecret.name=keys",
            "batch.work.replicas=1",
        ],
        "SQLite serves one pod",
    ),
    (&["batch.url=llm"], "'llm' does not match pattern"),
];

#[test]
fn values_that_contradict_each_other_are_refused_with_the_value_to_set() {
    for (values, expected) in CONTRADICTIONS {
        let Some(helm) = helm_or_skip() else {
            return;
        };
        let error = render(helm, values).unwrap_err();
        assert!(error.contains(expected), "{values:?}: {error}");
    }
}

#[test]
fn without_plaintext_only_the_port_with_tls_is_open_and_asks_for_certificates() {
    let Some(helm) = helm_or_skip() else {
        return;
    };
    let values = [
        "plaintext=false",
        "tls.enabled=true",
        "tls.secretName=mine",
        "tls.verifyClients=true",
    ];
    let text = rendered(helm, &values);
    assert!(!text.contains("grpc-ext-proc"), "{text}");
    let configuration = configuration(&objects(&text));
    assert_eq!(
        configuration["tls"]["client_ca"],
        "/etc/isotherm-tls/ca.crt"
    );
    assert_eq!(configuration["listen"], json!(["127.0.0.1:9002"]));
}

#[test]
fn the_rules_carry_the_labels_that_prometheus_selects() {
    let Some(helm) = helm_or_skip() else {
        return;
    };
    let values = ["monitoring.alertRules=true", "alertRuleLabels.release=prom"];
    let objects = objects(&rendered(helm, &values));
    let is_rules = |object: &&Value| object["kind"] == "PrometheusRule";
    let rules = objects.iter().find(is_rules).unwrap();
    assert_eq!(rules["metadata"]["labels"]["release"], "prom");
}

#[test]
fn the_services_role_reads_three_kinds_and_nothing_else() {
    let objects = defaults();
    let roles: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "Role")
        .collect();
    assert_eq!(roles.len(), 1);
    let read = json!(["get", "list", "watch"]);
    let rule =
        |group: &str, kind: &str| json!({"apiGroups": [group], "resources": [kind], "verbs": read});
    let expected = json!([
        rule("inference.networking.k8s.io", "inferencepools"),
        rule("", "pods"),
        rule("discovery.k8s.io", "endpointslices"),
    ]);
    assert_eq!(roles[0]["rules"], expected);
    assert!(!kinds(&objects).contains(&"ClusterRole"));
}

#[test]
fn the_services_of_regions_with_lease_objects_may_write_leases_and_nothing_else() {
    let Some(helm) = helm_or_skip() else {
        return;
    };
    let values = ["config.region.store.kubernetes=regions"];
    let objects = objects(&rendered(helm, &values));
    let is_leases = |object: &&Value| object["metadata"]["namespace"] == "regions";
    let found: Vec<&Value> = objects.iter().filter(is_leases).collect();
    let kinds: Vec<&Value> = found.iter().map(|object| &object["kind"]).collect();
    assert_eq!(kinds, ["Role", "RoleBinding"]);
    let verbs = ["list", "create", "update"];
    let rule =
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs});
    assert_eq!(found[0]["rules"], json!([rule]));
    assert_eq!(found[1]["subjects"][0]["namespace"], "default");
}

#[test]
fn the_pod_is_confined_and_stops_after_its_drain() {
    let objects = defaults();
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let container = &pod["containers"][0];
    let confined = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(container["securityContext"], confined);
    let pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        .as_u64()
        .unwrap();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let drain_ms = configuration(&objects)["drain_ms_max"].as_u64().unwrap();
    assert!(
        grace > pause + drain_ms / 1000,
        "{grace} s for {pause} s and {drain_ms} ms"
    );
}

#[test]
fn the_pods_of_batch_work_are_confined_and_no_service_of_the_picker_selects_them() {
    for (values, components) in [(&MATRIX[11], 1), (&MATRIX[12], 2)] {
        let Some(helm) = helm_or_skip() else {
            return;
        };
        let objects = objects(&rendered(helm, values.0));
        let of_kind = |kind: &str| -> Vec<&Value> {
            let is_it = |object: &&Value| object["kind"] == kind;
            objects.iter().filter(is_it).collect()
        };
        let (batch, service): (Vec<_>, Vec<_>) =
            of_kind("Deployment").into_iter().partition(|deployment| {
                let name = deployment["metadata"]["name"].as_str().unwrap();
                name.starts_with("isotherm-batch-")
            });
        assert_eq!((batch.len(), service.len()), (components, 1));
        let confined = |deployment: &Value| {
            let pod = &deployment["spec"]["template"]["spec"];
            let container = pod["containers"][0]["securityContext"].clone();
            (pod["securityContext"].clone(), container)
        };
        let selectors = of_kind("Service");
        for deployment in batch {
            assert_eq!(confined(deployment), confined(service[0]));
            let labels = deployment["spec"]["template"]["metadata"]["labels"].clone();
            let selecting = selectors.iter().filter(|service| {
                let selector = service["spec"]["selector"].as_object().unwrap();
                selector.iter().all(|(name, value)| labels[name] == *value)
            });
            for service in selecting {
                let name = service["metadata"]["name"].as_str().unwrap();
                assert!(name.starts_with("isotherm-batch"), "{name}");
            }
            let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
            let arguments: Vec<&str> = arguments
                .as_array()
                .unwrap()
                .iter()
                .map(|argument| argument.as_str().unwrap())
                .collect();
            // The program knows every argument: it stops at a file that is not here.
            let output = isotherm(&arguments);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn the_services_configuration_in_every_manifest_has_no_mistakes() {
    assert_eq!(check_configurations(&defaults()), 1);
    let text = fs::read_to_string(root("deploy/mesh/standalone.yaml")).unwrap();
    assert_eq!(
        check_configurations(&serde_saphyr::from_multiple::<Value>(&text).unwrap()),
        1
    );
    for (values, _, _) in MATRIX {
        if let Some(helm) = helm() {
            assert_eq!(
                check_configurations(&objects(&rendered(helm, values))),
                1,
                "{values:?}"
            );
        }
    }
}

/// Runs `isotherm check` on each service's configuration of these objects, and returns their number.
fn check_configurations(objects: &[Value]) -> usize {
    let texts = objects
        .iter()
        .filter_map(|object| object["data"]["isotherm.yaml"].as_str());
    let checks = texts.map(|text| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isotherm.yaml");
        fs::write(&file, text).unwrap();
        let output = isotherm(&["check", "--config", file.to_str().unwrap()]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    });
    checks.count()
}

/// The service's configuration in a rendered chart.
pub(crate) fn configuration(objects: &[Value]) -> Value {
    let map = objects
        .iter()
        .find(|object| object["kind"] == "ConfigMap")
        .unwrap();
    serde_saphyr::from_str(map["data"]["isotherm.yaml"].as_str().unwrap()).unwrap()
}

//! Every file of `deploy/` and `examples/` as it is shipped: values fit the chart's schema, objects are of kinds that a cluster
//! knows, configurations have no mistakes, and each gateway removes what clients must not send.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_fingerprint::names;
use regex::Regex;
use serde_json::{Value, json};

const CHART: &str = "deploy/helm/isotherm";

/// The kinds of the manifests, each with the API that has it.
const KINDS: [(&str, &str); 17] = [
    ("apps/v1", "Deployment"),
    ("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy"),
    ("gateway.envoyproxy.io/v1alpha1", "ClientTrafficPolicy"),
    ("gateway.envoyproxy.io/v1alpha1", "EnvoyExtensionPolicy"),
    ("gateway.envoyproxy.io/v1alpha1", "EnvoyPatchPolicy"),
    ("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy"),
    ("gateway.networking.k8s.io/v1", "Gateway"),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"),
    ("inference.networking.k8s.io/v1", "InferencePool"),
    ("networking.istio.io/v1alpha3", "EnvoyFilter"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
];

/// A path of the repository.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The YAML files below a folder that are no templates of Helm, by their paths in the repository.
fn yaml_files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            if !path.ends_with("/templates") {
                found.extend(yaml_files(&path));
            }
        } else if Path::new(&path)
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The documents of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(root(path)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files with values of the service's chart: its own, and the ones that `helm install -f` takes.
fn values_files() -> Vec<String> {
    let mut files = yaml_files("deploy");
    files.retain(|path| {
        let name = path.rsplit('/').next().unwrap();
        name.starts_with("values")
    });
    files
}

/// The schema of the chart's values.
fn chart_schema() -> jsonschema::Validator {
    let schema = fs::read_to_string(root(&format!("{CHART}/values.schema.json"))).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap()
}

#[test]
fn every_values_file_fits_the_charts_schema() {
    let schema = chart_schema();
    let files = values_files();
    assert!(files.len() >= 2, "{files:?}");
    for path in files {
        let [values] = &documents(&path)[..] else {
            panic!("{path} is not one document");
        };
        let mistakes: Vec<String> = schema
            .iter_errors(values)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(mistakes.is_empty(), "{path}: {mistakes:?}");
    }
}

#[test]
fn the_charts_schema_refuses_a_misspelt_value() {
    let schema = chart_schema();
    for (values, is_valid) in [
        (json!({"tls": {"trustedHeaders": "always"}}), false),
        (json!({"pools": [{"modle": "llama"}]}), false),
        (
            json!({"pools": [{"model": "llama", "queue": {"wait_ms_max": "long"}}]}),
            false,
        ),
        (json!({"config": {"decision_heade": true}}), false),
        (
            json!({"pools": [{"model": "llama", "replicas": {"dns": "engines"}}]}),
            true,
        ),
        // The chart writes the region's name and certificate.
        (
            json!({"config": {"region": {"peers": [{"name": "eu", "address": "eu.example:9004"}]}}}),
            true,
        ),
    ] {
        assert_eq!(schema.is_valid(&values), is_valid, "{values}");
    }
}

/// Removes the texts of a schema, which its mistakes do not show.
fn remove_texts(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|name, value| name != "description" || !value.is_string());
            members.values_mut().for_each(remove_texts);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_texts),
        _ => {}
    }
}

/// Members that a section of `config` need not have, since the chart writes them.
const WRITTEN_BY_THE_CHART: [&str; 2] = [
    "/properties/region/anyOf/0",
    "/properties/region/anyOf/0/properties/tls/anyOf/0",
];

/// The chart's definitions of `pools` and `config`, by `isotherm config-schema`.
fn configuration_schemas() -> [(&'static str, Value); 2] {
    let output = Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .arg("config-schema")
        .output()
        .unwrap();
    let mut config: Value = serde_json::from_slice(&output.stdout).unwrap();
    remove_texts(&mut config);
    for section in WRITTEN_BY_THE_CHART {
        let section = config
            .pointer_mut(section)
            .unwrap()
            .as_object_mut()
            .unwrap();
        section.remove("required").unwrap();
    }
    let pools = config["properties"]["pools"].take();
    config["properties"]["pools"] = json!({"$ref": "#/definitions/pools"});
    config.as_object_mut().unwrap().remove("$schema").unwrap();
    [("pools", pools), ("config", config)]
}

#[test]
fn the_charts_schema_holds_that_of_the_services_configuration() {
    let path = root(&format!("{CHART}/values.schema.json"));
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (name, schema) in configuration_schemas() {
        let start = format!("    \"{name}\": ");
        // The definitions stand in front of the properties.
        let line = lines.iter_mut().find(|line| line.starts_with(&start));
        *line.unwrap() = format!("{start}{schema},");
    }
    let expected = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == expected,
        "values.schema.json is out of date: UPDATE_DOCS=1 writes it"
    );
}

#[test]
fn every_object_is_of_a_kind_that_its_api_has() {
    let files = yaml_files("deploy/mesh");
    for path in &files {
        for object in documents(path) {
            let text = |name: &str| object[name].as_str().unwrap_or_default();
            let kind = (text("apiVersion"), text("kind"));
            assert!(KINDS.contains(&kind), "{path}: {kind:?}");
        }
    }
}

#[test]
fn every_file_of_a_service_has_no_mistakes() {
    let files = yaml_files("examples");
    let services: Vec<&String> = files
        .iter()
        .filter(|path| path.ends_with("/isotherm.yaml"))
        .collect();
    assert!(services.len() >= 4, "{services:?}");
    for path in services {
        let output = Command::new(env!("CARGO_BIN_EXE_isotherm"))
            .current_dir(root(Path::new(path).parent().unwrap().to_str().unwrap()))
            .args(["check", "--config", "isotherm.yaml"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    for path in &files {
        assert!(!documents(path).is_empty(), "{path} is empty");
    }
}

/// Whether an early mutation of headers removes a header: Envoy's form, and Envoy Gateway's.
fn is_removed(mutations: &[Value], header: &str) -> bool {
    let is_match = |matcher: &Value| {
        let prefix = matcher["prefix"].as_str();
        let regex = matcher["safe_regex"]["regex"].as_str();
        prefix.is_some_and(|prefix| header.starts_with(prefix))
            || regex.is_some_and(|regex| {
                Regex::new(&format!("^(?:{regex})$"))
                    .unwrap()
                    .is_match(header)
            })
    };
    mutations.iter().any(|mutation| {
        mutation["remove"] == header || is_match(&mutation["remove_on_match"]["key_matcher"])
    })
}

/// The early mutations of a manifest in Envoy's form.
fn early_mutations(object: &Value, found: &mut Vec<Value>) {
    match object {
        Value::Object(members) => {
            for (name, value) in members {
                match name.as_str() {
                    "earlyRequestHeaders" => found.extend(from_envoy_gateway(value)),
                    "mutations" => found.extend(value.as_array().unwrap().iter().cloned()),
                    _ => early_mutations(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| early_mutations(item, found)),
        _ => {}
    }
}

/// Converts Envoy Gateway's form of removals to Envoy's.
fn from_envoy_gateway(filter: &Value) -> Vec<Value> {
    let list = |name: &str| filter[name].as_array().cloned().unwrap_or_default();
    let removed = list("remove")
        .into_iter()
        .map(|name| json!({"remove": name}));
    let matched = list("removeOnMatch").into_iter().map(|matcher| {
        let matcher = match matcher["type"].as_str() {
            Some("Prefix") => json!({"prefix": matcher["value"]}),
            Some("RegularExpression") => json!({"safe_regex": {"regex": matcher["value"]}}),
            other => panic!("unknown type {other:?}"),
        };
        json!({"remove_on_match": {"key_matcher": matcher}})
    });
    removed.chain(matched).collect()
}

/// A filter that is absent removes nothing, and the service believes the headers of a gateway that sends no bodies.
#[test]
fn every_gateway_with_the_filter_removes_what_clients_must_not_send() {
    let internal = names::ALL.iter().map(|header| header.name.to_owned());
    let prefixes = names::ENGINE_CONTROL_PREFIXES
        .iter()
        .map(|prefix| format!("{prefix}a"));
    let control = names::SIDECAR.iter().chain(&names::ENGINE_CONTROL);
    let forbidden: BTreeSet<String> = internal
        .chain(prefixes)
        .chain(control.map(|name| (*name).to_owned()))
        .collect();
    let mut manifests = 0;
    for path in yaml_files("deploy/mesh") {
        let mut mutations = Vec::new();
        for object in documents(&path) {
            early_mutations(&object, &mut mutations);
        }
        if mutations.is_empty() {
            continue;
        }
        manifests += 1;
        for header in &forbidden {
            assert!(
                is_removed(&mutations, header),
                "{path}: {header} is believed"
            );
        }
        // The filter reads the budget of a client by this name.
        assert!(!is_removed(&mutations, "x-llm-d-slo-ttft-ms"), "{path}");
    }
    assert_eq!(manifests, 4);
}

//! A real Envoy Gateway configures an Envoy by the manifest for Envoy Gateway.
//!
//! Without a cluster it reads files and starts Envoy itself. The test replaces Services by addresses, and the filter's image
//! by a file: Envoy Gateway fetches the module from the test, and a patch lets Envoy read the file.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm_e2e::permit;
use isotherm_harness::process::Process;
use isotherm_harness::tools::Tools;
use serde_json::{Value, json};

use crate::world::{
    ENGINE_PORT, ENGINES, SERVICE, documents, expect_affinity, folder, programs, repository,
    start_engines, start_service,
};

const PORT: u16 = 18888;
/// Where Envoy Gateway fetches the filter.
const MODULE_PORT: u16 = 18999;

#[tokio::test]
async fn envoy_gateway_keeps_the_prompt_in_front_of_a_service() -> anyhow::Result<()> {
    let Some([program]) = programs(["envoy-gateway"]) else {
        return Ok(());
    };
    let _permit = permit::exclusive().await?;
    let folder = folder("mesh-envoy-gateway")?;
    let tools = Tools::find()?;
    prepare(&program, &folder, &tools.envoy)?;
    let objects = adapted(&folder, &tools.filter)?;
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    fs::write(folder.join("resources/all.yaml"), text.join("\n---\n"))?;
    let _engines = start_engines(&folder).await?;
    let addresses: Vec<String> = ENGINES
        .iter()
        .map(|address| format!("{address}:{ENGINE_PORT}"))
        .collect();
    let _service = start_service(&folder, &json!({ "static": addresses }), None).await?;
    let _modules = serve_module(&tools.filter, &folder)?;
    let mut command = Command::new(program);
    command
        .args(["server", "--config-path"])
        .arg(folder.join("envoy-gateway.yaml"));
    let _gateway = Process::start(
        "envoy-gateway",
        &mut command,
        &folder.join("envoy-gateway.log"),
    )?;
    expect_affinity(&format!("127.0.0.1:{PORT}")).await
}

/// Makes certificates, the configuration, and the place where Envoy Gateway looks for the Envoy that it starts.
fn prepare(program: &Path, folder: &Path, envoy: &Path) -> anyhow::Result<()> {
    let mut certificates = Command::new(program);
    certificates
        .args(["certgen", "--local", "--config-home"])
        .arg(folder.join("config"));
    ensure!(
        certificates.output()?.status.success(),
        "envoy-gateway makes no certificates"
    );
    let home = folder.join("data/envoy-versions/1.40.0/bin");
    fs::create_dir_all(&home)?;
    fs::create_dir_all(folder.join("resources"))?;
    std::os::unix::fs::symlink(envoy, home.join("envoy"))?;
    let config = json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyGateway",
        "gateway": { "controllerName": "gateway.envoyproxy.io/gatewayclass-controller" },
        "provider": { "type": "Custom", "custom": {
            "resource": { "type": "File", "file": { "paths": [folder.join("resources")] } },
            "infrastructure": { "type": "Host", "host": {
                "dataHome": folder.join("data"), "stateHome": folder.join("state"),
                "configHome": folder.join("config"), "runtimeDir": folder.join("run")
            }}
        }},
        "extensionApis": { "enableBackend": true, "enableEnvoyPatchPolicy": true }
    });
    Ok(fs::write(
        folder.join("envoy-gateway.yaml"),
        config.to_string(),
    )?)
}

/// Serves the filter's module to Envoy Gateway.
fn serve_module(filter: &Path, folder: &Path) -> anyhow::Result<Process> {
    let mut server = Command::new("python3");
    server.args([
        "-m",
        "http.server",
        &MODULE_PORT.to_string(),
        "--bind",
        SERVICE,
        "--directory",
    ]);
    server.arg(filter.parent().context("the filter has no folder")?);
    Process::start("modules", &mut server, &folder.join("modules.log"))
}

/// The manifest for a provider of files.
fn adapted(folder: &Path, filter: &Path) -> anyhow::Result<Vec<Value>> {
    let mut objects = documents(&repository("deploy/mesh/envoy-gateway/isotherm.yaml"))?;
    objects.retain(|object| object["kind"] != "Service");
    for object in &mut objects {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let spec = &mut object["spec"];
        match kind.as_str() {
            "EnvoyProxy" => {
                spec["provider"] = json!({ "type": "Host", "host": { "envoyVersion": "1.40.0" } })
            }
            "Gateway" => {
                spec["listeners"][0]["port"] = PORT.into();
                spec["infrastructure"] = Value::Null;
            }
            "HTTPRoute" => spec["rules"][0]["backendRefs"] = backend_ref("engines", ENGINE_PORT),
            "EnvoyExtensionPolicy" => {
                let name = filter
                    .file_name()
                    .and_then(|name| name.to_str())
                    .context("no file name")?;
                let url = format!("http://{SERVICE}:{MODULE_PORT}/{name}");
                spec["wasm"][0]["code"] = json!({ "type": "HTTP", "http": { "url": url } });
                spec["extProc"][0]["backendRefs"] = backend_ref("isotherm", 9002);
            }
            // Envoy Gateway 1.9 ends at consistent hashing where it reads files: its store has no unsigned numbers.
            "BackendTrafficPolicy" => {
                let overriding = spec["loadBalancer"]["endpointOverride"].take();
                spec["loadBalancer"] =
                    json!({ "type": "LeastRequest", "endpointOverride": overriding });
            }
            "EnvoyPatchPolicy" => {
                let patches = spec["jsonPatches"].as_array_mut().context("no patches")?;
                let mut local = patches.first().context("no patch")?.clone();
                local["operation"]["jsonPath"] =
                    "..http_filters[?(@.typed_config.config.root_id=='isotherm')].typed_config.config.vm_config".into();
                local["operation"]["path"] = "code".into();
                local["operation"]["value"] = json!({ "local": { "filename": filter } });
                patches.push(local);
            }
            _ => {}
        }
    }
    let engines = ENGINES.iter().map(|address| (*address, ENGINE_PORT));
    objects.push(backend("engines", &json!([]), &Vec::from_iter(engines)));
    objects.push(backend(
        "isotherm",
        &json!(["gateway.envoyproxy.io/h2c"]),
        &[(SERVICE, 9002)],
    ));
    objects.push(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": { "name": "eg" },
        "spec": {
            "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
            "parametersRef": {
                "group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "isotherm", "namespace": "default"
            }
        }
    }));
    objects.push(client_certificate(folder)?);
    Ok(objects)
}

fn backend_ref(name: &str, port: u16) -> Value {
    json!([{ "group": "gateway.envoyproxy.io", "kind": "Backend", "name": name, "port": port }])
}

fn backend(name: &str, protocols: &Value, endpoints: &[(&str, u16)]) -> Value {
    let endpoints = endpoints
        .iter()
        .map(|(address, port)| json!({ "ip": { "address": address, "port": port } }));
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "Backend",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "appProtocols": protocols, "endpoints": Vec::from_iter(endpoints) }
    })
}

/// The Secret with which Envoys fetch modules from Envoy Gateway.
fn client_certificate(folder: &Path) -> anyhow::Result<Value> {
    let mut data = serde_json::Map::new();
    for entry in fs::read_dir(folder.join("config/certs/envoy"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        data.insert(name, BASE64_STANDARD.encode(fs::read(entry.path())?).into());
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "envoy", "namespace": "envoy-gateway-system" }, "data": data
    }))
}

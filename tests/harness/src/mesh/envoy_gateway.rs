//! A real Envoy Gateway configures an Envoy, and starts it.
//!
//! Without a cluster it reads files. Services are replaced by addresses, and the image of the filter by a file: Envoy
//! Gateway fetches the module from this process, and a patch lets Envoy read the file.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::module_server::serve_module;
use super::objects::{documents, kind};
use super::{AdminAddress, ENGINE_PORT, LISTENER_PORT, MeshGateway, Proxy, SERVICE, SERVICE_PORT};
use crate::document::Document;
use crate::process::Process;
use crate::tools::{Tools, repository_file};

/// The name under which Envoy Gateway looks for the Envoy that it starts, whatever its version.
const ENVOY_VERSION: &str = "1.40.0";
/// The namespace of Envoy Gateway.
pub(super) const NAMESPACE: &str = "envoy-gateway-system";
/// The Secret with which Envoys fetch modules from Envoy Gateway.
pub(super) const CLIENT_CERTIFICATE: &str = "envoy";
/// The end of the name of the service's cluster.
pub(super) const CLUSTER: &str = "/isotherm/extproc/0";
/// The class of the manifest's Gateway.
pub(super) const CLASS: &str = "eg";
/// The API group of Envoy Gateway's own kinds.
const GROUP: &str = "gateway.envoyproxy.io";
/// The name that Envoy Gateway has as a controller.
const CONTROLLER: &str = "gateway.envoyproxy.io/gatewayclass-controller";

/// Starts Envoy Gateway with its manifest, or with the manifest's patches left out.
pub(super) async fn start(
    program: &Path,
    tools: &Tools,
    directory: &Path,
    engines: &[SocketAddr],
    is_patched: bool,
) -> anyhow::Result<Proxy> {
    let folder = directory.join("resources");
    let files = json!({ "type": "File", "file": { "paths": [folder] } });
    prepare(program, directory, &tools.envoy, &files, &Value::Null)?;
    let modules = serve_module(fs::read(&tools.filter)?).await?;
    let url = format!("http://{}/isotherm_filter.wasm", modules.address());
    let manifest = documents(&repository_file(MeshGateway::EnvoyGateway.manifest()))?;
    let mut objects = Vec::new();
    for object in manifest {
        objects.extend(adapted(object, &url, &tools.filter, is_patched)?);
    }
    objects.push(gateway_class(CLASS, &envoy_proxy_reference()));
    objects.push(backend("engines", &json!([]), engines));
    let service = SocketAddr::new(SERVICE, SERVICE_PORT);
    let protocols = json!(["gateway.envoyproxy.io/h2c"]);
    objects.push(backend("isotherm", &protocols, &[service]));
    objects.push(secret(directory, CLIENT_CERTIFICATE)?);
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    fs::create_dir(&folder)?;
    fs::write(folder.join("all.yaml"), objects.join("\n---\n"))?;
    Ok(Proxy {
        _modules: Some(modules),
        ..serve(Command::new(program), directory, CLUSTER)?
    })
}

/// Starts the command with the configuration that `prepare` has written. The service's cluster ends in `service_cluster`.
pub(super) fn serve(
    mut command: Command,
    directory: &Path,
    service_cluster: &'static str,
) -> anyhow::Result<Proxy> {
    command.args(["server", "--config-path"]);
    command.arg(directory.join("envoy-gateway.yaml"));
    let log = directory.join("envoy-gateway.log");
    let gateway = Process::start("envoy-gateway", &mut command, &log)?;
    Ok(Proxy {
        listener: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), LISTENER_PORT),
        admin: AdminAddress::WrittenBelow(directory.join("run")),
        service_cluster,
        _processes: vec![gateway],
        _plane: None,
        _modules: None,
    })
}

/// Makes certificates, the configuration, and the place where Envoy Gateway looks for the Envoy that it starts.
/// `resources` says where its objects are, and `extensions` which program changes its translation.
pub(super) fn prepare(
    program: &Path,
    directory: &Path,
    envoy: &Path,
    resources: &Value,
    extensions: &Value,
) -> anyhow::Result<()> {
    let mut certificates = Command::new(program);
    certificates.args(["certgen", "--local", "--config-home"]);
    let made = certificates.arg(directory.join("config")).output()?;
    ensure!(
        made.status.success(),
        "envoy-gateway makes no certificates: {}",
        String::from_utf8_lossy(&made.stderr).trim()
    );
    let home = directory
        .join("data/envoy-versions")
        .join(ENVOY_VERSION)
        .join("bin");
    fs::create_dir_all(&home)?;
    symlink(envoy, home.join("envoy"))?;
    let config = json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyGateway",
        "gateway": { "controllerName": CONTROLLER },
        "provider": { "type": "Custom", "custom": {
            "resource": resources,
            "infrastructure": { "type": "Host", "host": {
                "dataHome": directory.join("data"), "stateHome": directory.join("state"),
                "configHome": directory.join("config"), "runtimeDir": directory.join("run")
            }}
        }},
        "extensionApis": { "enableBackend": true, "enableEnvoyPatchPolicy": true },
        "extensionManager": extensions
    });
    let file = directory.join("envoy-gateway.yaml");
    Ok(fs::write(file, config.to_string())?)
}

/// An object of the manifest for a provider of files; `None` for a Service.
fn adapted(
    object: Value,
    module: &str,
    filter: &Path,
    is_patched: bool,
) -> anyhow::Result<Option<Value>> {
    let kind = kind(&object).to_owned();
    let mut object = Document(object);
    match kind.as_str() {
        "Service" => return Ok(None),
        "EnvoyProxy" => object.set("spec/provider", provider())?,
        "Gateway" => {
            object.set("spec/listeners/0/port", LISTENER_PORT)?;
            object.set("spec/infrastructure", Value::Null)?; // the class refers to the EnvoyProxy
        }
        "HTTPRoute" => object.set(
            "spec/rules/0/backendRefs",
            backend_ref("engines", ENGINE_PORT),
        )?,
        "EnvoyExtensionPolicy" => {
            let code = json!({ "type": "HTTP", "http": { "url": module } });
            object.set("spec/wasm/0/code", code)?;
            let service = backend_ref("isotherm", SERVICE_PORT);
            object.set("spec/extProc/0/backendRefs", service)?;
        }
        // Envoy Gateway 1.9 ends at consistent hashing where it reads files: its store has no unsigned numbers.
        "BackendTrafficPolicy" => {
            object.set("spec/loadBalancer/type", "LeastRequest")?;
            object.set("spec/loadBalancer/consistentHash", Value::Null)?;
        }
        "EnvoyPatchPolicy" => {
            let from_file = from_file(&object, filter)?;
            if !is_patched {
                object.set("spec/jsonPatches", json!([]))?;
            }
            object.push("spec/jsonPatches", from_file)?;
        }
        _ => {}
    }
    Ok(Some(object.0))
}

/// A patch like that of the manifest's policy, by which Envoy reads the filter from a file.
fn from_file(policy: &Document, filter: &Path) -> anyhow::Result<Value> {
    let mut patch = Document(policy.get("spec/jsonPatches/0")?.clone());
    let path = "..http_filters[?(@.typed_config.config.root_id=='isotherm')].typed_config.config.vm_config";
    patch.set("operation/jsonPath", path)?;
    patch.set("operation/path", "code")?;
    let code = json!({ "local": { "filename": filter } });
    patch.set("operation/value", code)?;
    Ok(patch.0)
}

/// Lets Envoy Gateway start Envoy as a process.
pub(super) fn provider() -> Value {
    json!({ "type": "Host", "host": { "envoyVersion": ENVOY_VERSION } })
}

/// The GatewayClass, which a cluster's operator creates.
pub(super) fn gateway_class(name: &str, parameters: &Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": { "name": name },
        "spec": { "controllerName": CONTROLLER, "parametersRef": parameters }
    })
}

/// The reference to the EnvoyProxy of the manifest, or of a test.
pub(super) fn envoy_proxy_reference() -> Value {
    json!({ "group": GROUP, "kind": "EnvoyProxy", "name": "isotherm", "namespace": "default" })
}

fn backend_ref(name: &str, port: u16) -> Value {
    json!([{ "group": GROUP, "kind": "Backend", "name": name, "port": port }])
}

fn backend(name: &str, protocols: &Value, endpoints: &[SocketAddr]) -> Value {
    let endpoints = endpoints
        .iter()
        .map(|endpoint| json!({ "ip": { "address": endpoint.ip(), "port": endpoint.port() } }));
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "Backend",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "appProtocols": protocols, "endpoints": Vec::from_iter(endpoints) }
    })
}

/// A Secret of the files that Envoy Gateway has made under a name.
pub(super) fn secret(directory: &Path, name: &str) -> anyhow::Result<Value> {
    let mut data = serde_json::Map::new();
    for entry in fs::read_dir(directory.join("config/certs").join(name))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        data.insert(name, BASE64_STANDARD.encode(fs::read(entry.path())?).into());
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret",
        "type": if data.contains_key("tls.key") { "kubernetes.io/tls" } else { "Opaque" },
        "metadata": { "name": name, "namespace": NAMESPACE }, "data": data
    }))
}

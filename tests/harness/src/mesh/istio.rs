//! A real istiod beside a real API server configures an Envoy.
//!
//! An Envoy without Istio's own extensions takes istiod's configuration only where istiod leaves these out. No agent
//! downloads the filter here, so its image is replaced by the file.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::objects::{documents, install_definitions, kind, path_of, text};
use super::pods::{Endpoint, create_pod, create_service, create_slice};
use super::{
    AdminAddress, ENGINE_PORT, GATEWAY, LISTENER_PORT, MeshGateway, Proxy, SERVICE, SERVICE_PORT,
    start_control_plane,
};
use crate::control_plane::{ControlPlane, User};
use crate::document::Document;
use crate::process::Process;
use crate::tools::{Tools, repository_file};
use crate::wait::{WAIT_MAX, wait_for};

/// Envoy's admin interface.
const ADMIN: &str = "127.0.0.1:19905";
/// The cluster of the service.
const CLUSTER: &str = "outbound|9002||isotherm.default.svc.cluster.local";
/// Where istiod serves Envoy's configuration.
const DISCOVERY: &str = "127.0.0.1:15010";
/// Istio's extensions, which a stock Envoy does not have.
const SWITCHED_OFF: [&str; 2] = ["PILOT_ENABLE_METADATA_EXCHANGE", "PILOT_ENABLE_ALPN_FILTER"];
const SWITCHED_ON: [&str; 2] = [
    "ENABLE_GATEWAY_API_INFERENCE_EXTENSION",
    "SUPPORT_GATEWAY_API_INFERENCE_EXTENSION",
];

/// A running istiod and its API server, which hold the manifests.
#[derive(Debug)]
pub(super) struct Istio {
    istiod: Process,
    plane: ControlPlane,
}

/// Starts an API server and istiod, and creates the manifest of `gateway` and what a cluster has besides.
pub(super) async fn start(
    gateway: MeshGateway,
    programs: &[PathBuf],
    directory: &Path,
    engines: &[SocketAddr],
) -> anyhow::Result<Istio> {
    let [istiod, definitions, ..] = programs else {
        anyhow::bail!("Istio needs istiod and definitions");
    };
    let plane = start_control_plane(directory).await?;
    let objects = adapted(
        documents(&repository_file(gateway.manifest()))?,
        &Tools::find()?.filter,
    )?;
    install_definitions(&plane, definitions, &objects).await?;
    create_cluster(&plane, engines).await?;
    for object in &objects {
        plane.create(&path_of(object), object).await?;
    }
    let istiod = start_istiod(istiod, &plane, directory)?;
    create_slices(&plane, &objects, engines).await?;
    Ok(Istio { istiod, plane })
}

impl Istio {
    /// The file by which the service reaches the API server.
    pub(super) fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        self.plane.kubeconfig(User::Admin)
    }

    /// Starts an Envoy that istiod takes for the gateway's proxy.
    pub(super) fn start_envoy(self, tools: &Tools, directory: &Path) -> anyhow::Result<Proxy> {
        let file = directory.join("envoy.json");
        fs::write(&file, bootstrap()?.to_string())?;
        let mut command = Command::new(&tools.envoy);
        command.arg("--config-path").arg(file);
        command.args(["--disable-hot-restart", "--log-level", "warning"]);
        // As many as the standalone stack has.
        command.args(["--concurrency", "2"]);
        let envoy = Process::start("envoy", &mut command, &directory.join("envoy.log"))?;
        Ok(Proxy {
            listener: SocketAddr::new(GATEWAY, LISTENER_PORT),
            admin: AdminAddress::Fixed(ADMIN.parse()?),
            service_cluster: CLUSTER,
            _processes: vec![envoy, self.istiod],
            _plane: Some(self.plane),
            _modules: None,
        })
    }
}

/// The manifest with the port of this network, and with the filter from a file.
fn adapted(objects: Vec<Value>, filter: &Path) -> anyhow::Result<Vec<Value>> {
    const CODE: &str = "patch/value/typed_config/config/vm_config/code";
    let adapt = |object: Value| {
        let mut document = Document(object);
        if kind(&document.0) == "Gateway" {
            document.set("spec/listeners/0/port", LISTENER_PORT)?;
        }
        let patches = document.0.pointer("/spec/configPatches");
        let patches = patches.and_then(Value::as_array).map_or(0, Vec::len);
        for patch in 0..patches {
            let path = format!("spec/configPatches/{patch}");
            if text(document.get(&path)?, "/applyTo") == "EXTENSION_CONFIG" {
                let code = json!({ "local": { "filename": filter } });
                document.set(&format!("{path}/{CODE}"), code)?;
            }
        }
        Ok(document.0)
    };
    objects.into_iter().map(adapt).collect()
}

/// Creates what a cluster has: engines' pods, the gateway's pod and Service, the service's Service.
async fn create_cluster(plane: &ControlPlane, engines: &[SocketAddr]) -> anyhow::Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "istio-system" } });
    plane.create("/api/v1/namespaces", &namespace).await?;
    for Endpoint { address, pod } in endpoints(engines) {
        let name = pod.context("an engine has a pod")?;
        create_pod(plane, &name, &json!({ "app": "vllm" }), address).await?;
    }
    let gateway = json!({ "gateway.networking.k8s.io/gateway-name": "llm" });
    create_pod(plane, "llm-istio-0", &gateway, GATEWAY).await?;
    let name = "grpc-ext-proc";
    let port = json!({ "name": name, "port": SERVICE_PORT, "appProtocol": "kubernetes.io/h2c" });
    create_service(plane, "isotherm", &json!({}), &port).await?;
    let endpoint = Endpoint {
        address: SERVICE,
        pod: None,
    };
    create_slice(plane, "isotherm", (name, SERVICE_PORT), &[endpoint]).await?;
    let port = json!({ "name": "http", "port": LISTENER_PORT });
    create_service(plane, "llm-istio", &gateway, &port).await?;
    let endpoint = Endpoint {
        address: GATEWAY,
        pod: Some("llm-istio-0".into()),
    };
    create_slice(plane, "llm-istio", ("http", LISTENER_PORT), &[endpoint]).await
}

fn endpoints(engines: &[SocketAddr]) -> Vec<Endpoint> {
    let engines = engines.iter().enumerate();
    let endpoint = |(number, engine): (usize, &SocketAddr)| Endpoint {
        address: engine.ip(),
        pod: Some(format!("engine-{number}")),
    };
    engines.map(endpoint).collect()
}

/// Creates the slices that the cluster's controller would write: of the plain Service, or of the one that istiod makes for a
/// pool.
async fn create_slices(
    plane: &ControlPlane,
    objects: &[Value],
    engines: &[SocketAddr],
) -> anyhow::Result<()> {
    let endpoints = endpoints(engines);
    if objects.iter().any(|object| kind(object) == "Service") {
        return create_slice(plane, "engines", ("http", ENGINE_PORT), &endpoints).await;
    }
    let shadow = wait_for(WAIT_MAX, "istiod to make the pool's Service", || async {
        let path = "/api/v1/namespaces/default/services";
        let services = plane.request("GET", path, None).await?;
        let services = services.get("items").and_then(Value::as_array);
        let mut names = services
            .context("the API server returns no list")?
            .iter()
            .map(|service| text(service, "/metadata/name"));
        Ok(names
            .find(|name| name.starts_with("llm-ip-"))
            .map(str::to_owned))
    })
    .await?;
    create_slice(plane, &shadow, ("http-0", ENGINE_PORT), &endpoints).await
}

fn start_istiod(program: &Path, plane: &ControlPlane, directory: &Path) -> anyhow::Result<Process> {
    let mesh = json!({
        "defaultConfig": { "discoveryAddress": DISCOVERY },
        "defaultProviders": { "metrics": [], "tracing": [], "accessLogging": [] },
        "enablePrometheusMerge": false, "enableAutoMtls": false
    });
    let file = directory.join("mesh.yaml");
    fs::write(&file, mesh.to_string())?;
    let mut command = Command::new(program);
    command.arg("discovery").arg("--kubeconfig");
    command.arg(plane.kubeconfig(User::Admin)?);
    command.arg("--meshConfig").arg(file);
    for (option, value) in [
        ("--httpAddr", "127.0.0.1:18081"),
        ("--grpcAddr", DISCOVERY),
        ("--secureGRPCAddr", ""),
        ("--httpsAddr", ""),
        ("--monitoringAddr", "127.0.0.1:15014"),
        ("--ctrlz_port", "0"),
    ] {
        command.args([option, value]);
    }
    command.envs(SWITCHED_OFF.map(|variable| (variable, "false")));
    command.envs(SWITCHED_ON.map(|variable| (variable, "true")));
    command.env("POD_NAMESPACE", "istio-system");
    Process::start("istiod", &mut command, &directory.join("istiod.log"))
}

/// Envoy's configuration, as Istio's agent writes it: everything else comes from istiod.
fn bootstrap() -> anyhow::Result<Value> {
    let source = json!({ "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" });
    let http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let (admin, discovery): (SocketAddr, SocketAddr) = (ADMIN.parse()?, DISCOVERY.parse()?);
    let address = |address: SocketAddr| json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } });
    Ok(json!({
        "node": {
            "id": format!("router~{GATEWAY}~llm-istio-0.default~default.svc.cluster.local"),
            "cluster": "llm-istio.default",
            "metadata": {
                "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "MESH_ID": "cluster.local",
                "ISTIO_VERSION": "1.31.0", "NAME": "llm-istio-0", "WORKLOAD_NAME": "llm-istio",
                "INSTANCE_IPS": GATEWAY.to_string(),
                "LABELS": { "gateway.networking.k8s.io/gateway-name": "llm" }
            }
        },
        "admin": { "address": address(admin) },
        "dynamic_resources": {
            "lds_config": source, "cds_config": source,
            "ads_config": {
                "api_type": "GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds-grpc" } }]
            }
        },
        "static_resources": { "clusters": [{
            "name": "xds-grpc", "type": "STATIC",
            "typed_extension_protocol_options": { http2: {
                "@type": format!("type.googleapis.com/{http2}"), "explicit_http_config": { "http2_protocol_options": {} }
            }},
            "load_assignment": { "cluster_name": "xds-grpc", "endpoints": [{ "lb_endpoints": [{ "endpoint": {
                "address": address(discovery)
            }}]}]}
        }]}
    }))
}

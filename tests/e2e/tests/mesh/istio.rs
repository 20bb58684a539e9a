//! A real istiod configures an Envoy by the manifests for Istio.
//!
//! Envoy without Istio's own extensions takes istiod's configuration only where istiod leaves these out, and it has no
//! agent that would download the filter: the test replaces the filter's image by the file.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use isotherm_e2e::control_plane::{Programs, User};
use isotherm_e2e::{ControlPlane, WAIT_MAX, permit};
use isotherm_harness::process::Process;
use isotherm_harness::tools::Tools;
use isotherm_harness::wait_for;
use serde_json::{Value, json};

use crate::world::{
    ENGINE_PORT, ENGINES, GATEWAY, SERVICE, documents, expect_affinity, expect_prompts_stayed,
    folder, install_definitions, path_of, programs, repository, start_engines, start_service,
};

/// The gateway's port.
const PORT: u16 = 18890;
/// Envoy's admin interface.
const ADMIN: &str = "127.0.0.1:19905";
/// The cluster of the service.
const CLUSTER: &str = "outbound|9002||isotherm.default.svc.cluster.local";

#[tokio::test]
async fn istio_keeps_the_prompt_in_front_of_an_inference_pool() -> anyhow::Result<()> {
    let pool = json!({ "kubernetes": { "inference_pool": "llm", "namespace": "default" } });
    serve("istio/inference-pool", &pool, true).await
}

#[tokio::test]
async fn istio_keeps_the_prompt_in_front_of_a_service() -> anyhow::Result<()> {
    let service = json!({ "service": "engines", "port": ENGINE_PORT, "namespace": "default" });
    serve("istio/service", &json!({ "kubernetes": service }), true).await
}

#[tokio::test]
async fn istio_sends_the_prompt_of_an_inference_pool_without_the_filter() -> anyhow::Result<()> {
    let pool = json!({ "kubernetes": { "inference_pool": "llm", "namespace": "default" } });
    serve("inference-pool/gateway", &pool, false).await
}

/// Starts everything for `deploy/mesh/FILE.yaml`, and sends requests.
async fn serve(file: &str, replicas: &Value, keeps_prompt: bool) -> anyhow::Result<()> {
    let names = ["pilot-discovery", "crds", "etcd", "kube-apiserver"];
    let Some([istiod, definitions, _, _]) = programs(names) else {
        return Ok(());
    };
    let _permit = permit::exclusive().await?;
    let name = file.replace('/', "-");
    let folder = folder(&format!("mesh-istio-{name}-files"))?;
    let plane = ControlPlane::start(&format!("mesh-istio-{name}"), &Programs::find()?).await?;
    let objects = adapted(&documents(&repository(&format!(
        "deploy/mesh/{file}.yaml"
    )))?)?;
    install_definitions(&plane, &definitions, &objects).await?;
    create_world(&plane).await?;
    for object in &objects {
        plane.create(&path_of(object), object).await?;
    }
    let _engines = start_engines(&folder).await?;
    let _istiod = start_istiod(&istiod, &plane, &folder)?;
    create_slices(&plane, &objects).await?;
    let kubeconfig = plane.kubeconfig(User::Admin)?;
    let _service = start_service(&folder, replicas, Some(&kubeconfig)).await?;
    let _envoy = start_envoy(&folder)?;
    expect_affinity(&format!("{GATEWAY}:{PORT}")).await?;
    if keeps_prompt {
        expect_prompts_stayed(ADMIN, CLUSTER).await?;
    }
    Ok(())
}

/// The manifest with this test's port, and with the filter from a file.
fn adapted(objects: &[Value]) -> anyhow::Result<Vec<Value>> {
    let filter = Tools::find()?.filter;
    let mut objects = objects.to_vec();
    for object in &mut objects {
        if object["kind"] == "Gateway" {
            object["spec"]["listeners"][0]["port"] = PORT.into();
        }
        let patches = object["spec"]["configPatches"].as_array_mut();
        for patch in patches.into_iter().flatten() {
            if patch["applyTo"] == "EXTENSION_CONFIG" {
                patch["patch"]["value"]["typed_config"]["config"]["vm_config"]["code"] =
                    json!({ "local": { "filename": filter } });
            }
        }
    }
    Ok(objects)
}

/// Creates what a cluster has: engines' pods, the gateway's pod and Service, the service's Service.
async fn create_world(plane: &ControlPlane) -> anyhow::Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "istio-system" } });
    plane.create("/api/v1/namespaces", &namespace).await?;
    let gateway = json!({ "gateway.networking.k8s.io/gateway-name": "llm" });
    for (number, address) in ENGINES.iter().enumerate() {
        create_pod(
            plane,
            &format!("engine-{number}"),
            &json!({ "app": "vllm" }),
            address,
        )
        .await?;
    }
    create_pod(plane, "llm-istio-0", &gateway, GATEWAY).await?;
    let port = json!({ "name": "grpc-ext-proc", "port": 9002, "appProtocol": "kubernetes.io/h2c" });
    create_service(plane, "isotherm", &json!({}), &port).await?;
    create_slice(plane, "isotherm", "grpc-ext-proc", 9002, &[(SERVICE, None)]).await?;
    let port = json!({ "name": "http", "port": PORT });
    create_service(plane, "llm-istio", &gateway, &port).await?;
    create_slice(
        plane,
        "llm-istio",
        "http",
        PORT,
        &[(GATEWAY, Some("llm-istio-0"))],
    )
    .await
}

async fn create_pod(
    plane: &ControlPlane,
    name: &str,
    labels: &Value,
    address: &str,
) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "none" }] }
    });
    plane
        .create("/api/v1/namespaces/default/pods", &pod)
        .await?;
    let status = json!({ "status": {
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
        "conditions": [{ "type": "Ready", "status": "True" }]
    }});
    let path = format!("/api/v1/namespaces/default/pods/{name}/status");
    plane.request("PATCH", &path, Some(&status)).await.map(drop)
}

async fn create_service(
    plane: &ControlPlane,
    name: &str,
    labels: &Value,
    port: &Value,
) -> anyhow::Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": labels },
        "spec": { "ports": [port] }
    });
    plane
        .create("/api/v1/namespaces/default/services", &service)
        .await
        .map(drop)
}

async fn create_slice(
    plane: &ControlPlane,
    service: &str,
    port_name: &str,
    port: u16,
    endpoints: &[(&str, Option<&str>)],
) -> anyhow::Result<()> {
    let endpoints = endpoints.iter().map(|(address, pod)| {
        let mut endpoint = json!({ "addresses": [address], "conditions": { "ready": true } });
        if let Some(pod) = pod {
            endpoint["targetRef"] = json!({ "kind": "Pod", "name": pod, "namespace": "default" });
        }
        endpoint
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": format!("{service}-1"), "labels": { "kubernetes.io/service-name": service } },
        "endpoints": Vec::from_iter(endpoints),
        "ports": [{ "name": port_name, "port": port, "protocol": "TCP" }]
    });
    plane.create(&path_of(&slice), &slice).await.map(drop)
}

/// Creates the slices that the cluster's controller would write: of the plain Service, or of the one that istiod makes for a
/// pool.
async fn create_slices(plane: &ControlPlane, objects: &[Value]) -> anyhow::Result<()> {
    let endpoints = [
        (ENGINES[0], Some("engine-0")),
        (ENGINES[1], Some("engine-1")),
    ];
    if objects.iter().any(|object| object["kind"] == "Service") {
        return create_slice(plane, "engines", "http", ENGINE_PORT, &endpoints).await;
    }
    let shadow = wait_for(WAIT_MAX, "istiod to make the pool's Service", || async {
        let services = plane
            .request("GET", "/api/v1/namespaces/default/services", None)
            .await?;
        let services = services["items"].as_array().context("no list")?.clone();
        let mut names = services
            .iter()
            .filter_map(|service| service["metadata"]["name"].as_str());
        Ok(names
            .find(|name| name.starts_with("llm-ip-"))
            .map(str::to_owned))
    })
    .await?;
    create_slice(plane, &shadow, "http-0", ENGINE_PORT, &endpoints).await
}

fn start_istiod(program: &Path, plane: &ControlPlane, folder: &Path) -> anyhow::Result<Process> {
    let mesh = json!({
        "defaultConfig": { "discoveryAddress": "127.0.0.1:15010" },
        "defaultProviders": { "metrics": [], "tracing": [], "accessLogging": [] },
        "enablePrometheusMerge": false, "enableAutoMtls": false
    });
    let file = folder.join("mesh.yaml");
    fs::write(&file, mesh.to_string())?;
    let mut command = Command::new(program);
    command
        .arg("discovery")
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(User::Admin)?);
    command.arg("--meshConfig").arg(file);
    command.args([
        "--httpAddr",
        "127.0.0.1:18081",
        "--grpcAddr",
        "127.0.0.1:15010",
    ]);
    command.args([
        "--secureGRPCAddr",
        "",
        "--httpsAddr",
        "",
        "--monitoringAddr",
        "127.0.0.1:15014",
    ]);
    command.args(["--ctrlz_port", "0"]);
    for variable in ["PILOT_ENABLE_METADATA_EXCHANGE", "PILOT_ENABLE_ALPN_FILTER"] {
        command.env(variable, "false");
    }
    for variable in [
        "ENABLE_GATEWAY_API_INFERENCE_EXTENSION",
        "SUPPORT_GATEWAY_API_INFERENCE_EXTENSION",
    ] {
        command.env(variable, "true");
    }
    command.env("POD_NAMESPACE", "istio-system");
    Process::start("istiod", &mut command, &folder.join("istiod.log"))
}

/// Starts an Envoy that istiod takes for the gateway's proxy.
fn start_envoy(folder: &Path) -> anyhow::Result<Process> {
    let source = json!({ "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" });
    let http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let bootstrap = json!({
        "node": {
            "id": format!("router~{GATEWAY}~llm-istio-0.default~default.svc.cluster.local"),
            "cluster": "llm-istio.default",
            "metadata": {
                "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "MESH_ID": "cluster.local",
                "ISTIO_VERSION": "1.31.0", "NAME": "llm-istio-0", "WORKLOAD_NAME": "llm-istio", "INSTANCE_IPS": GATEWAY,
                "LABELS": { "gateway.networking.k8s.io/gateway-name": "llm" }
            }
        },
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 19905 } } },
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
                "address": { "socket_address": { "address": "127.0.0.1", "port_value": 15010 } }
            }}]}]}
        }]}
    });
    let file = folder.join("envoy.json");
    fs::write(&file, bootstrap.to_string())?;
    let mut command = Command::new(Tools::find()?.envoy);
    command.arg("--config-path").arg(file);
    command.args([
        "--disable-hot-restart",
        "--log-level",
        "warning",
        "--concurrency",
        "1",
    ]);
    Process::start("envoy", &mut command, &folder.join("envoy.log"))
}

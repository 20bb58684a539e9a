//! A real Envoy AI Gateway changes what Envoy Gateway translates, beside a real API server.
//!
//! No tool of this project builds its controller; the image of its release has it. Some ports of both programs are the same, so
//! the controller has a network of its own, as its pod has in a cluster. Of the manifest two values are replaced: the
//! gateway's port, and the image of the filter by the module's address.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::envoy_gateway::{envoy_proxy_reference, prepare, provider, serve};
use super::envoy_gateway_image::{MODULE_SERVER, create_class, create_objects};
use super::module_server::serve_module;
use super::objects::{documents, kind};
use super::own_root::in_own_root;
use super::pods::{create_pod, create_service};
use super::{LISTENER_PORT, MeshGateway, Proxy, SERVICE, start_control_plane};
use crate::control_plane::{ControlPlane, User};
use crate::document::Document;
use crate::process::Process;
use crate::tcp_server::TcpServer;
use crate::tools::{Tools, ai_gateway_controller, mesh_program, repository_file};
use crate::wait::WAIT_MAX;

/// Where the controller serves Envoy Gateway: its default port, at the address in `ENTER`.
const EXTENSION: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 78, 0, 2)), 1063);
/// The class of the manifest's Gateway.
const CLASS: &str = "envoy-ai-gateway";
/// The cluster of the service.
const CLUSTER: &str = "envoy.clusters.endpointpicker_llm_default_ext_proc";
/// The name of the service for the gateway.
const SERVICE_NAME: &str = "isotherm.default.svc";
/// The namespace of the controller.
const NAMESPACE: &str = "envoy-ai-gateway-system";
/// Kinds that the controller follows, with their plurals.
const KINDS: [(&str, &str); 6] = [
    ("AIGatewayRoute", "aigatewayroutes"),
    ("AIServiceBackend", "aiservicebackends"),
    ("BackendSecurityPolicy", "backendsecuritypolicies"),
    ("GatewayConfig", "gatewayconfigs"),
    ("MCPRoute", "mcproutes"),
    ("QuotaPolicy", "quotapolicies"),
];

/// Starts a program in a network of its own, with a link to this one.
const ENTER: &str = r#"
( until ip addr add 10.78.0.1/30 dev mesh 2>/dev/null; do sleep 0.1; done; ip link set mesh up ) &
exec unshare --net sh -ec '
    ip link set lo up
    ip link add pod type veth peer name mesh netns "$1"
    ip addr add 10.78.0.2/30 dev pod
    ip link set pod up
    ip route add default via 10.78.0.1
    shift
    exec "$@"
' sh $! "$@"
"#;

/// A running API server that holds the manifest, and the controller.
#[derive(Debug)]
pub(super) struct AiGateway {
    plane: ControlPlane,
    controller: Process,
    modules: TcpServer,
}

/// Starts an API server with the manifest and what a cluster has besides, and the controller.
pub(super) async fn start(
    envoy_gateway: &Path,
    tools: &Tools,
    directory: &Path,
    engines: &[SocketAddr],
) -> anyhow::Result<AiGateway> {
    let election = json!({ "leaderElection": { "disable": true } });
    let resources = json!({ "type": "Kubernetes", "kubernetes": election });
    prepare(
        envoy_gateway,
        directory,
        &tools.envoy,
        &resources,
        &extensions(),
    )?;
    let plane = start_control_plane(directory).await?;
    let modules = serve_module(fs::read(&tools.filter)?).await?;
    let module = format!("http://{}/isotherm_filter.wasm", modules.address());
    let manifest = documents(&repository_file(MeshGateway::AiGateway.manifest()))?;
    let objects: anyhow::Result<Vec<Value>> = manifest
        .into_iter()
        .map(|object| adapted(object, &module))
        .collect();
    let mut objects = objects?;
    objects.push(json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyProxy",
        "metadata": { "name": "isotherm", "namespace": "default" }, "spec": { "provider": provider() }
    }));
    create_objects(&plane, directory, &objects).await?;
    create_class(&plane, CLASS, &envoy_proxy_reference()).await?;
    for (number, engine) in engines.iter().enumerate() {
        let name = format!("engine-{number}");
        create_pod(&plane, &name, &json!({ "app": "vllm" }), engine.ip()).await?;
    }
    // The manifest's pool names this port.
    let port = json!({ "name": "grpc-tls", "port": 9012 });
    create_service(&plane, "isotherm", &json!({}), &port).await?;
    create_own_kinds(&plane).await?;
    let controller = start_controller(&plane, directory).await?;
    Ok(AiGateway {
        plane,
        controller,
        modules,
    })
}

impl AiGateway {
    /// The file by which the service reaches the API server.
    pub(super) fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        self.plane.kubeconfig(User::Admin)
    }

    /// Starts Envoy Gateway, which starts Envoy.
    pub(super) fn start_envoy(
        self,
        envoy_gateway: &Path,
        directory: &Path,
    ) -> anyhow::Result<Proxy> {
        let names = [
            (Ipv4Addr::LOCALHOST.into(), MODULE_SERVER),
            (SERVICE, SERVICE_NAME),
        ];
        let command = in_own_root(envoy_gateway, &self.plane, directory, &names)?;
        let mut proxy = serve(command, directory, CLUSTER)?;
        proxy._processes.push(self.controller);
        Ok(Proxy {
            _plane: Some(self.plane),
            _modules: Some(self.modules),
            ..proxy
        })
    }
}

/// Sets what the chart sets for this gateway: the address for TLS, and the trust in the gateway's headers.
pub(super) fn configure(config: &mut Document) -> anyhow::Result<()> {
    let mut helm = Command::new(mesh_program("helm")?);
    helm.args(["template", "isotherm"]);
    helm.arg(repository_file("deploy/helm/isotherm"));
    helm.args([
        "--kube-version",
        "1.37.2",
        "--set",
        "gateway.provider=ai-gateway",
    ]);
    helm.args(["--show-only", "templates/configmap.yaml"]);
    let rendered = helm.output()?;
    let errors = String::from_utf8_lossy(&rendered.stderr);
    ensure!(rendered.status.success(), "helm: {}", errors.trim());
    let map: Value = serde_saphyr::from_slice(&rendered.stdout)?;
    let chart = map.pointer("/data/isotherm.yaml").and_then(Value::as_str);
    let chart = Document::parse(chart.context("the chart renders no isotherm.yaml")?)?;
    let listen = chart.get("tls/listen/0")?.as_str().unwrap_or_default();
    let (_, port) = listen.rsplit_once(':').context("tls.listen has no port")?;
    config.set("tls", json!({ "listen": [format!("{SERVICE}:{port}")] }))?;
    config.set("ext_proc", chart.get("ext_proc")?.clone())
}

/// Part of Envoy Gateway's configuration that an installation of Envoy AI Gateway with InferencePools sets.
fn extensions() -> Value {
    let all = json!({ "includeAll": true });
    json!({
        "backendResources": [{
            "group": "inference.networking.k8s.io", "kind": "InferencePool", "version": "v1"
        }],
        "hooks": { "xdsTranslator": {
            "translation": { "listener": all, "route": all, "cluster": all, "secret": all },
            "post": ["Translation", "Cluster", "Route"]
        }},
        "service": { "ip": { "address": EXTENSION.ip(), "port": EXTENSION.port() } }
    })
}

/// An object of the manifest for this network.
fn adapted(object: Value, module: &str) -> anyhow::Result<Value> {
    let kind = kind(&object).to_owned();
    let mut object = Document(object);
    match kind.as_str() {
        "Gateway" => object.set("spec/listeners/0/port", LISTENER_PORT)?,
        "EnvoyExtensionPolicy" => {
            let code = json!({ "type": "HTTP", "http": { "url": module } });
            object.set("spec/wasm/0/code", code)?;
        }
        _ => {}
    }
    Ok(object.0)
}

/// Creates the definitions of the controller's own kinds, and the webhook that it expects. No object here is of such a kind.
async fn create_own_kinds(plane: &ControlPlane) -> anyhow::Result<()> {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "openAPIV3Schema": any });
    let version = |name: &str, is_stored: bool| json!({ "name": name, "served": true, "storage": is_stored, "schema": schema });
    for (kind, plural) in KINDS {
        let group = "aigateway.envoyproxy.io";
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [version("v1alpha1", true), version("v1beta1", false)]
            }
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        plane.create(path, &definition).await?;
    }
    // The controller writes its certificate into it. It has no rules, as no pod is created later.
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": format!("envoy-ai-gateway-gateway-pod-mutator.{NAMESPACE}") },
        "webhooks": [{
            "name": "controller.ai-gateway.test", "clientConfig": { "url": "https://127.0.0.1:9443/mutate" },
            "sideEffects": "None", "admissionReviewVersions": ["v1"]
        }]
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    plane.create(path, &webhook).await.map(drop)
}

async fn start_controller(plane: &ControlPlane, directory: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new("sh");
    command
        .args(["-ec", ENTER, "sh"])
        .arg(ai_gateway_controller()?);
    command.args(["--enableLeaderElection=false", "--tlsCertDir"]);
    command.arg(directory.join("config/certs/envoy-gateway"));
    command.env("POD_NAMESPACE", NAMESPACE);
    command.env("KUBECONFIG", plane.kubeconfig(User::Admin)?);
    let log = directory.join("ai-gateway.log");
    let mut controller = Process::start("ai-gateway", &mut command, &log)?;
    // Envoy Gateway gives up on an extension that does not listen yet.
    controller
        .wait_until_ready(WAIT_MAX, |_| async {
            TcpStream::connect(EXTENSION).await.ok().map(drop)
        })
        .await?;
    Ok(controller)
}

//! A real API server of Kubernetes with its store, without a cluster: no node, no scheduler, no controller.
//!
//! A test writes pods and their status itself. Pods may have loopback addresses, EndpointSlices may not.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use isotherm_certificates::Authority;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::directory::fresh_directory;
use crate::port::{self, ReservedPort};
use crate::process::Process;
use crate::tools;
use crate::wait::{WAIT_MAX, wait_for};

/// Requests that are sent at once.
const REQUESTS_MAX: usize = 16;
/// Group and version of an InferencePool.
const INFERENCE: &str = "/apis/inference.networking.k8s.io/v1";
/// The namespace of the test's objects.
pub const NAMESPACE: &str = "models";

/// A running API server and its store.
#[derive(Debug)]
pub struct ControlPlane {
    directory: PathBuf,
    address: SocketAddr,
    server: Option<Process>,
    command: Command,
    _ports: [ReservedPort; 3],
    _store: Process,
}

/// A user of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// The service: it may do what Roles allow.
    Service,
}

impl User {
    fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin-token",
            Self::Service => "isotherm-token",
        }
    }
}

impl ControlPlane {
    /// Starts both programs, which `programs` names, and creates the namespace. Their files stay in a new directory
    /// `target/stacks/NAME...`: two programs may start a plane of the same name.
    pub async fn start(name: &str, programs: &Programs) -> anyhow::Result<Self> {
        let output = tools::output_directory();
        let directory = fresh_directory(&output.join("stacks"), name)?;
        Self::start_in(&directory, programs, Ipv4Addr::LOCALHOST.into()).await
    }

    /// Starts both programs, with their files in `directory`, which is emptied. The server listens at `ip`.
    pub(crate) async fn start_in(
        directory: &Path,
        programs: &Programs,
        ip: IpAddr,
    ) -> anyhow::Result<Self> {
        let directory = directory.to_owned();
        let _ = fs::remove_dir_all(&directory);
        Authority::new()?.issue("account", &directory)?;
        let tokens =
            "admin-token,admin,admin,\"system:masters\"\nisotherm-token,isotherm,isotherm,\n";
        fs::write(directory.join("tokens.csv"), tokens)?;
        let ports = [port::reserve()?, port::reserve()?, port::reserve()?];
        let [client, peer, server] = ports.each_ref().map(ReservedPort::address);
        let store = start_store(&programs.etcd, &directory, [client, peer])?;
        let address = SocketAddr::new(ip, server.port());
        let mut plane = Self {
            command: server_command(&programs.kube_apiserver, &directory, client, address),
            directory,
            address,
            server: None,
            _ports: ports,
            _store: store,
        };
        plane.start_server().await?;
        let namespace =
            json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": NAMESPACE } });
        plane.create("/api/v1/namespaces", &namespace).await?;
        Ok(plane)
    }

    /// Starts the API server (again), and waits until it is ready.
    pub async fn start_server(&mut self) -> anyhow::Result<()> {
        let log = self.directory.join("kube-apiserver.log");
        let mut server = Process::start("kube-apiserver", &mut self.command, &log)?;
        let config = self.kubeconfig(User::Admin)?;
        server
            .wait_until_ready(WAIT_MAX, |_| async {
                let client = client(&config).await.ok()?;
                let request = http_request("GET", "/readyz", None).ok()?;
                client.request_text(request).await.ok()
            })
            .await?;
        self.server = Some(server);
        Ok(())
    }

    /// Kills the API server (`SIGKILL`). Its store stays.
    pub fn kill_server(&mut self) -> anyhow::Result<()> {
        let mut server = self.server.take().context("the API server does not run")?;
        server.kill()
    }

    /// Writes a kubeconfig file for a user and returns its path.
    pub fn kubeconfig(&self, user: User) -> anyhow::Result<PathBuf> {
        let path = self.directory.join(format!("{}.kubeconfig", user.token()));
        let server = format!("https://{}", self.address);
        // The server makes its certificate itself, in the first start.
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "test", "user": { "token": user.token() } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": NAMESPACE } }]
        });
        fs::write(&path, serde_json::to_string(&config)?)?;
        Ok(path)
    }

    /// Creates an object.
    pub async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.request("POST", path, Some(object)).await
    }

    /// Sends one request as the administrator. A PATCH merges.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let client = client(&self.kubeconfig(User::Admin)?).await?;
        send(&client, method, path, body).await
    }

    /// Sends a request for each item, several at once.
    pub async fn request_each<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        request: impl Fn(T) -> (&'static str, String, Option<Value>),
    ) -> anyhow::Result<()> {
        let client = client(&self.kubeconfig(User::Admin)?).await?;
        stream::iter(items.into_iter().map(request))
            .map(|(method, path, body)| {
                let client = client.clone();
                async move { send(&client, method, &path, body.as_ref()).await }
            })
            .buffer_unordered(REQUESTS_MAX)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    /// Installs the definition of InferencePools, and waits until the server serves them.
    pub async fn install_inference_pools(&self) -> anyhow::Result<()> {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.create(path, &definition()).await?;
        self.wait_for_pools().await
    }

    async fn wait_for_pools(&self) -> anyhow::Result<()> {
        let pools = format!("{INFERENCE}/namespaces/{NAMESPACE}/inferencepools");
        wait_for(WAIT_MAX, "InferencePools to be served", || async {
            Ok(self.request("GET", &pools, None).await.ok())
        })
        .await
        .map(drop)
    }

    /// Installs the custom resource definitions in every file of a folder, and waits until the server serves InferencePools.
    pub async fn install_definitions(&self, folder: &Path) -> anyhow::Result<()> {
        self.create_definitions(folder).await?;
        self.wait_for_pools().await
    }

    /// Creates the custom resource definitions in every file of a folder.
    pub async fn create_definitions(&self, folder: &Path) -> anyhow::Result<()> {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let mut definitions: Vec<Value> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let file = entry?.path();
            let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(&file)?)
                .with_context(|| file.display().to_string())?;
            let kind = |object: &Value| object.get("kind").cloned();
            definitions.extend(
                objects
                    .into_iter()
                    .filter(|object| kind(object) == Some("CustomResourceDefinition".into())),
            );
        }
        self.request_each(definitions, |definition| {
            ("POST", path.to_owned(), Some(definition))
        })
        .await
    }

    /// Creates an InferencePool.
    pub async fn create_pool(&self, name: &str, app: &str, ports: &[u16]) -> anyhow::Result<()> {
        let pool = json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": { "name": name },
            "spec": pool_spec(app, ports)
        });
        let path = format!("{INFERENCE}/namespaces/{NAMESPACE}/inferencepools");
        self.create(&path, &pool).await.map(drop)
    }

    /// Changes the selector and the ports of an InferencePool.
    pub async fn change_pool(&self, name: &str, app: &str, ports: &[u16]) -> anyhow::Result<()> {
        let path = format!("{INFERENCE}/namespaces/{NAMESPACE}/inferencepools/{name}");
        let patch = json!({ "spec": pool_spec(app, ports) });
        self.request("PATCH", &path, Some(&patch)).await.map(drop)
    }

    /// Allows the service to read pools and pods.
    pub async fn bind_role(&self) -> anyhow::Result<()> {
        let rule = |group: &str, resource: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"] });
        let rules = [
            rule("inference.networking.k8s.io", "inferencepools"),
            rule("", "pods"),
        ];
        self.bind("isotherm", &json!(rules)).await
    }

    /// Allows the service to keep leases.
    pub async fn bind_lease_role(&self) -> anyhow::Result<()> {
        let verbs = ["list", "create", "update"];
        let rule = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs });
        self.bind("isotherm-leases", &json!([rule])).await
    }

    async fn bind(&self, name: &str, rules: &Value) -> anyhow::Result<()> {
        let group = "rbac.authorization.k8s.io";
        let role = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": { "name": name }, "rules": rules
        });
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": group, "kind": "Role", "name": name },
            "subjects": [{ "kind": "User", "name": "isotherm", "apiGroup": group }]
        });
        let path = |plural: &str| format!("/apis/{group}/v1/namespaces/{NAMESPACE}/{plural}");
        self.create(&path("roles"), &role).await?;
        self.create(&path("rolebindings"), &binding).await.map(drop)
    }
}

/// The programs of a control plane.
#[derive(Clone, Debug)]
pub struct Programs {
    etcd: PathBuf,
    kube_apiserver: PathBuf,
}

impl Programs {
    /// Finds the programs; the error names what is missing and the command that builds it.
    pub fn find() -> anyhow::Result<Self> {
        Ok(Self {
            etcd: tools::mesh_program("etcd")?,
            kube_apiserver: tools::mesh_program("kube-apiserver")?,
        })
    }
}

/// The path of a pod.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")
}

/// Creates the body of a pod. It has a node, so that its deletion takes the time that its containers would get.
pub fn pod(name: &str, app: &str, annotation_bytes: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": { "app": app }, "annotations": { "padding": "x".repeat(annotation_bytes) }
        },
        "spec": {
            "nodeName": "nowhere",
            "containers": [{ "name": "engine", "image": "engine", "ports": [{ "containerPort": 8000 }] }]
        }
    })
}

/// Creates the status of a pod.
pub fn pod_status(ip: &str, is_ready: bool) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    json!({ "status": {
        "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }],
        "conditions": [{ "type": "Ready", "status": ready }]
    }})
}

fn pool_spec(app: &str, ports: &[u16]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|port| json!({ "number": port })).collect();
    json!({
        "selector": { "matchLabels": { "app": app } }, "targetPorts": ports,
        "endpointPickerRef": { "name": "picker", "port": { "number": 9002 } }
    })
}

/// The definition of InferencePools, as far as the tests need it.
fn definition() -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "inferencepools.inference.networking.k8s.io",
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" }
        },
        "spec": {
            "group": "inference.networking.k8s.io", "scope": "Namespaced",
            "names": { "kind": "InferencePool", "plural": "inferencepools", "singular": "inferencepool" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": any, "status": any } } },
                "subresources": { "status": {} }
            }]
        }
    })
}

fn start_store(
    program: &Path,
    directory: &Path,
    [client, peer]: [SocketAddr; 2],
) -> anyhow::Result<Process> {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(directory.join("store"));
    command.arg(format!("--listen-client-urls=http://{client}"));
    command.arg(format!("--advertise-client-urls=http://{client}"));
    command.arg(format!("--listen-peer-urls=http://{peer}"));
    command.arg(format!("--initial-advertise-peer-urls=http://{peer}"));
    command.arg(format!("--initial-cluster=default=http://{peer}"));
    // Nothing here must survive the machine.
    command.args(["--unsafe-no-fsync", "--log-level=error"]);
    Process::start("etcd", &mut command, &directory.join("etcd.log"))
}

fn server_command(
    program: &Path,
    directory: &Path,
    store: SocketAddr,
    address: SocketAddr,
) -> Command {
    let file = |option: &str, name: &str| format!("--{option}={}", directory.join(name).display());
    let mut command = Command::new(program);
    command.arg(format!("--etcd-servers=http://{store}"));
    command.arg(format!("--secure-port={}", address.port()));
    command.arg(format!("--bind-address={}", address.ip()));
    command.arg(format!("--advertise-address={}", address.ip()));
    command.arg(file("cert-dir", "certificates"));
    command.arg(file("service-account-key-file", "region.pem"));
    command.arg(file("service-account-signing-key-file", "region.key"));
    command.arg(file("token-auth-file", "tokens.csv"));
    command.args([
        // Without this, the server refuses to publish a loopback address.
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--service-cluster-ip-range=10.96.0.0/16",
    ]);
    command
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.read_timeout = Some(Duration::from_secs(60));
    Ok(Client::try_from(config)?)
}

async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let request = http_request(method, path, body)?;
    client
        .request(request)
        .await
        .with_context(|| format!("{method} {path}"))
}

fn http_request(
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<hyper::Request<Vec<u8>>> {
    let content = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = hyper::Request::builder().method(method).uri(path);
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    Ok(request.header("content-type", content).body(body)?)
}

//! What is compared: ways from a client to the same replicas.
//!
//! All Envoys run `envoy/standalone.yaml` with one worker; those without Isotherm have parts of it taken away. The
//! access log is off in every one, since its cost depends on where it is written to.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use isotherm_harness::process::Process;
use isotherm_harness::{Document, Pool, Stack, StackBuilder, Tools, port, within};
use serde_json::{Value, json};

use crate::scenario::MODEL;

const CLUSTERS: &str = "static_resources/clusters";
const POOL: &str = "static_resources/clusters/name=llama";
const SERVICE: &str = "static_resources/clusters/name=isotherm/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
const MANAGER: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config";
/// A Python program that imports what it must and registers its replicas.
const ROUTER_READY_MAX: Duration = Duration::from_secs(60);

/// One way to the replicas, running until it is dropped.
#[derive(Debug)]
pub struct Subject {
    /// Its name in the table.
    pub name: &'static str,
    /// Where clients connect.
    pub address: SocketAddr,
    running: Running,
    _socket: Option<Socket>,
}

/// The file of a Unix socket, which a service that is killed leaves behind.
#[derive(Debug)]
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[derive(Debug)]
enum Running {
    Envoy(Box<Stack>),
    WithService(Box<Stack>),
    Router {
        process: Process,
        _ports: [port::Reserved; 2],
    },
}

impl Subject {
    /// Envoy and nothing else; least request.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn plain(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        Self::bare(
            "Envoy",
            "bench-plain",
            replicas,
            &["envoy.filters.http.router"],
        )
        .await
    }

    /// Envoy with both instances of the filter, which nobody listens to; least request.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn filter_alone(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        const KEPT: &[&str] = &[
            "isotherm.request",
            "isotherm.response",
            "envoy.filters.http.router",
        ];
        Self::bare("Envoy + filter", "bench-filter", replicas, KEPT).await
    }

    /// Isotherm as it is delivered, the service over TCP.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn isotherm(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let stack = builder("bench-isotherm", replicas).start().await?;
        Ok(Self::with_service("Isotherm", stack, None))
    }

    /// The same, the service over a Unix socket.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn isotherm_unix(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let socket = Socket(socket_path());
        let path = socket.0.to_string_lossy().into_owned();
        let listen = json!([format!("unix:{path}")]);
        let stack = builder("bench-unix", replicas)
            .service(move |document| document.set("listen", listen))
            .envoy(move |document| document.set(SERVICE, json!({ "pipe": { "path": path } })))
            .start()
            .await?;
        Ok(Self::with_service(
            "Isotherm, Unix socket",
            stack,
            Some(socket),
        ))
    }

    /// SGLang's router with its policy for cached prefixes, when this Python has it.
    ///
    /// # Errors
    /// When it is there and does not start.
    pub async fn sglang_router(
        python: &Path,
        replicas: &[SocketAddr],
    ) -> anyhow::Result<Option<Self>> {
        let found = Command::new(python)
            .args(["-c", "import sglang_router"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let ports = [port::reserve()?, port::reserve()?];
        let [address, metrics] = ports.each_ref().map(port::Reserved::address);
        let mut command = Command::new(python);
        command
            .args(["-m", "sglang_router.launch_router", "--worker-urls"])
            .args(replicas.iter().map(|replica| format!("http://{replica}")))
            .args(["--policy", "cache_aware", "--log-level", "error"])
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--prometheus-port", &metrics.port().to_string()]);
        let log = Tools::find()?
            .output
            .join("bench")
            .join("sglang-router.log");
        let _ = std::fs::remove_file(&log);
        let process = Process::start("sglang-router", &mut command, &log)?;
        answers(address, &log).await?;
        Ok(Some(Self {
            name: "sglang-router",
            address,
            running: Running::Router {
                process,
                _ports: ports,
            },
            _socket: None,
        }))
    }

    /// Its processes: a label, and the process.
    ///
    /// # Errors
    /// When one of them does not run.
    pub fn processes(&self) -> anyhow::Result<Vec<(&'static str, &Process)>> {
        Ok(match &self.running {
            Running::Envoy(stack) => vec![("Envoy", stack.envoy().process())],
            Running::WithService(stack) => vec![
                ("Envoy", stack.envoy().process()),
                ("service", stack.service().process()?),
            ],
            Running::Router { process, .. } => vec![("router", process)],
        })
    }

    async fn bare(
        name: &'static str,
        stack: &str,
        replicas: &[SocketAddr],
        filters: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let endpoints = replicas.to_vec();
        let stack = builder(stack, replicas)
            .without_service()
            .envoy(move |document| without_service(document, filters, &endpoints))
            .start()
            .await?;
        Ok(Self {
            name,
            address: stack.envoy().address(),
            running: Running::Envoy(Box::new(stack)),
            _socket: None,
        })
    }

    fn with_service(name: &'static str, stack: Stack, socket: Option<Socket>) -> Self {
        Self {
            name,
            address: stack.envoy().address(),
            running: Running::WithService(Box::new(stack)),
            _socket: socket,
        }
    }
}

fn builder(name: &str, replicas: &[SocketAddr]) -> StackBuilder {
    Stack::builder(name)
        .pool(Pool::new(MODEL).served_by(replicas.iter().copied()))
        .workers(1)
        .log("warn")
        .service(|document| document.set("decision_header", false))
        .envoy(|document| document.set(&format!("{MANAGER}/access_log"), json!([])))
}

/// Leaves these filters, and gives the pool's cluster its replicas and a balancer of Envoy's own.
fn without_service(
    document: &mut Document,
    filters: &[&str],
    replicas: &[SocketAddr],
) -> anyhow::Result<()> {
    keep(document, &format!("{MANAGER}/http_filters"), filters)?;
    keep(document, CLUSTERS, &["llama"])?;
    document.remove(&format!("{POOL}/eds_cluster_config"))?;
    document.remove(&format!("{POOL}/load_balancing_policy"))?;
    document.set(&format!("{POOL}/type"), "STATIC")?;
    document.set(&format!("{POOL}/lb_policy"), "LEAST_REQUEST")?;
    let endpoints: Vec<Value> = replicas
        .iter()
        .map(|replica| {
            let address =
                json!({ "address": replica.ip().to_string(), "port_value": replica.port() });
            json!({ "endpoint": { "address": { "socket_address": address } } })
        })
        .collect();
    document.set(
        &format!("{POOL}/load_assignment"),
        json!({ "cluster_name": "llama", "endpoints": [{ "lb_endpoints": endpoints }] }),
    )
}

/// Takes away what is not named, from a list of things with names.
fn keep(document: &mut Document, path: &str, names: &[&str]) -> anyhow::Result<()> {
    let list = document
        .get_mut(path)?
        .as_array_mut()
        .with_context(|| format!("{path} is no list"))?;
    list.retain(|element| {
        let name = element.get("name").and_then(Value::as_str);
        name.is_some_and(|name| names.contains(&name))
    });
    Ok(())
}

/// Short, since a socket's path may have 107 bytes.
fn socket_path() -> PathBuf {
    std::env::temp_dir().join(format!("isotherm-bench-{}.sock", std::process::id()))
}

/// Waits until a request goes all the way.
async fn answers(address: SocketAddr, log: &Path) -> anyhow::Result<()> {
    let client = reqwest::Client::new();
    let question = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "ready?" }] });
    let what = format!("sglang-router to answer (its log: {})", log.display());
    within(ROUTER_READY_MAX, &what, || async {
        let asked = client
            .post(format!("http://{address}/v1/chat/completions"))
            .json(&question)
            .send()
            .await;
        Ok(asked
            .is_ok_and(|answer| answer.status().is_success())
            .then_some(()))
    })
    .await
}

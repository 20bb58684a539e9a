//! Running variants: paths from a client to the same replicas.
//!
//! All Envoys run `envoy/standalone.yaml` with one worker; those without Isotherm have parts of it taken away. The
//! access log is off in every one, since its cost depends on where it is written to.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum as _;
use isotherm_harness::envoy::{always_run_filter, edit_filter, set_in_filter};
use isotherm_harness::process::Process;
use isotherm_harness::{Document, Pool, Stack, StackBuilder, Tools, port, wait_for};
use serde_json::{Value, json};

use super::variant::Variant;
use isotherm_harness::MODEL;

const CLUSTERS: &str = "static_resources/clusters";
const POOL: &str = "static_resources/clusters/name=llama";
const SERVICE: &str = "static_resources/clusters/name=isotherm/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
const MANAGER: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config";
const ROUTER: &str = "envoy.filters.http.router";
/// Names the module that the floor's filters are.
const MODULE_VARIABLE: &str = "ISOTHERM_BENCH_FILTER";
/// A Python program that imports what it must and registers its replicas.
const ROUTER_READY_MAX: Duration = Duration::from_secs(60);

/// A variant that runs until it is dropped.
#[derive(Debug)]
pub struct RunningVariant {
    /// Variant.
    pub variant: Variant,
    /// Where clients connect.
    pub address: SocketAddr,
    running: VariantProcesses,
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
enum VariantProcesses {
    Envoy(Box<Stack>),
    WithService(Box<Stack>),
    Floor {
        stack: Box<Stack>,
        process: Process,
        _port: port::ReservedPort,
    },
    Router {
        process: Process,
        _ports: [port::ReservedPort; 2],
    },
}

impl RunningVariant {
    /// Starts a variant; `None` when it is not installed.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(
        variant: Variant,
        replicas: &[SocketAddr],
        python: &Path,
    ) -> anyhow::Result<Option<Self>> {
        match variant {
            Variant::Envoy => Self::bare(variant, replicas, &[ROUTER]).await,
            Variant::Filter => {
                let kept = &["isotherm.request", "isotherm.response", ROUTER];
                Self::bare(variant, replicas, kept).await
            }
            Variant::FloorHeaders => {
                let kept = &["isotherm.request", "isotherm.ext_proc", ROUTER];
                Self::floor(variant, replicas, kept).await
            }
            Variant::Floor => {
                let kept = &[
                    "isotherm.request",
                    "isotherm.ext_proc",
                    "isotherm.response",
                    ROUTER,
                ];
                Self::floor(variant, replicas, kept).await
            }
            Variant::Isotherm => {
                let stack = builder(variant, replicas).start().await?;
                Ok(Self::with_service(variant, stack, None))
            }
            Variant::IsothermExtProc => {
                let stack = builder(variant, replicas)
                    .envoy(without_decision_stream)
                    .start()
                    .await?;
                Ok(Self::with_service(variant, stack, None))
            }
            Variant::IsothermUnix => Self::isotherm_unix(replicas).await,
            Variant::SglangRouter => return Self::sglang_router(python, replicas).await,
        }
        .map(Some)
    }

    /// Isotherm, the service over a Unix socket.
    async fn isotherm_unix(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let socket = Socket(socket_path());
        let path = socket.0.to_string_lossy().into_owned();
        let listen = json!([format!("unix:{path}")]);
        let stack = builder(Variant::IsothermUnix, replicas)
            .service(move |document| document.set("listen", listen))
            .envoy(move |document| document.set(SERVICE, json!({ "pipe": { "path": path } })))
            .start()
            .await?;
        Ok(Self::with_service(
            Variant::IsothermUnix,
            stack,
            Some(socket),
        ))
    }

    /// SGLang's router with its policy for cached prefixes, when this Python has it.
    async fn sglang_router(python: &Path, replicas: &[SocketAddr]) -> anyhow::Result<Option<Self>> {
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
        let [address, metrics] = ports.each_ref().map(port::ReservedPort::address);
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
            variant: Variant::SglangRouter,
            address,
            running: VariantProcesses::Router {
                process,
                _ports: ports,
            },
            _socket: None,
        }))
    }

    /// Processes of the variant, with labels.
    ///
    /// # Errors
    /// When one of them does not run.
    pub fn processes(&self) -> anyhow::Result<Vec<(&'static str, &Process)>> {
        Ok(match &self.running {
            VariantProcesses::Envoy(stack) => vec![("Envoy", stack.envoy().process())],
            VariantProcesses::WithService(stack) => vec![
                ("Envoy", stack.envoy().process()),
                ("service", stack.service().process()?),
            ],
            VariantProcesses::Floor { stack, process, .. } => {
                vec![("Envoy", stack.envoy().process()), ("service", process)]
            }
            VariantProcesses::Router { process, .. } => vec![("router", process)],
        })
    }

    /// Bytes that have crossed between Envoy and the external processor: to it, and from it. All of them, discovery and
    /// health checks as well; nothing without one.
    ///
    /// # Errors
    /// When Envoy does not tell.
    pub async fn ext_proc_bytes(&self) -> anyhow::Result<Option<[u64; 2]>> {
        let (VariantProcesses::WithService(stack) | VariantProcesses::Floor { stack, .. }) =
            &self.running
        else {
            return Ok(None);
        };
        let stat = |way| format!("cluster.isotherm.upstream_cx_{way}_bytes_total");
        let envoy = stack.envoy();
        let to = envoy.stat(&stat("tx")).await?;
        Ok(Some([to, envoy.stat(&stat("rx")).await?]))
    }

    /// Without a service; least request.
    async fn bare(
        variant: Variant,
        replicas: &[SocketAddr],
        filters: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let endpoints = replicas.to_vec();
        let stack = builder(variant, replicas)
            .without_service()
            .envoy(move |document| without_service(document, filters, &["llama"], &endpoints))
            .start()
            .await?;
        Ok(Self {
            variant,
            address: stack.envoy().address(),
            running: VariantProcesses::Envoy(Box::new(stack)),
            _socket: None,
        })
    }

    /// The bench's own filter in the place of Isotherm's, the bench's own service in the place of Isotherm's; least request.
    async fn floor(
        variant: Variant,
        replicas: &[SocketAddr],
        filters: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let (program, module) = floor_files()?;
        let port = port::reserve()?;
        let address = port.address();
        let log = Tools::find()?.output.join("bench").join("floor.log");
        let mut command = Command::new(program);
        command.arg(address.to_string());
        let process = Process::start("isotherm-bench-floor", &mut command, &log)?;
        let endpoints = replicas.to_vec();
        let stack = builder(variant, replicas)
            .without_service()
            .envoy(move |document| {
                without_service(document, filters, &["llama", "isotherm"], &endpoints)?;
                let socket =
                    json!({ "address": address.ip().to_string(), "port_value": address.port() });
                document.set(SERVICE, json!({ "socket_address": socket }))?;
                document.remove("static_resources/clusters/name=isotherm/health_checks")?;
                for (filter, role) in [
                    ("isotherm.request", "copy"),
                    ("isotherm.response", "trailer"),
                ] {
                    if filters.contains(&filter) {
                        let module = module.to_string_lossy();
                        let mut set = |path: &str, value: &str| {
                            let path = format!("config/{path}");
                            set_in_filter(document, filter, &path, &json!(value))
                        };
                        // Another module in the same VM is another VM to Envoy, which tells them apart by this.
                        set("vm_config/vm_id", "floor")?;
                        set("vm_config/code/local/filename", &module)?;
                        set("configuration/value", role)?;
                    }
                }
                Ok(())
            })
            .start()
            .await?;
        Ok(Self {
            variant,
            address: stack.envoy().address(),
            running: VariantProcesses::Floor {
                stack: Box::new(stack),
                process,
                _port: port,
            },
            _socket: None,
        })
    }

    fn with_service(variant: Variant, stack: Stack, socket: Option<Socket>) -> Self {
        Self {
            variant,
            address: stack.envoy().address(),
            running: VariantProcesses::WithService(Box::new(stack)),
            _socket: socket,
        }
    }
}

fn builder(variant: Variant, replicas: &[SocketAddr]) -> StackBuilder {
    let name = variant.to_possible_value();
    let name = name.as_ref().map_or("variant", |name| name.get_name());
    let pool = Pool::new(MODEL).with_addresses(replicas.iter().copied());
    Stack::builder(&format!("bench-{name}"))
        .pool(pool.policy("isotherm")) // the service's default
        .workers(1)
        .log("warn")
        .service(|document| document.set("decision_header", false))
        .envoy(|document| document.set(&format!("{MANAGER}/access_log"), json!([])))
}

/// The program beside this one, and the module that `cargo xtask bench path` names.
fn floor_files() -> anyhow::Result<(PathBuf, PathBuf)> {
    let this = std::env::current_exe().context("this program does not know where it is")?;
    let program = this.with_file_name("isotherm-bench-floor");
    let module = std::env::var_os(MODULE_VARIABLE).map_or_else(
        || {
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../../../target/filter/isotherm_bench_filter.wasm")
        },
        PathBuf::from,
    );
    let found = |path: PathBuf| {
        path.canonicalize()
            .with_context(|| format!("no {}; `cargo xtask bench path` builds it", path.display()))
    };
    Ok((found(program)?, found(module)?))
}

/// Leaves these filters and clusters, and gives the pool's cluster its replicas and a balancer of Envoy's own.
fn without_service(
    document: &mut Document,
    filters: &[&str],
    clusters: &[&str],
    replicas: &[SocketAddr],
) -> anyhow::Result<()> {
    all_in_the_chain(document)?;
    keep(document, &format!("{MANAGER}/http_filters"), filters)?;
    keep(document, CLUSTERS, clusters)?;
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

/// Without a decision stream there is nothing to choose between.
fn all_in_the_chain(document: &mut Document) -> anyhow::Result<()> {
    always_run_filter(document, "isotherm.ext_proc")?;
    always_run_filter(document, "isotherm.response")
}

/// Leaves every question to external processing.
fn without_decision_stream(document: &mut Document) -> anyhow::Result<()> {
    all_in_the_chain(document)?;
    edit_filter(document, "isotherm.request", |filter| {
        filter.remove("decision_stream").map(drop)
    })
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
    wait_for(ROUTER_READY_MAX, &what, || async {
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

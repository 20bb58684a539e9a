//! Running variants: paths from a client to the same replicas.
//!
//! All Envoys run `envoy/standalone.yaml` with one worker; an Envoy without Isotherm omits parts of it. The access log is off,
//! since its cost depends on the disk.

mod pickers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::ValueEnum as _;
use isotherm_harness::envoy::{
    RESPONSE, SERVICE_ADDRESS, add_response_role, always_run_filter, edit_filter, set_endpoints,
    set_in_filter, socket_address,
};
use isotherm_harness::peers::{PythonRouter, ReferencePicker, RunningRouter};
use isotherm_harness::process::Process;
use isotherm_harness::{Document, Pool, SpanCollector, Stack, StackBuilder, Tools, port};
use serde_json::{Value, json};

use super::variant::Variant;
use isotherm_harness::MODEL;

const CLUSTERS: &str = "static_resources/clusters";
const POOL: &str = "static_resources/clusters/name=llama";
const MANAGER: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config";
const ROUTER: &str = "envoy.filters.http.router";
const REQUEST: &str = "isotherm.request";
const EXT_PROC: &str = "isotherm.ext_proc";
/// Environment variable with the path of the floor's filter module.
const MODULE_VARIABLE: &str = "ISOTHERM_BENCH_FILTER";

/// A variant that runs until it is dropped.
#[derive(Debug)]
pub struct RunningVariant {
    /// Variant.
    pub variant: Variant,
    /// Address for clients.
    pub address: SocketAddr,
    stack: Option<Stack>,
    companion: Option<Companion>,
    _socket: Option<Socket>,
    _collector: Option<SpanCollector>,
}

/// A program besides Envoy and Isotherm's service.
#[derive(Debug)]
enum Companion {
    /// The bench's own service.
    Floor {
        process: Process,
        _port: port::ReservedPort,
    },
    /// The Shepherd model gateway.
    Router(Box<RunningRouter>),
    /// The reference endpoint picker.
    Picker(Box<ReferencePicker>),
}

impl Companion {
    fn labelled(&self) -> (&'static str, &Process) {
        match self {
            Self::Floor { process, .. } => ("service", process),
            Self::Router(router) => ("router", &router.process),
            Self::Picker(picker) => ("service", &picker.process),
        }
    }
}

/// The file of a Unix socket, which remains when the service is killed.
#[derive(Debug)]
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl RunningVariant {
    /// Starts a variant; `None` when it is not installed, which a line on the error output says.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(
        variant: Variant,
        replicas: &[SocketAddr],
        python: &Path,
    ) -> anyhow::Result<Option<Self>> {
        let started = match variant {
            Variant::Envoy => Self::bare(variant, replicas, &[]).await,
            Variant::Filter => Self::bare(variant, replicas, &[REQUEST, RESPONSE]).await,
            Variant::FloorHeaders => Self::floor(variant, replicas, &[REQUEST, EXT_PROC]).await,
            Variant::Floor => Self::floor(variant, replicas, &[REQUEST, EXT_PROC, RESPONSE]).await,
            Variant::Isotherm => Self::of_stack(variant, builder(variant, replicas)).await,
            Variant::IsothermExtProc => {
                let builder = builder(variant, replicas).envoy(without_decision_stream);
                Self::of_stack(variant, builder).await
            }
            Variant::IsothermUnix => Self::isotherm_unix(replicas).await,
            Variant::IsothermTraced => Self::isotherm_traced(replicas).await,
            Variant::PickerEcho => Self::picker_echo(replicas).await,
            Variant::Picker => Self::picker(replicas).await,
            Variant::ReferencePicker => return Self::reference_picker(replicas).await,
            Variant::Smg => return Self::smg(python, replicas).await,
        };
        started.map(Some)
    }

    async fn of_stack(variant: Variant, builder: StackBuilder) -> anyhow::Result<Self> {
        let stack = builder.start().await?;
        Ok(Self {
            variant,
            address: stack.envoy().address(),
            stack: Some(stack),
            companion: None,
            _socket: None,
            _collector: None,
        })
    }

    /// Isotherm with several services behind its Envoy.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn with_services(replicas: &[SocketAddr], services: usize) -> anyhow::Result<Self> {
        let builder = builder(Variant::Isotherm, replicas).services(services);
        Self::of_stack(Variant::Isotherm, builder).await
    }

    /// Isotherm with its service on a Unix socket.
    async fn isotherm_unix(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let socket = Socket(socket_path());
        let path = socket.0.to_string_lossy().into_owned();
        let listen = json!([format!("unix:{path}")]);
        let builder = builder(Variant::IsothermUnix, replicas)
            .service(move |document| document.set("listen", listen))
            .envoy(move |document| {
                document.set(SERVICE_ADDRESS, json!({ "pipe": { "path": path } }))
            });
        Ok(Self {
            _socket: Some(socket),
            ..Self::of_stack(Variant::IsothermUnix, builder).await?
        })
    }

    /// Isotherm that begins a trace for one request in a hundred, and exports its spans to a collector in this process.
    async fn isotherm_traced(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let collector = SpanCollector::start().await?;
        let tracing = json!({ "endpoint": collector.url(), "ratio": 0.01 });
        let builder = builder(Variant::IsothermTraced, replicas)
            .service(move |document| document.set("tracing", tracing));
        Ok(Self {
            _collector: Some(collector),
            ..Self::of_stack(Variant::IsothermTraced, builder).await?
        })
    }

    /// The Shepherd model gateway with its policy for cached prefixes, when this Python has it.
    async fn smg(python: &Path, replicas: &[SocketAddr]) -> anyhow::Result<Option<Self>> {
        let started = PythonRouter::Smg.start(python, replicas).await?;
        Ok(started.map(|router| Self {
            variant: Variant::Smg,
            address: router.address,
            stack: None,
            companion: Some(Companion::Router(Box::new(router))),
            _socket: None,
            _collector: None,
        }))
    }

    /// Processes of the variant, with labels.
    ///
    /// # Errors
    /// When a process does not run.
    pub fn processes(&self) -> anyhow::Result<Vec<(&'static str, &Process)>> {
        let mut processes = Vec::new();
        if let Some(stack) = &self.stack {
            processes.push(("Envoy", stack.envoy().process()));
            if self.variant.is_isotherm() {
                for service in stack.services() {
                    processes.push(("service", service.process()?));
                }
            }
        }
        processes.extend(self.companion.as_ref().map(Companion::labelled));
        Ok(processes)
    }

    /// Bytes from Envoy to the external processor and back, discovery and health checks included; `None` without an external
    /// processor.
    ///
    /// # Errors
    /// When Envoy does not report them.
    pub async fn ext_proc_bytes(&self) -> anyhow::Result<Option<[u64; 2]>> {
        let has_ext_proc = self.variant.is_isotherm() || self.companion.is_some();
        let Some(stack) = self.stack.as_ref().filter(|_| has_ext_proc) else {
            return Ok(None);
        };
        let stat = |direction| format!("cluster.isotherm.upstream_cx_{direction}_bytes_total");
        let to = stack.envoy().stat(&stat("tx")).await?;
        Ok(Some([to, stack.envoy().stat(&stat("rx")).await?]))
    }

    /// Envoy without a service, with these filters and a balancer of its own (least request).
    async fn bare(
        variant: Variant,
        replicas: &[SocketAddr],
        filters: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let endpoints = replicas.to_vec();
        let edit =
            move |document: &mut _| without_service(document, filters, &["llama"], &endpoints);
        let builder = builder(variant, replicas).without_service().envoy(edit);
        Self::of_stack(variant, builder).await
    }

    /// The bench's own filter and service instead of Isotherm's, and Envoy's balancer (least request).
    async fn floor(
        variant: Variant,
        replicas: &[SocketAddr],
        filters: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let (program, module) = floor_files()?;
        let port = port::reserve()?;
        let address = port.address();
        let log = Tools::find()?.output.join("bench/floor.log");
        let mut command = Command::new(program);
        command.arg(address.to_string());
        let process = Process::start("isotherm-bench-floor", &mut command, &log)?;
        let endpoints = replicas.to_vec();
        let builder = builder(variant, replicas)
            .without_service()
            .envoy(move |document| {
                without_service(document, filters, &["llama", "isotherm"], &endpoints)?;
                document.set(SERVICE_ADDRESS, socket_address(&address))?;
                document.remove("static_resources/clusters/name=isotherm/health_checks")?;
                let roles = [(REQUEST, "copy"), (RESPONSE, "trailer")].into_iter();
                for (filter, role) in roles.filter(|(filter, _)| filters.contains(filter)) {
                    let module = module.to_string_lossy();
                    let mut set = |path: &str, value: &str| {
                        let path = format!("config/{path}");
                        set_in_filter(document, filter, &path, &json!(value))
                    };
                    // Envoy identifies a VM by this id and not by its module.
                    set("vm_config/vm_id", "floor")?;
                    set("vm_config/code/local/filename", &module)?;
                    set("configuration/value", role)?;
                }
                Ok(())
            });
        Ok(Self {
            companion: Some(Companion::Floor {
                process,
                _port: port,
            }),
            ..Self::of_stack(variant, builder).await?
        })
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

/// The floor's service beside this program, and the module that `cargo xtask bench path` names.
fn floor_files() -> anyhow::Result<(PathBuf, PathBuf)> {
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    let program = this.with_file_name("isotherm-bench-floor");
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = built.join("../../../target/filter/isotherm_bench_filter.wasm");
    let module = std::env::var_os(MODULE_VARIABLE).map_or(built, PathBuf::from);
    let found = |path: PathBuf| {
        path.canonicalize()
            .with_context(|| format!("no {}; `cargo xtask bench path` builds it", path.display()))
    };
    Ok((found(program)?, found(module)?))
}

/// Keeps these filters, Envoy's router and these clusters, and gives the pool's cluster its replicas and Envoy's balancer.
fn without_service(
    document: &mut Document,
    filters: &[&str],
    clusters: &[&str],
    replicas: &[SocketAddr],
) -> anyhow::Result<()> {
    always_run_filter(document, EXT_PROC)?;
    if filters.contains(&RESPONSE) {
        add_response_role(document)?;
    }
    let filters: Vec<&str> = filters.iter().copied().chain([ROUTER]).collect();
    keep(document, &format!("{MANAGER}/http_filters"), &filters)?;
    keep(document, CLUSTERS, clusters)?;
    document.remove(&format!("{POOL}/load_balancing_policy"))?;
    document.set(&format!("{POOL}/lb_policy"), "LEAST_REQUEST")?;
    set_endpoints(document, replicas)
}

/// Removes the decision stream, so that the service decides in external processing only, which no request may skip then.
fn without_decision_stream(document: &mut Document) -> anyhow::Result<()> {
    always_run_filter(document, EXT_PROC)?;
    edit_filter(document, REQUEST, |filter| {
        filter.remove("decision_stream").map(drop)
    })
}

/// Removes the elements without one of these names from a list.
fn keep(document: &mut Document, path: &str, names: &[&str]) -> anyhow::Result<()> {
    let list = document.get_mut(path)?.as_array_mut();
    let list = list.with_context(|| format!("{path} is no list"))?;
    list.retain(|element| {
        let name = element.get("name").and_then(Value::as_str);
        name.is_some_and(|name| names.contains(&name))
    });
    Ok(())
}

/// A short path, since the path of a socket has at most 107 bytes.
fn socket_path() -> PathBuf {
    std::env::temp_dir().join(format!("isotherm-bench-{}.sock", std::process::id()))
}

//! The service's configuration: a YAML file in which every option may be left out.
//!
//! The file as written ([`options`]) is kept apart from the configuration as resolved ([`Config`]), whose types cannot
//! be invalid. A file with mistakes yields all of them at once, each with its option and its line, and none of it is
//! applied. Without a file the service runs one pool for every model, and the admin interface adds its replicas.

mod address;
mod decimal;
mod engine;
mod engine_priority;
mod errors;
mod json_schema;
mod kind;
mod kubernetes;
mod listen;
mod options;
pub mod reference;
mod region;
mod reload;
mod replica;
mod resolve;
mod scaling;
mod section;
mod service_port;
mod tenants;
mod text;
mod tiers;
mod tree;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use isotherm_fingerprint::paths::AllowedPaths;
use isotherm_router::RouterConfig;

use errors::Reader;
use kind::Section;
use options::RawConfig;

pub use address::Address;
pub use engine::Engine;
pub use engine_priority::EnginePriority;
pub(crate) use engine_priority::PriorityHeader;
pub use errors::{ConfigError, ConfigErrors, SourceLocation};
pub use kubernetes::{KubernetesSource, KubernetesTarget};
pub use listen::Listen;
pub use options::{
    AdminConfig, ExtProcConfig, ListenTls, PeerConfig, ProbeConfig, RegionConfig, StoreConfig,
    TlsFiles, TrustedHeaders, UnknownModels,
};
pub use region::HEARTBEATS_MISSED_MAX;
pub(crate) use region::peer_cluster;
pub use reload::{ReloadError, ReloadResult, Reloader};
pub use replica::StaticReplica;
pub use scaling::{PoolScalingConfig, ScalingConfig, ScalingMode, WebhookConfig};
pub use service_port::ServicePort;
pub(crate) use text::is_region_name;

/// The largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The configuration of the service, as resolved from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Addresses on which Envoy reaches the service.
    pub listen: Vec<Listen>,
    /// Addresses with TLS.
    pub tls: Option<ListenTls>,
    /// An address for health checks alone.
    pub health_listen: Option<SocketAddr>,
    /// The HTTP interface for operators.
    pub admin: AdminConfig,
    /// Requests from gateways.
    pub ext_proc: ExtProcConfig,
    /// Whether clients get the header `x-isotherm-decision`.
    pub decision_header: bool,
    /// Paths that clients may use.
    pub allowed_paths: AllowedPaths,
    /// Rule for a request whose model no pool has.
    pub unknown_models: UnknownModels,
    /// Time that a stopping service waits for open streams.
    pub drain_max: Duration,
    /// The pools; their models, aliases and clusters are all different.
    pub pools: Vec<PoolConfig>,
    /// Whether the admin interface may record live traffic.
    pub recording: bool,
    /// Spans of requests, if they are exported.
    pub tracing: Option<TracingConfig>,
    /// This service among those of other regions; `None` for a region on its own.
    pub region: Option<RegionConfig>,
    /// Receivers of the numbers of replicas, and GPUs that the pools share.
    pub scaling: ScalingConfig,
}

/// Where spans of requests go, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingConfig {
    /// URL of the collector.
    pub endpoint: String,
    /// Share of requests without a trace of their caller for which the service begins one, from 0 to 1.
    pub ratio: f64,
}

/// A pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// The model's name; `*` for every model that no other pool names.
    pub model: String,
    /// Other names of the same model.
    pub aliases: Vec<String>,
    /// The Envoy cluster.
    pub cluster: String,
    /// The configuration of the routing core.
    pub router: RouterConfig,
    /// The replicas' engine; `None` detects it.
    pub engine: Option<Engine>,
    /// The engine that learns the class of a request by a header.
    pub engine_priority: EnginePriority,
    /// How the service probes replicas.
    pub probe: ProbeConfig,
    /// Sources of replicas.
    pub sources: Sources,
    /// Rules for the number of replicas; `None` if the service does not compute it.
    pub scaling: Option<PoolScalingConfig>,
}

/// Sources of a pool's replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Replicas at fixed addresses.
    pub fixed: Vec<StaticReplica>,
    /// A DNS name whose addresses are the replicas, and their port.
    pub dns: Option<Address>,
    /// Replicas that Kubernetes lists.
    pub kubernetes: Option<KubernetesSource>,
}

impl Default for Config {
    /// Returns the configuration of an empty file.
    fn default() -> Self {
        // An empty file has no mistakes; a test checks it.
        resolve::resolve(RawConfig::default(), &mut Reader::default())
    }
}

/// Reads and resolves a file.
/// The error has every mistake in it, or the reason why it cannot be read.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let text = File::open(path).map_err(unreadable).and_then(read);
    load_text(path, text)
}

/// Resolves the text of the file at `path`, or fails with the reason why there is none.
fn load_text(path: &Path, text: Result<String, String>) -> Result<Config, ConfigErrors> {
    let text = text.map_err(ConfigErrors::unreadable);
    let mut config = text
        .and_then(|text| parse(&text))
        .map_err(|errors| ConfigErrors {
            file: Some(path.to_owned()),
            ..errors
        })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    config.admin.token_file = config.admin.token_file.map(|file| folder.join(file));
    if let Some(tls) = &mut config.tls {
        for file in [&mut tls.certificate, &mut tls.key, &mut tls.client_ca] {
            *file = file.take().map(|file| folder.join(file));
        }
    }
    for probe in config.pools.iter_mut().map(|pool| &mut pool.probe) {
        for file in probe.ca.iter_mut().chain(&mut probe.token_file) {
            *file = folder.join(&file);
        }
    }
    if let Some(region) = &mut config.region {
        region.resolve_paths(folder);
    }
    config.scaling.resolve_paths(folder);
    for scaling in config
        .pools
        .iter_mut()
        .filter_map(|pool| pool.scaling.as_mut())
    {
        scaling.resolve_paths(folder);
    }
    Ok(config)
}

fn read(file: File) -> Result<String, String> {
    let mut text = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("larger than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(text).map_err(|_| "not UTF-8 text".into())
}

fn unreadable(error: std::io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Resolves the text of a file.
/// The error has every mistake in it.
pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
    let mut reader = Reader::default();
    let raw = tree::read(text, &mut reader)
        .and_then(|root| RawConfig::parse(&root, "", &mut reader))
        .unwrap_or_default();
    let config = resolve::resolve(raw, &mut reader);
    reader.finish(config)
}

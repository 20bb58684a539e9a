//! The service's configuration: a YAML file in which every member is optional, and what it means.
//!
//! The file as written (`raw`) is kept apart from the configuration as resolved ([`Config`]), whose types
//! cannot be wrong. A file with mistakes gets all of them at once, each with its option and its line, and none of
//! it is applied. With no file at all the service runs with one pool for every model, whose replicas come through
//! the admin interface.

mod address;
mod errors;
mod listen;
mod names;
mod number;
mod raw;
pub mod reference;
mod region;
mod reload;
mod resolve;
mod section;
mod tree;
mod value;

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_router::RouterConfig;

use errors::Errors;
use value::Value;

pub use address::Address;
pub use errors::{ConfigError, ConfigErrors, SourceLocation};
pub use listen::Listen;
pub use names::EngineKind;
use names::PushName;
pub use region::{HEARTBEATS_MISSED_MAX, PeerConfig, RegionConfig, Security, TlsFiles};
pub use reload::{ReloadError, ReloadResult, Reloader};

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9003);

const DEFAULT_REGION_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9004);

/// What the service does, as resolved from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where Envoy reaches the service.
    pub listen: Vec<Listen>,
    /// The HTTP interface for operators.
    pub admin: AdminConfig,
    /// Whether clients get `x-isotherm-decision`.
    pub decision_header: bool,
    /// How long a stop waits for open streams.
    pub drain_max: Duration,
    /// The pools; their models, aliases and clusters are all different.
    pub pools: Vec<PoolConfig>,
    /// Whether live traffic may be recorded.
    pub recording: RecordingConfig,
    /// This service among those of other regions; `None` for a region on its own.
    pub region: Option<RegionConfig>,
}

/// The HTTP interface for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where the bearer token for changes is.
    pub token_file: Option<PathBuf>,
}

/// Recording live traffic as a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingConfig {
    /// Whether it is allowed.
    pub enabled: bool,
}

/// One pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// The model's name; `*` for every model that no other pool names.
    pub model: String,
    /// Other names of the same model.
    pub aliases: Vec<String>,
    /// The Envoy cluster.
    pub cluster: String,
    /// What its routing core gets.
    pub router: RouterConfig,
    /// Whose metric names its replicas use.
    pub engine: EngineKind,
    /// How its replicas are probed.
    pub probe: ProbeConfig,
    /// Where its replicas come from.
    pub sources: Sources,
}

/// How replicas are probed. (How old a probe may become is the routing core's `probe_stale_after`.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    /// The time between two probes of one replica.
    pub interval: Duration,
    /// How long a probe may take.
    pub timeout: Duration,
    /// The path of the metrics page, where it is not the engine's own.
    pub path: Option<String>,
}

/// Where a pool's replicas come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Addresses that stay; all different.
    pub fixed: Vec<SocketAddr>,
    /// A name that is resolved again and again.
    pub dns: Option<DnsSource>,
}

/// A name whose addresses are replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSource {
    /// The name.
    pub name: String,
    /// The port of every replica.
    pub port: u16,
    /// How often it is resolved again.
    pub interval: Duration,
}

impl Default for Config {
    /// What the service does with no file.
    fn default() -> Self {
        resolve::defaults()
    }
}

/// Reads and resolves a file.
///
/// # Errors
///
/// Every mistake in it, or the one reason why it could not be read.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let unreadable = |message: String| {
        let mut errors = Errors::default();
        errors.add(None, "", message);
        errors.into_result(())
    };
    let read = File::open(path).and_then(|file| {
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok(text)
    });
    let result = match read.map(|bytes| (bytes.len() as u64, String::from_utf8(bytes))) {
        Err(error) => unreadable(format!("cannot be read: {error}")).map(|()| Config::default()),
        Ok((length, _)) if length > FILE_BYTES_MAX => {
            unreadable(format!("larger than {FILE_BYTES_MAX} bytes")).map(|()| Config::default())
        }
        Ok((_, Err(_))) => unreadable("not UTF-8 text".into()).map(|()| Config::default()),
        Ok((_, Ok(text))) => parse(&text),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    result
        .map(|mut config| {
            config.admin.token_file = config.admin.token_file.map(|file| folder.join(file));
            if let Some(region) = &mut config.region {
                region.resolve_paths(folder);
            }
            config
        })
        .map_err(|errors| ConfigErrors {
            file: Some(path.to_owned()),
            ..errors
        })
}

/// Resolves the text of a file.
///
/// # Errors
///
/// Every mistake in it.
pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
    let mut errors = Errors::default();
    let raw = tree::read(text, &mut errors)
        .and_then(|root| raw::RawConfig::read(&root, "", &mut errors))
        .unwrap_or_default();
    let config = resolve::resolve(raw, &mut errors);
    errors.into_result(config)
}

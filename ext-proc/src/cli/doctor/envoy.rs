//! The answers of Envoy's admin interface: its state, its configuration, its clusters and the filter's counters.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, StatusCode};
use isotherm_envoy_config::check::{self, Mistake, Source, Summary};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::fault::Fault;
use crate::cli::client::percent_encode;
use crate::config::Address;
use crate::http_client::HttpClient;

/// The longest wait for a page of Envoy.
const PAGE_TIME_MAX: Duration = Duration::from_secs(10);
/// The largest page, in bytes.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The statistics that the rules read.
const STATS: &str =
    r"^(wasm\..*\.active|wasmcustom\.isotherm_filter_.*|http\..*\.downstream_rq_2xx)$";

/// The answers of an Envoy.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvoyState {
    /// Address of the admin interface, as the operator gave it.
    pub(super) address: String,
    pub(super) state: String,
    pub(super) stats: BTreeMap<String, u64>,
    pub(super) clusters: Vec<Cluster>,
    pub(super) summary: Summary,
    pub(super) mistakes: Vec<Mistake>,
}

/// A cluster that Envoy runs.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Cluster {
    pub(super) name: String,
    /// Name by which endpoint discovery knows the cluster, where it has its endpoints from there.
    #[serde(default)]
    pub(super) eds_service_name: Option<String>,
    #[serde(default, rename = "host_statuses")]
    pub(super) hosts: Vec<Host>,
}

/// A host of a cluster.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Host {
    address: HostAddress,
    #[serde(default)]
    health_status: HealthStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct HostAddress {
    #[serde(default)]
    socket_address: Option<SocketAddress>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SocketAddress {
    address: String,
    #[serde(default)]
    port_value: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct HealthStatus {
    #[serde(default)]
    failed_active_health_check: bool,
}

#[derive(Debug, Deserialize)]
struct ServerInfo {
    state: String,
}

#[derive(Debug, Deserialize)]
struct Clusters {
    #[serde(default)]
    cluster_statuses: Vec<Cluster>,
}

impl Host {
    /// Whether health checks find the host well.
    pub(super) const fn is_healthy(&self) -> bool {
        !self.health_status.failed_active_health_check
    }

    /// The address as `ip:port`; `None` for a Unix socket.
    pub(super) fn address(&self) -> Option<Address> {
        let socket = self.address.socket_address.as_ref()?;
        let is_v6 = socket.address.contains(':');
        let text = match is_v6 {
            true => format!("[{}]:{}", socket.address, socket.port_value),
            false => format!("{}:{}", socket.address, socket.port_value),
        };
        Address::parse(&text).ok()
    }
}

impl EnvoyState {
    /// A statistic; `None` where this Envoy does not have or keep it.
    pub(super) fn stat(&self, name: &str) -> Option<u64> {
        self.stats.get(name).copied()
    }

    /// The sum of the statistics that a rule selects; `None` where there is none.
    pub(super) fn sum(&self, is_selected: impl Fn(&str) -> bool) -> Option<u64> {
        let own = self.stats.iter().filter(|(name, _)| is_selected(name));
        own.map(|(_, value)| *value).reduce(u64::saturating_add)
    }

    pub(super) fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }

    /// The addresses of the pools' endpoints, each once.
    pub(super) fn addresses(&self) -> Vec<Address> {
        let pools = self.summary.pools.iter();
        let clusters = pools.filter_map(|name| self.cluster(name));
        let hosts = clusters.flat_map(|cluster| &cluster.hosts);
        let mut addresses: Vec<Address> = hosts.filter_map(Host::address).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}

/// Asks an Envoy for everything that the rules read.
pub(super) async fn ask(http: &HttpClient, admin: &Address) -> Result<EnvoyState, Fault> {
    let info: ServerInfo = parse(admin, &page(http, admin, "/server_info").await?)?;
    let stats = format!("/stats?filter={}", percent_encode(STATS));
    let stats = page(http, admin, &stats).await?;
    let clusters: Clusters = parse(admin, &page(http, admin, "/clusters?format=json").await?)?;
    let dump = page(http, admin, "/config_dump").await?;
    let summary = check::summarize(&dump).map_err(|_| no_envoy(admin))?;
    let source = Source {
        name: format!("http://{admin}/config_dump"),
        text: dump,
    };
    let mistakes = check::check(&[source]).map_err(|_| no_envoy(admin))?;
    Ok(EnvoyState {
        address: admin.to_string(),
        state: info.state,
        stats: parse_stats(&stats),
        clusters: clusters.cluster_statuses,
        summary,
        mistakes,
    })
}

async fn page(http: &HttpClient, admin: &Address, path: &str) -> Result<String, Fault> {
    let request = Request::get(format!("http://{admin}{path}")).body(Bytes::new());
    let request = request.map_err(|error| unreachable(admin, &error.to_string()))?;
    let response = http.fetch(request, PAGE_TIME_MAX, PAGE_BYTES_MAX).await;
    let response = response.map_err(|error| unreachable(admin, &error.to_string()))?;
    if response.status() != StatusCode::OK {
        return Err(no_envoy(admin));
    }
    String::from_utf8(response.into_body().to_vec()).map_err(|_| no_envoy(admin))
}

fn parse<T: DeserializeOwned>(admin: &Address, text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|_| no_envoy(admin))
}

/// Counters and gauges, from lines such as `http.llm.downstream_rq_2xx: 4`. Histograms have no number there.
fn parse_stats(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(": ")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}

fn unreachable(admin: &Address, reason: &str) -> Fault {
    Fault::error(
        "no-envoy",
        format!("Envoy's admin interface does not answer at {admin}: {reason}"),
        "start Envoy, or name its `admin` address by --envoy-admin",
    )
}

fn no_envoy(admin: &Address) -> Fault {
    Fault::error(
        "no-envoy",
        format!("{admin} is not Envoy's admin interface"),
        "name the `admin` address of Envoy's configuration by --envoy-admin",
    )
}

//! Envoy as a child process, on `envoy/standalone.yaml` with other addresses.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::document::Document;
use crate::process::Process;
use crate::tools::Tools;
use crate::wait::within;

/// Envoy compiles the filter once per worker before it listens.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long a change of endpoints may take to arrive.
const ENDPOINTS_MAX: Duration = Duration::from_secs(10);

const LISTENER: &str = "static_resources/listeners/name=llm";
const CLUSTERS: &str = "static_resources/clusters";
const FILTERS: &str = "filter_chains/0/filters/0/typed_config/http_filters";
/// The pool's cluster in the file.
const EXAMPLE_CLUSTER: &str = "llama";

/// A model and the cluster that serves it.
pub(crate) struct Route {
    pub(crate) model: String,
    pub(crate) cluster: String,
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    admin: SocketAddr,
    listener: SocketAddr,
    process: Process,
    client: reqwest::Client,
}

/// `envoy/standalone.yaml` for these pools: ports of the kernel's choice, the filter where it is, the service where it
/// is, a cluster per pool.
pub(crate) fn configuration(
    tools: &Tools,
    service: SocketAddr,
    routes: &[Route],
) -> anyhow::Result<Document> {
    let mut document = Document::read(&tools.standalone)?;
    document.set("admin/address/socket_address/port_value", 0)?;
    let listen = json!({ "address": "127.0.0.1", "port_value": 0 });
    document.set(&format!("{LISTENER}/address/socket_address"), listen)?;
    document.set(
        &format!("{CLUSTERS}/name=isotherm/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address"),
        json!({ "address": service.ip().to_string(), "port_value": service.port() }),
    )?;
    for filter in ["isotherm.request", "isotherm.response"] {
        let code = format!(
            "{LISTENER}/{FILTERS}/name={filter}/typed_config/config/vm_config/code/local/filename"
        );
        document.set(&code, tools.filter.to_string_lossy().into_owned())?;
    }

    let example = document
        .get(&format!("{CLUSTERS}/name={EXAMPLE_CLUSTER}"))?
        .clone();
    for route in routes
        .iter()
        .filter(|route| route.cluster != EXAMPLE_CLUSTER)
    {
        let mut cluster = Document::from(example.clone());
        cluster.set("name", route.cluster.as_str())?;
        cluster.set("eds_cluster_config/service_name", route.cluster.as_str())?;
        document.push(CLUSTERS, cluster.value().clone())?;
    }
    edit_filter(&mut document, "isotherm.request", |filter| {
        let pools = routes
            .iter()
            .map(|route| json!({ "models": [route.model], "cluster": route.cluster }));
        filter.set("pools", pools.collect::<Vec<Value>>())?;
        let default = routes
            .first()
            .map_or(EXAMPLE_CLUSTER, |route| &route.cluster);
        filter.set("default_cluster", default)
    })?;
    Ok(document)
}

/// Changes the filter's own configuration, which is a JSON text inside of Envoy's.
///
/// # Errors
/// When there is no such filter, or the change fails.
pub fn edit_filter(
    document: &mut Document,
    name: &str,
    edit: impl FnOnce(&mut Document) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = format!("{LISTENER}/{FILTERS}/name={name}/typed_config/config/configuration/value");
    let text = document
        .get(&path)?
        .as_str()
        .context("the filter's configuration is no text")?;
    let mut configuration = Document::parse(text)?;
    edit(&mut configuration)?;
    document.set(&path, configuration.value().to_string())
}

impl Envoy {
    /// Starts it and waits until it listens.
    pub(crate) async fn start(
        tools: &Tools,
        document: &Document,
        directory: &Path,
        workers: u16,
    ) -> anyhow::Result<Self> {
        let config = directory.join("envoy.json");
        let admin_path = directory.join("envoy-admin-address");
        document.write(&config)?;
        let _ = fs::remove_file(&admin_path);
        let mut command = Command::new(&tools.envoy);
        command
            .arg("--config-path")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin_path)
            .args([
                "--disable-hot-restart",
                "--concurrency",
                &workers.to_string(),
                "--log-level",
                "warning",
            ]);
        let mut process = Process::start("envoy", &mut command, &directory.join("envoy.log"))?;
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(5))
            .build()?;
        let (admin, listener) = process
            .ready(READY_MAX, |_| {
                let (client, admin_path) = (client.clone(), admin_path.clone());
                async move { addresses(&client, admin_path).await }
            })
            .await?;
        Ok(Self {
            admin,
            listener,
            process,
            client,
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener
    }

    /// One of the URLs of its admin interface.
    #[must_use]
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// Its process: logs, memory, signals.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The value of a counter or gauge, by its full name; zero when Envoy has none of that name (yet).
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let url = self.admin_url(&format!("/stats?filter=^{}$", name.replace('.', "\\.")));
        let text = self
            .client
            .get(url)
            .send()
            .await?
            .error_for_status()?
            .text()
            .await?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
        Ok(value.unwrap_or(0))
    }

    /// The endpoints that a cluster has now.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn endpoints(&self, cluster: &str) -> anyhow::Result<Vec<SocketAddr>> {
        let answer: Value = self
            .client
            .get(self.admin_url("/clusters?format=json"))
            .send()
            .await?
            .json()
            .await?;
        let list = |value: &Value, member: &str| {
            value
                .get(member)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let hosts = list(&answer, "cluster_statuses")
            .into_iter()
            .filter(|status| status.get("name").and_then(Value::as_str) == Some(cluster))
            .flat_map(|status| list(&status, "host_statuses"));
        Ok(hosts
            .filter_map(|host| socket_address(host.get("address")?))
            .collect())
    }

    /// Waits until a cluster has exactly these endpoints.
    ///
    /// # Errors
    /// When it has not after ten seconds.
    pub async fn has_endpoints(&self, cluster: &str, wanted: &[SocketAddr]) -> anyhow::Result<()> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let what = format!("the endpoints {wanted:?} in Envoy's cluster {cluster}");
        within(ENDPOINTS_MAX, &what, || async {
            let mut found = self.endpoints(cluster).await?;
            found.sort_unstable();
            Ok((found == wanted).then_some(()))
        })
        .await
    }
}

/// The admin address from the file that Envoy writes, the listener's from the admin interface, once it is live.
async fn addresses(
    client: &reqwest::Client,
    admin_path: PathBuf,
) -> Option<(SocketAddr, SocketAddr)> {
    let admin: SocketAddr = fs::read_to_string(admin_path).ok()?.trim().parse().ok()?;
    let ready = client
        .get(format!("http://{admin}/ready"))
        .send()
        .await
        .ok()?;
    if !ready.status().is_success() {
        return None;
    }
    let listeners = client
        .get(format!("http://{admin}/listeners?format=json"))
        .send()
        .await
        .ok()?;
    let listeners: Value = listeners.json().await.ok()?;
    let listener = socket_address(
        listeners
            .get("listener_statuses")?
            .get(0)?
            .get("local_address")?,
    )?;
    Some((admin, listener))
}

/// `{"socket_address": {"address", "port_value"}}`, as everywhere in Envoy's answers.
fn socket_address(value: &Value) -> Option<SocketAddr> {
    let socket = value.get("socket_address")?;
    let port = u16::try_from(socket.get("port_value")?.as_u64()?).ok()?;
    Some(SocketAddr::new(
        socket.get("address")?.as_str()?.parse().ok()?,
        port,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the edits of [`configuration`] name is in the file.
    #[test]
    fn the_standalone_file_has_what_the_harness_replaces() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
        let tools = Tools {
            envoy: "envoy".into(),
            filter: "/filter.wasm".into(),
            isotherm: "isotherm".into(),
            engine: "engine".into(),
            standalone: root.join("envoy/standalone.yaml"),
            output: "target".into(),
        };
        let route = |name: &str| Route {
            model: format!("{name}-model"),
            cluster: name.into(),
        };
        let service = "127.0.0.1:4321".parse().unwrap();
        let document = configuration(&tools, service, &[route("llama"), route("second")]).unwrap();
        assert_eq!(
            document
                .get("static_resources/clusters/name=second/eds_cluster_config/service_name")
                .unwrap(),
            "second"
        );
        let text = document.value().to_string();
        assert!(
            text.contains("4321") && text.contains("/filter.wasm") && text.contains("second-model")
        );
        assert!(!text.contains("9002") && !text.contains("isotherm_filter.wasm"));
    }
}

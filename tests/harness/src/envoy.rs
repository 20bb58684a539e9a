//! Envoy as a child process.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::document::Document;
use crate::process::Process;
use crate::service::admin_client;
use crate::tools::Tools;
use crate::wait::{WAIT_MAX, wait_for};

pub use crate::endpoints::{SERVICE_ADDRESS, set_endpoints, socket_address};
pub use crate::filters::{
    RESPONSE, add_response_role, always_run_filter, edit_filter, set_in_filter, show_decisions,
};

/// A running (or killed) Envoy.
#[derive(Debug)]
pub struct Envoy {
    command: Command,
    directory: PathBuf,
    listener: SocketAddr,
    admin: SocketAddr,
    process: Process,
    client: reqwest::Client,
}

impl Envoy {
    /// Starts Envoy and waits until it listens at `listener`, which is in the configuration.
    pub(crate) async fn start(
        tools: &Tools,
        document: &Document,
        listener: SocketAddr,
        directory: &Path,
        workers: u16,
    ) -> anyhow::Result<Self> {
        let config_path = directory.join("envoy.json");
        document.write(&config_path)?;
        let mut command = Command::new(&tools.envoy);
        command
            .arg("--config-path")
            .arg(config_path)
            .arg("--admin-address-path")
            .arg(admin_path(directory))
            .args(["--disable-hot-restart", "--log-level", "warning"])
            // Access logs are written at once instead of every 10 s.
            .args(["--file-flush-interval-msec", "200"])
            .args(["--concurrency", &workers.to_string()]);
        let client = admin_client()?;
        let (process, admin) = launch(&mut command, directory, &client).await?;
        Ok(Self {
            command,
            directory: directory.to_owned(),
            listener,
            admin,
            process,
            client,
        })
    }

    /// Kills Envoy (`SIGKILL`).
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Starts Envoy again with the same configuration and waits until it listens. Only the admin address changes.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        let started = launch(&mut self.command, &self.directory, &self.client);
        (self.process, self.admin) = started.await?;
        Ok(())
    }

    /// The address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.listener
    }

    /// A URL of the admin interface.
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// The process: log, memory, signals.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Reads a counter or gauge by its full name; zero when Envoy has none of that name (yet).
    pub async fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let path = format!("/stats?filter=^{}$", name.replace('.', "\\."));
        let stats = self.admin_text(&path).await?;
        let mut lines = stats.lines();
        let value =
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
        Ok(value.unwrap_or(0))
    }

    /// Waits until so many decision streams have become ready: one for each worker, and one for the main thread. Until then external
    /// processing decides.
    pub async fn wait_for_decision_streams(&self, count: u64) -> anyhow::Result<()> {
        let opened = "wasmcustom.isotherm_filter_decision_streams_opened";
        wait_for(WAIT_MAX, "the decision streams", async || {
            let is_ready = self.stat(opened).await? >= count;
            Ok(is_ready.then_some(()))
        })
        .await
    }

    /// The endpoints that a cluster has now, from lines such as `llama::127.0.0.1:8000::cx_active::0`.
    pub async fn endpoints(&self, cluster: &str) -> anyhow::Result<BTreeSet<SocketAddr>> {
        let clusters = self.admin_text("/clusters").await?;
        let endpoint = |line: &str| {
            let rest = line.strip_prefix(cluster)?.strip_prefix("::")?;
            rest.split("::").next()?.parse().ok()
        };
        Ok(clusters.lines().filter_map(endpoint).collect())
    }

    async fn admin_text(&self, path: &str) -> anyhow::Result<String> {
        let response = self.client.get(self.admin_url(path)).send().await?;
        Ok(response.error_for_status()?.text().await?)
    }

    /// Waits until a cluster has exactly these endpoints.
    pub async fn wait_for_endpoints(
        &self,
        cluster: &str,
        expected: &[SocketAddr],
    ) -> anyhow::Result<()> {
        let expected: BTreeSet<SocketAddr> = expected.iter().copied().collect();
        let condition = format!("the endpoints {expected:?} in Envoy's cluster {cluster}");
        wait_for(WAIT_MAX, &condition, || async {
            Ok((self.endpoints(cluster).await? == expected).then_some(()))
        })
        .await
    }
}

/// The file to which Envoy writes the address of its admin interface.
fn admin_path(directory: &Path) -> PathBuf {
    directory.join("envoy-admin-address")
}

async fn launch(
    command: &mut Command,
    directory: &Path,
    client: &reqwest::Client,
) -> anyhow::Result<(Process, SocketAddr)> {
    let admin_path = admin_path(directory);
    let _ = fs::remove_file(&admin_path);
    let mut process = Process::start("envoy", command, &directory.join("envoy.log"))?;
    let admin = process
        .wait_until_ready(WAIT_MAX, |_| read_admin_address(client, &admin_path))
        .await?;
    Ok((process, admin))
}

/// The admin address from the file that Envoy writes, once Envoy is live.
async fn read_admin_address(client: &reqwest::Client, path: &Path) -> Option<SocketAddr> {
    let admin: SocketAddr = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let ready = client.get(format!("http://{admin}/ready")).send().await;
    ready.ok()?.status().is_success().then_some(admin)
}

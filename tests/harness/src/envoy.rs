//! Envoy as a child process.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::document::Document;
use crate::process::Process;
use crate::tools::Tools;
use crate::wait::{WAIT_MAX, wait_for};

pub use crate::filters::{always_run_filter, edit_filter, set_in_filter, show_decisions};

/// A running (or killed) Envoy.
#[derive(Debug)]
pub struct Envoy {
    program: PathBuf,
    directory: PathBuf,
    workers: u16,
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
        document.write(&directory.join("envoy.json"))?;
        let client = reqwest::Client::builder().timeout(WAIT_MAX).build()?;
        let (process, admin) = launch(&tools.envoy, directory, workers, &client).await?;
        Ok(Self {
            program: tools.envoy.clone(),
            directory: directory.to_owned(),
            workers,
            listener,
            admin,
            process,
            client,
        })
    }

    /// Kills Envoy (`SIGKILL`).
    ///
    /// # Errors
    /// When its exit status cannot be read.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().map(|_| ())
    }

    /// Starts Envoy again with the same configuration and waits until it listens. Only the admin address changes.
    ///
    /// # Errors
    /// When it does not become ready in time.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        let started = launch(&self.program, &self.directory, self.workers, &self.client);
        (self.process, self.admin) = started.await?;
        Ok(())
    }

    /// The address to which clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener
    }

    /// A URL of the admin interface.
    #[must_use]
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// The process: log, memory, signals.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Reads a counter or gauge by its full name; zero when Envoy has none of that name (yet).
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let url = self.admin_url(&format!("/stats?filter=^{}$", name.replace('.', "\\.")));
        let response = self.client.get(url).send().await?.error_for_status()?;
        let value = response
            .text()
            .await?
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
        Ok(value.unwrap_or(0))
    }

    /// The endpoints that a cluster has now.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn endpoints(&self, cluster: &str) -> anyhow::Result<Vec<SocketAddr>> {
        let url = self.admin_url("/clusters?format=json");
        let clusters: Value = self.client.get(url).send().await?.json().await?;
        let list = |value: &Value, member: &str| {
            let list = value.get(member).and_then(Value::as_array);
            list.cloned().unwrap_or_default()
        };
        let hosts = list(&clusters, "cluster_statuses")
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
    /// When it never has.
    pub async fn wait_for_endpoints(
        &self,
        cluster: &str,
        wanted: &[SocketAddr],
    ) -> anyhow::Result<()> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let what = format!("the endpoints {wanted:?} in Envoy's cluster {cluster}");
        wait_for(WAIT_MAX, &what, || async {
            let mut found = self.endpoints(cluster).await?;
            found.sort_unstable();
            Ok((found == wanted).then_some(()))
        })
        .await
    }
}

async fn launch(
    program: &Path,
    directory: &Path,
    workers: u16,
    client: &reqwest::Client,
) -> anyhow::Result<(Process, SocketAddr)> {
    let admin_path = directory.join("envoy-admin-address");
    let _ = fs::remove_file(&admin_path);
    let mut command = Command::new(program);
    command
        .arg("--config-path")
        .arg(directory.join("envoy.json"))
        .arg("--admin-address-path")
        .arg(&admin_path)
        .args(["--disable-hot-restart", "--log-level", "warning"])
        .args(["--concurrency", &workers.to_string()]);
    let mut process = Process::start("envoy", &mut command, &directory.join("envoy.log"))?;
    let admin = process
        .wait_until_ready(WAIT_MAX, |_| {
            let (client, admin_path) = (client.clone(), admin_path.clone());
            async move { read_admin_address(&client, &admin_path).await }
        })
        .await?;
    Ok((process, admin))
}

/// The admin address from the file that Envoy writes, once Envoy is live.
async fn read_admin_address(client: &reqwest::Client, path: &Path) -> Option<SocketAddr> {
    let admin: SocketAddr = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let ready = client.get(format!("http://{admin}/ready")).send().await;
    ready.ok()?.status().is_success().then_some(admin)
}

/// Parses `{"socket_address": {"address", "port_value"}}`.
fn socket_address(value: &Value) -> Option<SocketAddr> {
    let socket = value.get("socket_address")?;
    let port = u16::try_from(socket.get("port_value")?.as_u64()?).ok()?;
    let address = socket.get("address")?.as_str()?.parse().ok()?;
    Some(SocketAddr::new(address, port))
}

//! Envoy as a child process.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::document::Document;
use crate::process::Process;
use crate::tools::Tools;
use crate::wait::wait_for;

pub use crate::filters::{always_run_filter, edit_filter, set_in_filter, show_decisions};

/// Envoy compiles the filter once per worker before it listens.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long a change of endpoints may take to arrive.
const ENDPOINTS_MAX: Duration = Duration::from_secs(10);

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
    /// Starts it and waits until it listens at `listener`, which is in the configuration.
    pub(crate) async fn start(
        tools: &Tools,
        document: &Document,
        listener: SocketAddr,
        directory: &Path,
        workers: u16,
    ) -> anyhow::Result<Self> {
        document.write(&directory.join("envoy.json"))?;
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(5))
            .build()?;
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

    /// Ends it without warning.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().map(|_| ())
    }

    /// Starts it again with the same configuration, at the same addresses (its admin interface excepted), and waits
    /// until it listens.
    ///
    /// # Errors
    /// When it does not become ready in time.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        let started = launch(&self.program, &self.directory, self.workers, &self.client);
        (self.process, self.admin) = started.await?;
        Ok(())
    }

    /// Stops it where it is: connections stay, nothing is answered.
    ///
    /// # Errors
    /// When it has ended.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.process.suspend()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.resume()
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
    pub async fn wait_for_endpoints(
        &self,
        cluster: &str,
        wanted: &[SocketAddr],
    ) -> anyhow::Result<()> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let what = format!("the endpoints {wanted:?} in Envoy's cluster {cluster}");
        wait_for(ENDPOINTS_MAX, &what, || async {
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
        .args([
            "--disable-hot-restart",
            "--concurrency",
            &workers.to_string(),
            "--log-level",
            "warning",
        ]);
    let mut process = Process::start("envoy", &mut command, &directory.join("envoy.log"))?;
    let admin = process
        .wait_until_ready(READY_MAX, |_| {
            let (client, admin_path) = (client.clone(), admin_path.clone());
            async move { admin_address(&client, admin_path).await }
        })
        .await?;
    Ok((process, admin))
}

/// The admin address from the file that Envoy writes, once it is live.
async fn admin_address(client: &reqwest::Client, admin_path: PathBuf) -> Option<SocketAddr> {
    let admin: SocketAddr = fs::read_to_string(admin_path).ok()?.trim().parse().ok()?;
    let ready = client
        .get(format!("http://{admin}/ready"))
        .send()
        .await
        .ok()?;
    ready.status().is_success().then_some(admin)
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

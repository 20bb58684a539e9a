//! The service, `isotherm serve`, as a child process with a generated configuration.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::Method;
use serde_json::Value;

use crate::document::Document;
use crate::port::{self, ReservedPort};
use crate::process::Process;
use crate::tools::{self, Tools};
use crate::wait::WAIT_MAX;

/// A running (or killed) service.
#[derive(Debug)]
pub struct Service {
    command: Command,
    directory: PathBuf,
    config: Document,
    listen: SocketAddr,
    admin: SocketAddr,
    token: String,
    client: reqwest::Client,
    process: Option<Process>,
    _reserved: Vec<ReservedPort>,
}

impl Service {
    /// Creates the directory with the admin token, chooses ports, and sets both in the configuration.
    pub(crate) fn prepare(
        tools: &Tools,
        directory: &Path,
        config: Document,
        log_filter: &str,
    ) -> anyhow::Result<Self> {
        Self::prepare_on_loopback(&tools.isotherm, directory, config, log_filter)
    }

    /// Prepares a service without Envoy and engines, whose files and log stay in `target/stacks/NAME`.
    pub fn alone(name: &str, config: Document) -> anyhow::Result<Self> {
        let directory = tools::output_directory().join("stacks").join(name);
        let program = tools::service_program()?;
        let _ = fs::remove_file(directory.join(LOG_FILE));
        Self::prepare_on_loopback(&program, &directory, config, "info")
    }

    /// Prepares a service at given addresses: for decisions, and for its admin interface.
    pub(crate) fn at(
        tools: &Tools,
        directory: &Path,
        config: Document,
        addresses: [SocketAddr; 2],
    ) -> anyhow::Result<Self> {
        Self::prepare_at(&tools.isotherm, directory, config, "info", addresses)
    }

    /// Sets an environment variable of the service, before the start.
    pub fn set_environment(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.command.env(name, value);
    }

    fn prepare_on_loopback(
        program: &Path,
        directory: &Path,
        config: Document,
        log_filter: &str,
    ) -> anyhow::Result<Self> {
        let reserved = [port::reserve()?, port::reserve()?];
        let addresses = reserved.each_ref().map(ReservedPort::address);
        let service = Self::prepare_at(program, directory, config, log_filter, addresses)?;
        Ok(Self {
            _reserved: reserved.into(),
            ..service
        })
    }

    fn prepare_at(
        program: &Path,
        directory: &Path,
        mut config: Document,
        log_filter: &str,
        [listen, admin]: [SocketAddr; 2],
    ) -> anyhow::Result<Self> {
        let token = format!("harness-{}-{}", std::process::id(), admin.port());
        let token_file = directory.join("admin-token");
        fs::create_dir_all(directory)?;
        fs::write(&token_file, &token)?;
        config.set("listen", vec![listen.to_string()])?;
        // Beyond loopback only inside a network that a test made.
        config.set("plaintext", !listen.ip().is_loopback())?;
        config.set("admin/listen", admin.to_string())?;
        config.set("admin/token_file", token_file.to_string_lossy())?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg("--config")
            .arg(directory.join(CONFIG_FILE))
            .args(["--log", log_filter]);
        Ok(Self {
            command,
            directory: directory.to_owned(),
            config,
            listen,
            admin,
            token,
            client: admin_client()?,
            process: None,
            _reserved: Vec::new(),
        })
    }

    /// The configuration, to be edited before the start (or before [`Service::save`]).
    pub fn config(&mut self) -> &mut Document {
        &mut self.config
    }

    /// The program, whose other commands (`top`, `explain`, `replicas`) use the same configuration file.
    pub fn program(&self) -> &Path {
        Path::new(self.command.get_program())
    }

    /// The path of the configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.directory.join(CONFIG_FILE)
    }

    /// Writes the configuration file, which the running service watches.
    pub fn save(&self) -> anyhow::Result<()> {
        self.config.write(&self.config_path())
    }

    /// Starts the service (again), at the same addresses, and waits until it is ready.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        self.start_until("/readyz").await
    }

    /// Starts the service, and waits until it serves its admin interface, ready or not.
    pub async fn start_unready(&mut self) -> anyhow::Result<()> {
        self.start_until("/healthz").await
    }

    async fn start_until(&mut self, path: &str) -> anyhow::Result<()> {
        self.process = None;
        self.save()?;
        let log = self.directory.join(LOG_FILE);
        let mut process = Process::start("isotherm", &mut self.command, &log)?;
        let (client, url) = (&self.client, self.admin_url(path));
        process
            .wait_until_ready(WAIT_MAX, |_| async {
                let response = client.get(&url).send().await.ok()?;
                response.status().is_success().then_some(())
            })
            .await?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the service (`SIGKILL`).
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the service does not run")?;
        process.kill()
    }

    /// Ends the service (`SIGTERM`), and waits for its graceful shutdown.
    pub async fn stop(&mut self, limit: Duration) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the service does not run")?;
        process.stop(limit).await
    }

    /// The process: log, memory, signals.
    pub fn process(&self) -> anyhow::Result<&Process> {
        self.process.as_ref().context("the service does not run")
    }

    /// The address to which Envoy connects.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// A URL of the admin API.
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// The token that a request which changes state must carry: `Authorization: Bearer TOKEN`.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Reads a page of the admin API as JSON.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.admin_request(Method::GET, path, None).await
    }

    /// Sends a request to the admin API, with the token; returns JSON, or the text if it is not JSON. An error shows the
    /// response.
    pub async fn admin_request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let mut request = self.client.request(method.clone(), self.admin_url(path));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.bearer_auth(&self.token).send().await;
        let response =
            response.with_context(|| format!("the service does not answer {method} {path}"))?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "{method} {path}: {status}: {text}");
        Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

/// A client for admin interfaces. It opens a connection for each request: a server closes an idle connection after some
/// seconds, at times in the moment in which the next request is sent on it.
pub(crate) fn admin_client() -> anyhow::Result<reqwest::Client> {
    let client = reqwest::Client::builder().timeout(WAIT_MAX);
    Ok(client.pool_max_idle_per_host(0).build()?)
}

const CONFIG_FILE: &str = "isotherm.yaml";
const LOG_FILE: &str = "isotherm.log";

//! The service, `isotherm serve`, as a child process with a generated configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use crate::document::Document;
use crate::port::{self, ReservedPort};
use crate::process::Process;
use crate::tools::Tools;
use crate::wait::WAIT_MAX;

/// A running (or killed) service.
#[derive(Debug)]
pub struct Service {
    program: PathBuf,
    directory: PathBuf,
    config: Document,
    listen: ReservedPort,
    admin: ReservedPort,
    token: String,
    log_filter: String,
    client: reqwest::Client,
    process: Option<Process>,
}

impl Service {
    /// Chooses ports, creates the directory and generates the configuration; `pools` is the list of that name.
    pub(crate) fn prepare(
        tools: &Tools,
        directory: &Path,
        pools: Vec<Value>,
        log_filter: String,
    ) -> anyhow::Result<Self> {
        let (listen, admin) = (port::reserve()?, port::reserve()?);
        let token = format!("harness-{}-{}", std::process::id(), admin.address().port());
        let config = json!({ "admin": {}, "decision_header": true, "pools": pools });
        let service = Self {
            program: tools.isotherm.clone(),
            directory: directory.to_owned(),
            config: config.into(),
            listen,
            admin,
            token,
            log_filter,
            client: reqwest::Client::builder().timeout(WAIT_MAX).build()?,
            process: None,
        };
        service.with_own_addresses()
    }

    /// A service with the same configuration, but for its addresses and its directory.
    pub(crate) fn sibling(&self, directory: &Path) -> anyhow::Result<Self> {
        let sibling = Self {
            program: self.program.clone(),
            directory: directory.to_owned(),
            config: self.config.clone(),
            listen: port::reserve()?,
            admin: port::reserve()?,
            token: self.token.clone(),
            log_filter: self.log_filter.clone(),
            client: self.client.clone(),
            process: None,
        };
        sibling.with_own_addresses()
    }

    /// Creates the directory with the token, and sets the addresses in the configuration.
    fn with_own_addresses(mut self) -> anyhow::Result<Self> {
        fs::create_dir_all(&self.directory)?;
        let token_file = self.directory.join("admin-token");
        fs::write(&token_file, &self.token)?;
        let listen = vec![self.listen.address().to_string()];
        let token_file = token_file.to_string_lossy().into_owned();
        self.config.set("listen", listen)?;
        self.config
            .set("admin/listen", self.admin.address().to_string())?;
        self.config.set("admin/token_file", token_file)?;
        Ok(self)
    }

    /// The configuration, to be edited before the start (or before [`Service::save`]).
    pub fn config(&mut self) -> &mut Document {
        &mut self.config
    }

    /// The program, whose other commands (`top`, `explain`, `replicas`) use the same configuration file.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The path of the configuration file.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.directory.join("isotherm.yaml")
    }

    /// Writes the configuration file, which the running service watches.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self) -> anyhow::Result<()> {
        self.config.write(&self.config_path())
    }

    /// Starts the service (again), at the same addresses, and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or does not become ready in time; with the end of its log.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        self.process = None;
        self.save()?;
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg("--config")
            .arg(self.config_path())
            .args(["--log", &self.log_filter]);
        let log = self.directory.join("isotherm.log");
        let mut process = Process::start("isotherm", &mut command, &log)?;
        let (client, url) = (self.client.clone(), self.admin_url("/readyz"));
        process
            .wait_until_ready(WAIT_MAX, |_| {
                let response = client.get(&url).send();
                async move {
                    let response = response.await.ok()?;
                    response.status().is_success().then_some(())
                }
            })
            .await?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the service (`SIGKILL`).
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the service does not run")?;
        process.kill().map(|_| ())
    }

    /// Ends the service (`SIGTERM`), and waits for its graceful shutdown.
    ///
    /// # Errors
    /// When it does not run, or takes longer than `limit`.
    pub async fn stop(&mut self, limit: Duration) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the service does not run")?;
        process.terminate()?;
        process.wait_for_exit(limit).await.map(|_| ())
    }

    /// Suspends the service (`SIGSTOP`): its connections stay, and it answers nothing.
    ///
    /// # Errors
    /// When it does not run.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.process()?.suspend()
    }

    /// Resumes the service (`SIGCONT`).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process()?.resume()
    }

    /// The process: log, memory, signals.
    ///
    /// # Errors
    /// When the service does not run.
    pub fn process(&self) -> anyhow::Result<&Process> {
        self.process.as_ref().context("the service does not run")
    }

    /// The address to which Envoy connects.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listen.address()
    }

    /// A URL of the admin API.
    #[must_use]
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin.address())
    }

    /// The token that a request which changes state must carry: `Authorization: Bearer TOKEN`.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Sends a request to the admin API, with the token; returns JSON, or the text if it is not JSON.
    ///
    /// # Errors
    /// When the service does not answer with success; the message has the response.
    pub async fn admin_request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let url = self.admin_url(path);
        let mut request = self.client.request(method.clone(), url);
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

    /// Adds a replica to a pool.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn add_replica(&self, pool: &str, address: SocketAddr) -> anyhow::Result<()> {
        let body = json!({ "pool": pool, "address": address.to_string() });
        let request = self.admin_request(Method::POST, "/api/replicas", Some(&body));
        request.await.map(|_| ())
    }

    /// Removes a replica from a pool at once.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn remove_replica(&self, pool: &str, address: SocketAddr) -> anyhow::Result<()> {
        let path = format!("/api/replicas/{address}?pool={pool}");
        let request = self.admin_request(Method::DELETE, &path, None);
        request.await.map(|_| ())
    }

    /// Drains a replica: it gets no new requests.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn drain_replica(&self, pool: &str, address: SocketAddr) -> anyhow::Result<()> {
        let path = format!("/api/replicas/{address}/drain?pool={pool}");
        let request = self.admin_request(Method::POST, &path, None);
        request.await.map(|_| ())
    }

    /// Reads the state of the replicas.
    ///
    /// # Errors
    /// When the service does not answer.
    pub async fn replicas(&self) -> anyhow::Result<Value> {
        self.admin_request(Method::GET, "/api/replicas", None).await
    }

    /// Reads the metrics.
    ///
    /// # Errors
    /// When the service does not answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let response = self.client.get(self.admin_url("/metrics")).send().await?;
        Ok(response.error_for_status()?.text().await?)
    }
}

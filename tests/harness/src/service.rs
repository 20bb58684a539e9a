//! The service, `isotherm serve`, as a child process with a generated configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::Method;
use serde_json::{Value, json};

use crate::document::Document;
use crate::port::{self, ReservedPort};
use crate::process::Process;
use crate::tools::Tools;

/// Time for it to start and to probe its replicas.
const READY_MAX: Duration = Duration::from_secs(20);
/// The admin interface is on loopback; an answer that takes longer means a service that hangs.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Chooses ports and makes the directory and the configuration; `pools` is the list under that name.
    pub(crate) fn prepare(
        tools: &Tools,
        directory: &Path,
        pools: Vec<Value>,
        log_filter: String,
    ) -> anyhow::Result<Self> {
        let (listen, admin) = (port::reserve()?, port::reserve()?);
        let token = format!("harness-{}-{}", std::process::id(), admin.address().port());
        fs::create_dir_all(directory)?;
        let token_file = directory.join("admin-token");
        fs::write(&token_file, &token)?;
        let config = json!({
            "listen": [listen.address().to_string()],
            "admin": { "listen": admin.address().to_string(), "token_file": token_file },
            "decision_header": true,
            "pools": pools,
        });
        Ok(Self {
            program: tools.isotherm.clone(),
            directory: directory.to_owned(),
            config: config.into(),
            listen,
            admin,
            token,
            log_filter,
            client: reqwest::Client::builder().timeout(ADMIN_TIMEOUT).build()?,
            process: None,
        })
    }

    /// Another one with the same configuration, but for what only one of them can have.
    pub(crate) fn sibling(&self, directory: &Path) -> anyhow::Result<Self> {
        let (listen, admin) = (port::reserve()?, port::reserve()?);
        fs::create_dir_all(directory)?;
        let token_file = directory.join("admin-token");
        fs::write(&token_file, &self.token)?;
        let mut config = self.config.clone();
        config.set("listen", vec![listen.address().to_string()])?;
        config.set("admin/listen", admin.address().to_string())?;
        config.set(
            "admin/token_file",
            token_file.to_string_lossy().into_owned(),
        )?;
        Ok(Self {
            program: self.program.clone(),
            directory: directory.to_owned(),
            config,
            listen,
            admin,
            token: self.token.clone(),
            log_filter: self.log_filter.clone(),
            client: self.client.clone(),
            process: None,
        })
    }

    /// The configuration, to be changed before the start (or before [`Service::save`]).
    pub fn config(&mut self) -> &mut Document {
        &mut self.config
    }

    /// The program, whose other commands (`top`, `explain`, `replicas`) take the same configuration.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Where the configuration file is.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.directory.join("isotherm.yaml")
    }

    /// Writes the configuration where the running service watches it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self) -> anyhow::Result<()> {
        self.config.write(&self.config_path())
    }

    /// Starts it (again), at the same addresses, and waits until it is ready.
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
        let mut process = Process::start(
            "isotherm",
            &mut command,
            &self.directory.join("isotherm.log"),
        )?;
        let (client, url) = (self.client.clone(), self.admin_url("/readyz"));
        process
            .wait_until_ready(READY_MAX, |_| {
                let asked = client.get(&url).send();
                async move {
                    asked
                        .await
                        .is_ok_and(|answer| answer.status().is_success())
                        .then_some(())
                }
            })
            .await?;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it without warning.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the service does not run")?;
        process.kill().map(|_| ())
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// When it does not run, or takes longer.
    pub async fn stop(&mut self, limit: Duration) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the service does not run")?;
        process.terminate()?;
        process.wait_for_exit(limit).await.map(|_| ())
    }

    /// Stops it where it is: connections stay, nothing is answered.
    ///
    /// # Errors
    /// When it does not run.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.process()?.suspend()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process()?.resume()
    }

    /// Its process: logs, memory, signals.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process(&self) -> anyhow::Result<&Process> {
        self.process.as_ref().context("the service does not run")
    }

    /// Where Envoy finds it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listen.address()
    }

    /// One of the URLs of its admin interface.
    #[must_use]
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin.address())
    }

    /// What a request that changes state must carry: `Authorization: Bearer TOKEN`.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Asks the admin interface, with the token; JSON or (where the answer is none) its text.
    ///
    /// # Errors
    /// When it does not answer, or not with success; the message has its answer.
    pub async fn admin_request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let mut request = self
            .client
            .request(method.clone(), self.admin_url(path))
            .bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request
            .send()
            .await
            .with_context(|| format!("the service does not answer {method} {path}"))?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("{method} {path}: {status}: {text}");
        }
        Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Adds a replica to a pool.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn add_replica(&self, pool: &str, address: SocketAddr) -> anyhow::Result<()> {
        let body = json!({ "pool": pool, "address": address.to_string() });
        self.admin_request(Method::POST, "/api/replicas", Some(&body))
            .await
            .map(|_| ())
    }

    /// Takes a replica out of a pool at once.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn remove_replica(&self, pool: &str, address: SocketAddr) -> anyhow::Result<()> {
        self.admin_request(
            Method::DELETE,
            &format!("/api/replicas/{address}?pool={pool}"),
            None,
        )
        .await
        .map(|_| ())
    }

    /// Sends a replica no more requests.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn drain_replica(&self, pool: &str, address: SocketAddr) -> anyhow::Result<()> {
        self.admin_request(
            Method::POST,
            &format!("/api/replicas/{address}/drain?pool={pool}"),
            None,
        )
        .await
        .map(|_| ())
    }

    /// The service's view of its replicas.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn replicas(&self) -> anyhow::Result<Value> {
        self.admin_request(Method::GET, "/api/replicas", None).await
    }

    /// Its `/metrics` page.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self
            .client
            .get(self.admin_url("/metrics"))
            .send()
            .await?
            .error_for_status()?
            .text()
            .await?)
    }
}

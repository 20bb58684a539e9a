//! A simulated engine as a child process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::process::Process;
use crate::tools::Tools;

/// An engine is a small program; this is generous for a machine that is busy with something else.
const READY_MAX: Duration = Duration::from_secs(20);

/// How an engine is started.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The hardware and model whose timing it has.
    pub preset: String,
    /// How many times faster than that it runs.
    pub speed: f64,
    /// Whatever else goes on its command line.
    pub arguments: Vec<String>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            preset: "llama-3.1-8b-l4".into(),
            speed: 10.0,
            arguments: Vec::new(),
        }
    }
}

/// A running (or killed) engine.
#[derive(Debug)]
pub struct Engine {
    name: String,
    address: SocketAddr,
    program: PathBuf,
    model: String,
    options: EngineOptions,
    log: PathBuf,
    process: Process,
}

impl Engine {
    /// Starts one on a free port and waits until it serves.
    pub(crate) async fn start(
        tools: &Tools,
        name: String,
        model: String,
        options: EngineOptions,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let program = tools.engine.clone();
        let (process, address) =
            launch(&name, &program, &model, &options, &log, "127.0.0.1:0").await?;
        Ok(Self {
            name,
            address,
            program,
            model,
            options,
            log,
            process,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The model that it serves.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// One of its URLs.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its process: logs, memory, signals.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Stops it where it is.
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

    /// Ends it without warning.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().map(|_| ())
    }

    /// Starts it again at the same address, with an empty cache.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        let listen = self.address.to_string();
        // A line that says where it listens must be a new one.
        std::fs::write(&self.log, "")?;
        let (process, _) = launch(
            &self.name,
            &self.program,
            &self.model,
            &self.options,
            &self.log,
            &listen,
        )
        .await?;
        self.process = process;
        Ok(())
    }

    /// Sets or clears faults while it runs; the body is the engine's own (see its `/fault`).
    ///
    /// # Errors
    /// When it refuses.
    pub async fn fault(&self, body: &Value) -> anyhow::Result<()> {
        let answer = reqwest::Client::new()
            .post(self.url("/fault"))
            .json(body)
            .send()
            .await?;
        answer
            .error_for_status()
            .with_context(|| format!("{} refuses the fault {body}", self.name))?;
        Ok(())
    }

    /// Its `/metrics` page.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        Ok(reqwest::get(self.url("/metrics"))
            .await?
            .error_for_status()?
            .text()
            .await?)
    }
}

async fn launch(
    name: &str,
    program: &Path,
    model: &str,
    options: &EngineOptions,
    log: &Path,
    listen: &str,
) -> anyhow::Result<(Process, SocketAddr)> {
    let mut command = Command::new(program);
    command
        .args([
            "--listen",
            listen,
            "--model",
            model,
            "--preset",
            &options.preset,
        ])
        .args(["--speed", &options.speed.to_string()])
        .args(&options.arguments);
    let mut process = Process::start(name, &mut command, log)?;
    let address = process
        .wait_until_ready(READY_MAX, |log| std::future::ready(listening(&log)))
        .await?;
    Ok((process, address))
}

fn listening(log: &str) -> Option<SocketAddr> {
    log.lines()
        .find_map(|line| line.strip_prefix("listening on ")?.trim().parse().ok())
}

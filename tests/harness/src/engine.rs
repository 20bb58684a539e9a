//! A simulated engine as a child process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::Process;
use crate::tools::Tools;
use crate::wait::WAIT_MAX;

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Preset of hardware and model, which determines the timing.
    pub preset: String,
    /// Factor by which the engine runs faster than that hardware.
    pub speed: f64,
    /// Further command-line arguments.
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
    address: SocketAddr,
    spec: EngineSpec,
    process: Process,
}

/// Everything that is needed to start an engine.
#[derive(Debug)]
struct EngineSpec {
    name: String,
    program: PathBuf,
    model: String,
    options: EngineOptions,
    log: PathBuf,
}

impl Engine {
    /// Starts an engine on a free port and waits until it serves.
    pub(crate) async fn start(
        tools: &Tools,
        name: String,
        model: String,
        options: EngineOptions,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let spec = EngineSpec {
            log: directory.join(format!("{name}.log")),
            program: tools.engine.clone(),
            name,
            model,
            options,
        };
        let (process, address) = spec.launch("127.0.0.1:0").await?;
        Ok(Self {
            address,
            spec,
            process,
        })
    }

    /// The address on which the engine listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills the engine (`SIGKILL`).
    ///
    /// # Errors
    /// When its exit status cannot be read.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().map(|_| ())
    }

    /// Starts the engine again at the same address, with an empty cache.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        // The address is read from the log, so the line of the previous start must go.
        std::fs::write(&self.spec.log, "")?;
        (self.process, _) = self.spec.launch(&self.address.to_string()).await?;
        Ok(())
    }

    /// Reads the engine's load and the changes of it, from `/debug/load`.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn load(&self) -> anyhow::Result<Value> {
        let url = format!("http://{}/debug/load", self.address);
        Ok(reqwest::get(url).await?.error_for_status()?.json().await?)
    }
}

impl EngineSpec {
    async fn launch(&self, listen: &str) -> anyhow::Result<(Process, SocketAddr)> {
        let Self { options, model, .. } = self;
        let mut command = Command::new(&self.program);
        command
            .args(["--listen", listen, "--model", model])
            .args(["--preset", &options.preset])
            .args(["--speed", &options.speed.to_string()])
            .args(&options.arguments);
        let mut process = Process::start(&self.name, &mut command, &self.log)?;
        let address = process
            .wait_until_ready(WAIT_MAX, |log| std::future::ready(listen_address(&log)))
            .await?;
        Ok((process, address))
    }
}

fn listen_address(log: &str) -> Option<SocketAddr> {
    log.lines()
        .find_map(|line| line.strip_prefix("listening on ")?.trim().parse().ok())
}

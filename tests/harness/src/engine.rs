//! A simulated engine as a child process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::directory::fresh_directory;
use crate::pool::Pool;
use crate::process::Process;
use crate::tools::Tools;
use crate::wait::WAIT_MAX;

/// A running (or killed) engine.
#[derive(Debug)]
pub struct Engine {
    pub(crate) pool: Pool,
    number: usize,
    address: SocketAddr,
    program: PathBuf,
    log: PathBuf,
    process: Process,
}

impl Engine {
    /// Starts an engine on a free port and waits until it serves.
    pub(crate) async fn start(
        tools: &Tools,
        pool: &Pool,
        number: usize,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        Self::start_at(tools, pool, "127.0.0.1:0", number, directory).await
    }

    /// Starts an engine that listens at `listen`, and waits until it serves.
    pub(crate) async fn start_at(
        tools: &Tools,
        pool: &Pool,
        listen: &str,
        number: usize,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("engine-{number}.log"));
        let (process, address) = launch(&tools.engine, (pool, number), listen, &log).await?;
        Ok(Self {
            pool: pool.clone(),
            number,
            address,
            program: tools.engine.clone(),
            log,
            process,
        })
    }

    /// The address on which the engine listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process, to be suspended or measured.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills the engine (`SIGKILL`).
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Starts the engine again at the same address, with an empty cache.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        // The address is read from the log, so the line of the previous start must go.
        std::fs::write(&self.log, "")?;
        let listen = self.address.to_string();
        let pool = (&self.pool, self.number);
        (self.process, _) = launch(&self.program, pool, &listen, &self.log).await?;
        Ok(())
    }

    /// Reads the engine's load and the changes of it, from `/debug/load`.
    pub async fn load(&self) -> anyhow::Result<Value> {
        let url = format!("http://{}/debug/load", self.address);
        Ok(reqwest::get(url).await?.error_for_status()?.json().await?)
    }
}

/// The engines of a pool without Envoy and without the service. They end when this is dropped.
#[derive(Debug)]
pub struct Engines(Vec<Engine>);

impl Engines {
    /// Starts the engines of a pool; their logs are in `target/stacks/NAME.PROCESS.NUMBER`.
    pub async fn start(name: &str, pool: &Pool) -> anyhow::Result<Self> {
        let tools = Tools::find()?;
        let directory = fresh_directory(&tools.output.join("stacks"), name)?;
        let mut engines = Vec::new();
        for number in 0..pool.engines {
            engines.push(Engine::start(&tools, pool, number, &directory).await?);
        }
        Ok(Self(engines))
    }

    /// The engines, in order of their start.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Engine> {
        self.0.iter()
    }

    /// The engine with an index.
    pub fn get(&self, index: usize) -> anyhow::Result<&Engine> {
        let engine = self.0.get(index);
        engine.with_context(|| format!("no engine {index}"))
    }

    /// The engine with an index, to be killed or restarted.
    pub fn get_mut(&mut self, index: usize) -> anyhow::Result<&mut Engine> {
        let engine = self.0.get_mut(index);
        engine.with_context(|| format!("no engine {index}"))
    }

    /// The addresses on which they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(Engine::address).collect()
    }
}

async fn launch(
    program: &Path,
    (pool, number): (&Pool, usize),
    listen: &str,
    log: &Path,
) -> anyhow::Result<(Process, SocketAddr)> {
    let options = &pool.engine;
    let mut command = Command::new(program);
    command
        .args(["--listen", listen, "--model", &pool.model])
        .args(["--preset", &options.preset])
        .args(["--speed", &options.speed.to_string()])
        .args(&options.arguments)
        .args(pool.arguments_of.get(&number).into_iter().flatten());
    let name = log.file_stem().unwrap_or_default().to_string_lossy();
    let mut process = Process::start(&name, &mut command, log)?;
    let address = process
        .wait_until_ready(WAIT_MAX, |log| std::future::ready(listen_address(&log)))
        .await?;
    Ok((process, address))
}

fn listen_address(log: &str) -> Option<SocketAddr> {
    log.lines()
        .find_map(|line| line.strip_prefix("listening on ")?.trim().parse().ok())
}

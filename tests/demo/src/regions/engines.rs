//! The simulated replicas of one region: one process with a port for each replica.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use isotherm_harness::process::Process;
use isotherm_harness::{EngineOptions, Tools};

/// Longest start of the engines on a busy machine.
const READY_MAX: Duration = Duration::from_secs(20);

/// Running replicas. They end when the value is dropped.
#[derive(Debug)]
pub(super) struct Engines {
    addresses: Vec<SocketAddr>,
    _process: Process,
}

impl Engines {
    /// Starts `count` replicas with empty caches.
    ///
    /// # Errors
    /// When they do not become ready; the error has the end of their log.
    pub(super) async fn start(
        tools: &Tools,
        region: &str,
        count: usize,
        model: &str,
        options: &EngineOptions,
    ) -> anyhow::Result<Self> {
        let directory = tools.output.join("stacks");
        fs::create_dir_all(&directory)?;
        let log = directory.join(format!("engines-{region}.{}.log", std::process::id()));
        // Lines of an earlier start name other addresses.
        fs::write(&log, "")?;
        let mut command = Command::new(&tools.engine);
        command
            .args(["--listen", "127.0.0.1:0", "--model", model])
            .args(["--preset", &options.preset])
            .args(["--speed", &options.speed.to_string()])
            .args(["--replicas", &count.to_string()])
            .args(&options.arguments);
        let mut process = Process::start(&format!("engines of {region}"), &mut command, &log)?;
        let addresses = process
            .wait_until_ready(READY_MAX, |log| {
                let found = listening(&log);
                std::future::ready((found.len() == count).then_some(found))
            })
            .await?;
        Ok(Self {
            addresses,
            _process: process,
        })
    }

    /// Addresses of the replicas.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

fn listening(log: &str) -> Vec<SocketAddr> {
    log.lines()
        .filter_map(|line| line.strip_prefix("listening on ")?.trim().parse().ok())
        .collect()
}

//! Routers that Python packages contain: SGLang's gateway, its successor `smg`, and vLLM's router.
//!
//! The three share their options. Each runs with its policy for cached prefixes and its own defaults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::wait_for_response;
use crate::port::{self, ReservedPort};
use crate::process::Process;
use crate::tools::Tools;

/// A router in a Python package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PythonRouter {
    /// SGLang's router.
    Sglang,
    /// The Shepherd model gateway.
    Smg,
    /// vLLM's router.
    Vllm,
}

impl PythonRouter {
    /// Name of the package.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::Sglang => "sglang-router",
            Self::Smg => "smg",
            Self::Vllm => "vllm-router",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Self::Sglang => "sglang_router.launch_router",
            Self::Smg => "smg.launch_router",
            Self::Vllm => "vllm_router.launch_router",
        }
    }

    /// Installed release of the package; `None` when this Python does not have it.
    #[must_use]
    pub fn version(self, python: &Path) -> Option<String> {
        let package = self.package();
        let program = format!("import importlib.metadata as m; print(m.version('{package}'))");
        let mut command = Command::new(python);
        let output = command.args(["-c", &program]).stdin(Stdio::null()).output();
        let printed = output.ok().filter(|output| output.status.success())?.stdout;
        Some(String::from_utf8_lossy(&printed).trim().to_owned())
    }

    /// Starts the router for these replicas, and waits until it serves.
    ///
    /// # Errors
    /// When it is installed and does not become ready.
    pub async fn start(
        self,
        python: &Path,
        replicas: &[SocketAddr],
    ) -> anyhow::Result<Option<RunningRouter>> {
        let package = self.package();
        if self.version(python).is_none() {
            let python = python.display();
            eprintln!(
                "left out: {package}, which {python} does not have (`pip install {package}`, and see --python)"
            );
            return Ok(None);
        }
        let ports = [port::reserve()?, port::reserve()?];
        let [address, metrics] = ports.each_ref().map(ReservedPort::address);
        let mut command = Command::new(python);
        command
            .args(["-m", self.module(), "--worker-urls"])
            .args(replicas.iter().map(|replica| format!("http://{replica}")))
            .args(["--policy", "cache_aware", "--log-level", "error"])
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--prometheus-port", &metrics.port().to_string()]);
        let log = log_file(package)?;
        let mut process = Process::start(package, &mut command, &log)?;
        wait_for_response(address, &mut process).await?;
        Ok(Some(RunningRouter {
            address,
            process,
            _ports: ports,
        }))
    }
}

/// A router that runs until it is dropped.
#[derive(Debug)]
pub struct RunningRouter {
    /// Address for clients.
    pub address: SocketAddr,
    /// Process of the router.
    pub process: Process,
    _ports: [ReservedPort; 2],
}

/// An empty log file for a program of another project.
pub(super) fn log_file(name: &str) -> anyhow::Result<PathBuf> {
    let directory = Tools::find()?.output.join("peers");
    std::fs::create_dir_all(&directory)?;
    let log = directory.join(format!("{name}.log"));
    std::fs::write(&log, "")?;
    Ok(log)
}

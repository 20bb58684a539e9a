//! A registry of images on loopback: the program of the project Distribution, which keeps them in memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::directory::fresh_directory;
use crate::process::Process;
use crate::tools::{mesh_program, output_directory};
use crate::wait::WAIT_MAX;

/// In front of the address that the registry has chosen, in its log.
const LISTENS: &str = "listening on ";

/// A running registry.
#[derive(Debug)]
pub struct Registry {
    address: String,
    oras: PathBuf,
    process: Process,
}

impl Registry {
    /// The programs; the error names what is missing and the command that builds it.
    pub fn find_programs() -> anyhow::Result<[PathBuf; 2]> {
        Ok([mesh_program("registry")?, mesh_program("oras")?])
    }

    /// Starts a registry. Its files are in `target/stacks/NAME.PROCESS.NUMBER`.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let [registry, oras] = Self::find_programs()?;
        let directory = fresh_directory(&output_directory().join("stacks"), name)?;
        let config = json!({
            "version": "0.1", "log": { "level": "info" }, "storage": { "inmemory": {} },
            "http": { "addr": "127.0.0.1:0" }
        });
        let file = directory.join("registry.yaml");
        fs::write(&file, config.to_string())?;
        let mut command = Command::new(registry);
        command.arg("serve").arg(file);
        command.env("OTEL_TRACES_EXPORTER", "none");
        let log = directory.join("registry.log");
        let mut process = Process::start("registry", &mut command, &log)?;
        let address = process.wait_until_ready(WAIT_MAX, |log| async move {
            let (_, rest) = log.split_once(LISTENS)?;
            let end =
                rest.find(|letter: char| !letter.is_ascii_digit() && !".:".contains(letter))?;
            rest.get(..end).map(str::to_owned)
        });
        Ok(Self {
            address: address.await?,
            oras,
            process,
        })
    }

    /// Pushes the image of a layout's archive, and returns its reference.
    pub fn push(&self, archive: &Path, repository: &str, tag: &str) -> anyhow::Result<String> {
        let reference = format!("{}/{repository}:{tag}", self.address);
        let mut oras = Command::new(&self.oras);
        oras.args(["cp", "--from-oci-layout"]);
        oras.arg(format!("{}:{tag}", archive.display()));
        let pushed = oras.args(["--to-plain-http", &reference]).output();
        let pushed = pushed.context("cannot start oras")?;
        ensure!(
            pushed.status.success(),
            "oras does not push {reference}: {}",
            String::from_utf8_lossy(&pushed.stderr).trim()
        );
        Ok(reference)
    }

    /// The log: among others one line for each request.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

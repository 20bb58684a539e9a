//! One release: what it is made of, and where its files go.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser};
use flate2::Compression;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::platform::{PLATFORMS, Platform};

/// Writes the files of a release into one folder.
#[derive(Debug, Parser)]
pub struct Release {
    /// Root of the repository
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// Folder of the release: new, or empty
    #[arg(long)]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) identity: Identity,
    /// Registry of the images that the chart names, such as `registry.example/team`
    #[arg(long)]
    pub(crate) registry: String,
    /// The filter
    #[arg(long)]
    pub(crate) filter: PathBuf,
    /// Version of Envoy that the wheel needs
    #[arg(long)]
    pub(crate) envoy: String,
    /// Notes of this version
    #[arg(long)]
    pub(crate) notes: PathBuf,
    /// Architecture and folder of the programs (`x86_64=target/programs`); several times for several architectures
    #[arg(long, required = true, value_parser = parse_programs)]
    pub(crate) programs: Vec<(Platform, PathBuf)>,
    /// Python that has the package `wheel`
    #[arg(long)]
    pub(crate) python: PathBuf,
}

/// Facts that files of a release say about it, and how they are packed.
#[derive(Debug, Args)]
pub struct Identity {
    /// Version of the release
    #[arg(long)]
    pub version: String,
    /// Commit of the release
    #[arg(long)]
    pub revision: String,
    /// Time of the commit, in seconds since 1970
    #[arg(long)]
    pub time: u64,
    /// Address of the source code, a label of the images
    #[arg(long)]
    pub source: Option<String>,
    /// The programs need the C library of this machine: for tests, compressed fast
    #[arg(long)]
    pub dynamic: bool,
}

impl Release {
    /// Writes one file of the release.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let path = self.out.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Identity {
    /// Level of compression.
    pub(crate) fn compression(&self) -> Compression {
        if self.dynamic {
            Compression::fast()
        } else {
            Compression::best()
        }
    }

    /// Time of the commit, as RFC 3339 writes it.
    pub(crate) fn created(&self) -> anyhow::Result<String> {
        let seconds = i64::try_from(self.time)?;
        Ok(OffsetDateTime::from_unix_timestamp(seconds)?.format(&Rfc3339)?)
    }
}

/// Reads `ARCHITECTURE=FOLDER`.
fn parse_programs(argument: &str) -> Result<(Platform, PathBuf), String> {
    let names = PLATFORMS.map(Platform::machine).join(" or ");
    let (machine, folder) = argument
        .split_once('=')
        .ok_or_else(|| format!("`{argument}` is not ARCHITECTURE=FOLDER"))?;
    let platform = PLATFORMS
        .into_iter()
        .find(|platform| platform.machine() == machine)
        .ok_or_else(|| format!("`{machine}` is no architecture; write {names}"))?;
    Ok((platform, folder.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_architecture_is_refused_with_the_known_ones() {
        let error = parse_programs("riscv64=target/programs").unwrap_err();
        assert_eq!(
            error,
            "`riscv64` is no architecture; write x86_64 or aarch64"
        );
        assert!(parse_programs("target/programs").is_err());
        assert!(parse_programs("aarch64=target/programs").is_ok());
    }
}

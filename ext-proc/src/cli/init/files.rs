//! The files of `isotherm init`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use isotherm_envoy_config::add;
use isotherm_envoy_config::pool::Setup;

use crate::cli::envoy;
use crate::config::{self, Address};

const INTRODUCTION: &str = "\
# The service's configuration, by `isotherm init`. An option that is not here has its default: docs/configuration.md, or
# `isotherm config-reference`. `isotherm check` finds mistakes.
";

/// The new files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) service: PathBuf,
    pub(super) envoy: PathBuf,
}

impl Files {
    /// The files of a folder. Fails for a file that is there, unless it may be written over.
    pub(super) fn in_folder(folder: &Path, force: bool) -> anyhow::Result<Self> {
        let files = Self {
            service: in_folder(folder, "isotherm.yaml"),
            envoy: in_folder(folder, "envoy.yaml"),
        };
        for file in [&files.service, &files.envoy] {
            ensure!(
                force || !file.exists(),
                "{} is there: --force writes over it, and --dir names another folder",
                file.display()
            );
        }
        Ok(files)
    }

    pub(super) fn write(&self, service: &str, envoy_text: &str) -> anyhow::Result<()> {
        if let Some(folder) = self.service.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        envoy::write(Some(&self.service), service)?;
        envoy::write(Some(&self.envoy), envoy_text)
    }
}

/// The path of a file as the operator would type it.
fn in_folder(folder: &Path, name: &str) -> PathBuf {
    match folder == Path::new(".") {
        true => PathBuf::from(name),
        false => folder.join(name),
    }
}

/// The service's configuration, with the address for Envoy and that of the admin interface where they are not the defaults. The
/// service itself reads it, so a name that it does not accept fails here.
pub(in crate::cli) fn service_configuration(
    [service, admin]: [Option<SocketAddr>; 2],
    setup: &Setup,
    replicas: &[Address],
    paths: &str,
) -> anyhow::Result<String> {
    let mut text = INTRODUCTION.to_owned();
    // Writing to a String cannot fail.
    if let Some(address) = service {
        let _ = writeln!(text, "listen: [\"{address}\"]");
    }
    if let Some(address) = admin {
        let _ = writeln!(text, "admin: {{ listen: \"{address}\" }}");
    }
    text.push_str(paths);
    let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
    text.push_str(&add::service_section(setup, &replicas)?);
    let config = config::parse(&text)
        .map_err(|errors| anyhow::anyhow!("{}", errors.annotated(&text)))
        .context("the options make a configuration with mistakes")?;
    let pools = config.pools.iter().zip(&setup.pools);
    for (read, given) in pools {
        ensure!(
            Some(&read.model) == given.models.first() && read.cluster == given.cluster,
            "a name of a model or a cluster has no quotation marks and no backslashes"
        );
    }
    Ok(text)
}

//! `publish`: pushes the images and the chart of a release to a registry, and signs them.
//!
//! `oras` copies the image layouts as they are, so an image has the digest that the chart names. `cosign` signs without
//! keys: the identity is that of the workflow which runs this chore, and a public log shows it. A private registry leaves
//! signatures out. Credentials are those of `oras login`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::process::{announce, output, run};

/// The images of a release.
const IMAGES: [&str; 3] = ["isotherm", "isotherm-engine", "isotherm-filter"];

/// The chart's name in the registry.
const CHART: &str = "charts/isotherm";

/// The flag of `oras` and `helm` for a registry without TLS.
const PLAIN_HTTP: &str = "--plain-http";

/// The version of the workspace, which every package shares.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Options of `publish`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder that `cargo xtask release` has written
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Registry, such as `registry.example/team`, as given to `cargo xtask release`
    #[arg(long)]
    registry: String,
    /// Speaks HTTP without TLS to the registry
    #[arg(long)]
    plain_http: bool,
    /// Signs nothing: for a registry of your own, and without `cosign`
    #[arg(long)]
    no_sign: bool,
}

/// `cargo xtask publish --dir DIR --registry REGISTRY`.
pub(crate) fn publish(arguments: &Arguments) -> anyhow::Result<()> {
    let digests = push(arguments)?;
    if !arguments.no_sign {
        sign(&arguments.dir, &digests)?;
    }
    Ok(())
}

/// Pushes the images and the chart, and returns their addresses with digests.
fn push(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    let (dir, registry) = (&arguments.dir, &arguments.registry);
    let is_whole = dir.join("SHA256SUMS").exists();
    ensure!(is_whole, "{} holds no release", dir.display());
    let mut check = Command::new("sha256sum");
    output(check.current_dir(dir).args(["--check", "SHA256SUMS"]))?;
    let mut pushed = Vec::new();
    for name in IMAGES {
        let [layout, reference] = [layout(name), reference(registry, name)];
        announce(&format!("pushing {reference}"));
        let mut copy = Command::new("oras");
        copy.current_dir(dir).args(["cp", "--from-oci-layout"]);
        copy.args(arguments.plain_http.then_some("--to-plain-http"));
        run(copy.args([&layout, &reference]))?;
        pushed.push(by_digest(arguments, name)?);
    }
    let chart = format!("isotherm-{VERSION}.tgz");
    let charts = format!("oci://{registry}/charts");
    let mut push = Command::new("helm");
    push.current_dir(dir).args(["push", &chart, &charts]);
    run(push.args(arguments.plain_http.then_some(PLAIN_HTTP)))?;
    pushed.push(by_digest(arguments, CHART)?);
    Ok(pushed)
}

/// The address of an artefact with the digest that the registry has for it.
fn by_digest(arguments: &Arguments, name: &str) -> anyhow::Result<String> {
    let registry = &arguments.registry;
    let mut resolve = Command::new("oras");
    resolve.args(["resolve", &reference(registry, name)]);
    let digest = output(resolve.args(arguments.plain_http.then_some(PLAIN_HTTP)))?;
    Ok(format!("{registry}/{name}@{}", digest.trim()))
}

/// Signs artefacts of the registry by their digests, and the checksums.
fn sign(dir: &Path, artefacts: &[String]) -> anyhow::Result<()> {
    for artefact in artefacts {
        run(Command::new("cosign").args(["sign", "--yes", artefact]))?;
    }
    let mut sign = Command::new("cosign");
    sign.current_dir(dir).args(["sign-blob", "--yes"]);
    sign.args(["--bundle", "SHA256SUMS.sigstore.json", "SHA256SUMS"]);
    run(&mut sign).context("the checksums are not signed")
}

/// The archive of an image, and the image in it.
fn layout(name: &str) -> String {
    format!("{name}-{VERSION}.oci.tar:{VERSION}")
}

fn reference(registry: &str, name: &str) -> String {
    format!("{registry}/{name}:{VERSION}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_release_is_refused() {
        let arguments = Arguments {
            dir: std::env::temp_dir().join("isotherm-no-release"),
            registry: "registry.example".to_owned(),
            plain_http: false,
            no_sign: true,
        };
        let error = publish(&arguments).unwrap_err().to_string();
        assert!(error.contains("holds no release"), "{error}");
    }

    #[test]
    fn images_and_chart_carry_the_version() {
        let chart = reference("registry.example/team", CHART);
        assert_eq!(
            chart,
            format!("registry.example/team/charts/isotherm:{VERSION}")
        );
        assert_eq!(
            layout("isotherm"),
            format!("isotherm-{VERSION}.oci.tar:{VERSION}")
        );
    }
}

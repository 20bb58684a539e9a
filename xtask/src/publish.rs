//! `publish`: pushes the images and the chart of a release to a registry, and signs them.
//!
//! `oras` copies the image layouts as they are, so an image has the digest that the chart names. `cosign` signs without
//! keys: the identity is that of the workflow which runs this chore. Credentials are those of `oras login`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::process::{announce, output, run};

/// The images of a release.
const IMAGES: [&str; 3] = ["isotherm", "isotherm-engine", "isotherm-filter"];

/// The version of the workspace, which every package shares.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `cargo xtask publish --dir DIR --registry REGISTRY`.
pub(crate) fn push(dir: &Path, registry: &str) -> anyhow::Result<()> {
    let is_whole = dir.join("SHA256SUMS").exists();
    ensure!(is_whole, "{} holds no release", dir.display());
    let mut check = Command::new("sha256sum");
    output(check.current_dir(dir).args(["--check", "SHA256SUMS"]))?;
    for name in IMAGES {
        let [layout, reference] = [layout(name), reference(registry, name)];
        announce(&format!("pushing {reference}"));
        let mut copy = Command::new("oras");
        copy.current_dir(dir).args(["cp", "--from-oci-layout"]);
        run(copy.args([&layout, &reference]))?;
        let digest = output(Command::new("oras").args(["resolve", &reference]))?;
        sign(&format!("{registry}/{name}@{}", digest.trim()))?;
    }
    let chart = format!("isotherm-{VERSION}.tgz");
    let charts = format!("oci://{registry}/charts");
    let mut push = Command::new("helm");
    run(push.current_dir(dir).args(["push", &chart, &charts]))?;
    let digest = output(Command::new("oras").args(["resolve", &reference_of_chart(registry)]))?;
    sign(&format!("{registry}/charts/isotherm@{}", digest.trim()))?;
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

fn reference_of_chart(registry: &str) -> String {
    reference(registry, "charts/isotherm")
}

/// Signs an artefact of the registry by its digest.
fn sign(artefact: &str) -> anyhow::Result<()> {
    run(Command::new("cosign").args(["sign", "--yes", artefact]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_release_is_refused() {
        let folder = std::env::temp_dir().join("isotherm-no-release");
        let error = push(&folder, "registry.example").unwrap_err().to_string();
        assert!(error.contains("holds no release"), "{error}");
    }

    #[test]
    fn images_and_chart_carry_the_version() {
        let chart = reference_of_chart("registry.example/team");
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

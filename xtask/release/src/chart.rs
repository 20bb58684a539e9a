//! The Helm chart as one file, with the service's image by its digest.
//!
//! Helm itself writes the time of packing into each file of an archive, so two runs differ.

use anyhow::{Context as _, ensure};
use walkdir::WalkDir;

use crate::archive::{Entry, gzip, tar};
use crate::layout;
use crate::release::Release;

/// The chart in the repository.
const CHART: &str = "deploy/helm/isotherm";

/// Writes `isotherm-VERSION.tgz`, which names the image of the service by its digest.
pub(crate) fn write(release: &Release, digest: &str) -> anyhow::Result<()> {
    let folder = release.root.join(CHART);
    let mut entries = Vec::new();
    for file in WalkDir::new(&folder).sort_by_file_name() {
        let file = file.with_context(|| format!("cannot read {}", folder.display()))?;
        let name = file.path().strip_prefix(&folder)?;
        let name = name.to_str().context("a name in the chart is no UTF-8")?;
        if !file.file_type().is_file() || name == ".helmignore" {
            continue;
        }
        let text = String::from_utf8(layout::read(&file.path().to_path_buf())?);
        let text = text.with_context(|| format!("{name} in the chart is no UTF-8"))?;
        let text = match name {
            "Chart.yaml" => check_versions(text, &release.identity.version)?,
            "values.yaml" => name_image(&text, &release.registry, digest)?,
            _ => text,
        };
        entries.push(Entry::file(format!("isotherm/{name}"), text));
    }
    let archive = gzip(
        &tar(&entries, release.identity.time)?,
        release.identity.compression(),
    )?;
    release.put(
        &format!("isotherm-{}.tgz", release.identity.version),
        &archive,
    )
}

/// Returns `Chart.yaml` if both of its versions are the release's.
fn check_versions(text: String, version: &str) -> anyhow::Result<String> {
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {version}");
        ensure!(
            text.lines().any(|found| found == line),
            "{CHART}/Chart.yaml needs the line `{line}`"
        );
    }
    Ok(text)
}

/// Returns `values.yaml` with the image in the registry, by its digest.
fn name_image(text: &str, registry: &str, digest: &str) -> anyhow::Result<String> {
    let text = replace_line(
        text,
        "  repository: isotherm",
        &format!("  repository: {registry}/isotherm"),
    )?;
    replace_line(&text, "  digest: \"\"", &format!("  digest: \"{digest}\""))
}

/// Replaces the one line that is `old`.
fn replace_line(text: &str, old: &str, new: &str) -> anyhow::Result<String> {
    let count = text.lines().filter(|line| *line == old).count();
    ensure!(
        count == 1,
        "{CHART}/values.yaml has {count} lines `{}`, not one",
        old.trim()
    );
    let lines = text
        .lines()
        .map(|line| if line == old { new } else { line });
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_chart_name_the_image_of_the_release() {
        let values = include_str!("../../../deploy/helm/isotherm/values.yaml");
        let named = name_image(values, "registry.example/team", "sha256:12").unwrap();
        assert!(named.contains("\n  repository: registry.example/team/isotherm\n"));
        assert!(named.contains("\n  digest: \"sha256:12\"\n"));
        assert!(name_image(&named, "registry.example", "sha256:12").is_err());
    }

    #[test]
    fn a_chart_of_another_version_is_refused() {
        let chart = "version: 0.1.0\nappVersion: 0.1.0\n".to_owned();
        assert!(check_versions(chart.clone(), "0.1.0").is_ok());
        let error = check_versions(chart, "0.2.0").unwrap_err().to_string();
        assert!(error.contains("`version: 0.2.0`"), "{error}");
    }
}

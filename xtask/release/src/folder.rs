//! The folder of a release: every file in its order, the checksums last.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};

use crate::archive::{Entry, gzip, sha256, tar};
use crate::platform::Platform;
use crate::release::Release;
use crate::{bill, chart, debian, image, inventory, layout, licences, wheel};

/// The file of checksums.
const CHECKSUMS: &str = "SHA256SUMS";

/// Writes every file of the release. A folder that holds files is refused: they would get checksums, too.
///
/// # Errors
/// When a file is missing or cannot be written.
pub fn write(release: &Release) -> anyhow::Result<()> {
    let out = &release.out;
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let is_empty = fs::read_dir(out)?.next().is_none();
    ensure!(
        is_empty,
        "{} holds files; name a new folder, or remove them",
        out.display()
    );
    let version = &release.identity.version;
    let crates = inventory::read(&release.root, &release.programs)?;
    release.put(licences::FILE, &licences::text(&crates)?)?;
    let bill = bill::json(release, &crates)?;
    release.put(&format!("isotherm-{version}.cdx.json"), &bill)?;
    for (platform, programs) in &release.programs {
        let installed = layout::installed(release, programs)?;
        write_archive(release, *platform, &installed)?;
        debian::write(release, *platform, &installed)?;
        wheel::write(release, *platform, &installed)?;
    }
    let service = image::write_all(release)?;
    chart::write(release, &service)?;
    let filter = layout::read(&release.filter)?;
    release.put(&format!("isotherm_filter-{version}.wasm"), &filter)?;
    release.put("NOTES.md", &layout::read(&release.notes)?)?;
    write_checksums(out)
}

/// Writes the archive for any Linux: one folder with the layout of a prefix.
fn write_archive(release: &Release, platform: Platform, installed: &[Entry]) -> anyhow::Result<()> {
    let name = format!(
        "isotherm-{}-{}-linux",
        release.identity.version,
        platform.machine()
    );
    let documents = layout::licences(release, "share/doc/isotherm")?;
    let entries = installed.iter().cloned().chain(documents);
    let entries: Vec<Entry> = entries.map(|entry| entry.below(&name)).collect();
    let archive = gzip(
        &tar(&entries, release.identity.time)?,
        release.identity.compression(),
    )?;
    release.put(&format!("{name}.tar.gz"), &archive)
}

/// Writes `SHA256SUMS`, as `sha256sum --check` reads it.
fn write_checksums(out: &Path) -> anyhow::Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(out)? {
        let name = entry?.file_name().into_string();
        names.push(name.map_err(|name| anyhow!("{} is no UTF-8", name.display()))?);
    }
    names.sort();
    let mut lines = String::new();
    for name in names {
        let digest = sha256(&layout::read(&out.join(&name))?);
        writeln!(lines, "{digest}  {name}")?;
    }
    fs::write(out.join(CHECKSUMS), lines).context("cannot write SHA256SUMS")
}

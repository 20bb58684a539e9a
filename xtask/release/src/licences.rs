//! The licences of the crates in the programs, as their packages hold them.
//!
//! Rejected: `cargo-about`, which takes minutes of processor time to compile on every new machine, for texts that the
//! packages have already. `tests/conventions` checks which licences are accepted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::Package;

/// The file in the release and in its packages.
pub(crate) const FILE: &str = "THIRD-PARTY-LICENCES.txt";

/// How the names of files with licences begin, in lower case.
const NAMES: [&str; 5] = ["licen", "copying", "copyright", "notice", "unlicense"];

/// The crates with their licences, then each text once.
pub(crate) fn text(crates: &[Package]) -> anyhow::Result<Vec<u8>> {
    let mut text = String::from(
        "The programs of Isotherm contain Rust's standard library (MIT OR Apache-2.0), musl (MIT) and these crates:\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in crates.iter().filter(|package| package.source.is_some()) {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see its text");
        writeln!(text, "{name}: {licence}")?;
        let folder = package.manifest_path.parent();
        let folder = folder.context("a manifest has a folder")?.as_std_path();
        for content in contents(folder)? {
            texts.entry(content).or_default().push(name.clone());
        }
    }
    for (content, names) in texts {
        write!(
            text,
            "\n{}\n{}\n\n{content}\n",
            "-".repeat(80),
            names.join(", ")
        )?;
    }
    Ok(text.into_bytes())
}

/// The texts of the licences in a folder, sorted by their names.
fn contents(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_licence = NAMES.iter().any(|start| name.starts_with(start));
        if is_licence && entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&content)
            .trim()
            .replace("\r\n", "\n"))
    };
    paths.iter().map(read).collect()
}

//! Where the files of Isotherm are below an installation's prefix: `/usr`, a virtual environment, an unpacked archive.
//!
//! `isotherm run` finds its companions from its own folder, so every package has the same layout.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::archive::Entry;
use crate::release::Release;

/// The service, with the commands of operators.
pub(crate) const SERVICE: &str = "isotherm";
/// The simulated engine.
pub(crate) const ENGINE: &str = "isotherm-engine";
/// The program that plays workloads.
const DEMO: &str = "isotherm-demo";
/// The filter.
const FILTER: &str = "isotherm_filter.wasm";

/// The files below the prefix, without documents.
pub(crate) fn installed(release: &Release, programs: &Path) -> anyhow::Result<Vec<Entry>> {
    Ok(vec![
        Entry::program("bin/isotherm", read(&programs.join(SERVICE))?),
        Entry::program(
            "libexec/isotherm/isotherm-demo",
            read(&programs.join(DEMO))?,
        ),
        Entry::program(
            "libexec/isotherm/isotherm-engine",
            read(&programs.join(ENGINE))?,
        ),
        Entry::file(format!("share/isotherm/{FILTER}"), read(&release.filter)?),
    ])
}

/// The licence of Isotherm, and those of the crates in its programs, in the given folder.
pub(crate) fn licences(release: &Release, folder: &str) -> anyhow::Result<Vec<Entry>> {
    let licence = read(&release.root.join("LICENSE"))?;
    let third_parties = read(&release.out.join(crate::licences::FILE))?;
    Ok(vec![
        Entry::file(format!("{folder}/LICENSE"), licence),
        Entry::file(format!("{folder}/{}", crate::licences::FILE), third_parties),
    ])
}

/// The content of a file; an error names it.
pub(crate) fn read(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

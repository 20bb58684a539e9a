//! The folder of the release: which files it has, and their checksums.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};

/// The folder of the release.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    variable("ISOTHERM_RELEASE")
}

/// A path that `cargo xtask install` gives.
pub(crate) fn variable(name: &str) -> anyhow::Result<PathBuf> {
    let value = env::var_os(name);
    let value =
        value.with_context(|| format!("no {name}; start `cargo xtask install --dir DIR`"))?;
    Ok(value.into())
}

/// A program that `cargo xtask mesh-tools` has built; `None` where it has not, which is printed.
pub(crate) fn mesh_program(name: &str) -> Option<PathBuf> {
    let built = env::var("ISOTHERM_MESH_PROGRAMS").unwrap_or_default();
    if built.split(',').any(|program| program == name) {
        return Some(variable("ISOTHERM_MESH_TOOLS").ok()?.join(name));
    }
    println!("no {name}; `cargo xtask mesh-tools --only {name}` builds it");
    None
}

/// The file whose name begins and ends like this.
pub(crate) fn find(start: &str, end: &str) -> anyhow::Result<PathBuf> {
    let folder = folder()?;
    let name = names(&folder)?
        .into_iter()
        .find(|name| name.starts_with(start) && name.ends_with(end));
    let name = name.with_context(|| format!("no {start}*{end} in {}", folder.display()))?;
    Ok(folder.join(name))
}

/// Whether the programs run without the C library of the machine that built them.
pub(crate) fn is_static() -> anyhow::Result<bool> {
    let names = names(&folder()?)?;
    Ok(names.iter().any(|name| name.contains("musllinux")))
}

/// The names in a folder.
fn names(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let entries = fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Fails with what a program printed unless it ended well.
pub(crate) fn successful(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

#[test]
fn every_file_has_its_checksum() -> anyhow::Result<()> {
    let folder = folder()?;
    let sums = fs::read_to_string(folder.join("SHA256SUMS"))?;
    let listed = sums.lines().filter_map(|line| line.split_once("  "));
    let mut listed: BTreeSet<String> = listed.map(|(_, name)| name.to_owned()).collect();
    listed.insert("SHA256SUMS".to_owned());
    assert_eq!(listed, names(&folder)?);
    let mut check = Command::new("sha256sum");
    successful(check.current_dir(&folder).args(["--check", "SHA256SUMS"]))?;
    Ok(())
}

#[test]
fn the_bill_of_materials_names_the_crates_of_the_programs() -> anyhow::Result<()> {
    let bill = fs::read(find("isotherm-", ".cdx.json")?)?;
    let bill: serde_json::Value = serde_json::from_slice(&bill)?;
    assert_eq!(bill["specVersion"], "1.5");
    let components = bill["components"].as_array().context("components")?;
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(has("tokio") && has("proxy-wasm") && has("libsqlite3-sys"));
    assert!(!has("proptest"), "a crate of tests only");
    let licences = fs::read_to_string(folder()?.join("THIRD-PARTY-LICENCES.txt"))?;
    for component in components {
        let line = format!("{} ", component["name"].as_str().unwrap_or_default());
        assert!(licences.contains(&line), "{component}");
    }
    Ok(())
}

//! `examples`: generates the Envoy files of `examples/three-regions/` from `envoy/region.yaml`.
//!
//! `envoy/region.yaml` is written by hand and explained. The three files that run side by side on one machine differ from
//! it in names and ports only. `cargo xtask test` refuses files that differ from the generated ones, and runs
//! `isotherm check` on the service's file of every example.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::process::output;

const SOURCE: &str = "envoy/region.yaml";
const FOLDER: &str = "examples/three-regions";
/// The certificates of the source's region; the region's name is replaced like every other.
const SOURCE_TLS: &str = "examples/three-regions/us/tls";

/// A region and the first digits of its ports: `11` of `11000`, `11443`, ...
type Region = (&'static str, u16);

const US: Region = ("us", 11);
const EU: Region = ("eu", 12);
const ASIA: Region = ("asia", 13);

/// The regions as each region sees them: itself, then its peers. The first view is the source's.
const VIEWS: [RegionView; 3] = [
    RegionView([US, EU, ASIA]),
    RegionView([EU, US, ASIA]),
    RegionView([ASIA, US, EU]),
];

/// Writes the files.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    for (path, text) in files(root)? {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Compares the files with the generated ones.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    for (path, text) in files(root)? {
        let found =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            found == text,
            "{} is not made from {SOURCE} as it is now: run cargo xtask examples",
            path.display()
        );
    }
    Ok(())
}

/// Runs `isotherm check` on the service's file of every example.
pub(crate) fn check_services(root: &Path, isotherm: &Path) -> anyhow::Result<()> {
    let regions = VIEWS.map(|view| format!("{FOLDER}/{}/isotherm.yaml", view.name()));
    let quickstart = "examples/quickstart/isotherm.yaml".to_owned();
    for file in regions.into_iter().chain([quickstart]) {
        let mut command = Command::new(isotherm);
        command.current_dir(root).args(["check", "--config", &file]);
        output(&mut command).with_context(|| format!("{file} is refused by isotherm check"))?;
    }
    Ok(())
}

/// The Envoy files of all regions, relative to the root of the repository.
pub(crate) fn envoy_files() -> impl Iterator<Item = String> {
    let views = VIEWS.iter();
    views.map(|view| format!("{FOLDER}/{}/envoy.yaml", view.name()))
}

fn files(root: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let read = |file: &str| {
        fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
    };
    let mut made = Vec::new();
    for view in VIEWS {
        let folder = root.join(FOLDER).join(view.name());
        made.push((folder.join("envoy.yaml"), view.envoy(&read(SOURCE)?)));
        for secret in ["certificate.yaml", "authority.yaml"] {
            let text = read(&format!("envoy/tls/{secret}"))?;
            made.push((folder.join("tls").join(secret), view.secret(&text)));
        }
    }
    Ok(made)
}

/// Names and ports as one region sees them.
struct RegionView([Region; 3]);

impl RegionView {
    fn name(&self) -> &'static str {
        let [(name, _), ..] = self.0;
        name
    }

    fn envoy(&self, source: &str) -> String {
        let [(_, own), (_, first), (_, second)] = self.0;
        let replaced = [
            (
                "address: eu.example, port_value: 10443",
                format!("address: 127.0.0.1, port_value: {first}443"),
            ),
            (
                "address: asia.example, port_value: 10443",
                format!("address: 127.0.0.1, port_value: {second}443"),
            ),
            ("address: 0.0.0.0", "address: 127.0.0.1".to_owned()),
            ("port_value: 10000", format!("port_value: {own}000")),
            ("port_value: 10443", format!("port_value: {own}443")),
            ("port_value: 9901", format!("port_value: {own}901")),
            ("port_value: 9002", format!("port_value: {own}002")),
            ("envoy/tls", SOURCE_TLS.to_owned()),
        ];
        let mut text = without_comments(source);
        for (from, to) in &replaced {
            text = text.replace(from, to);
        }
        format!(
            "# Region `{}`: envoy/region.yaml, which explains it, with other names and ports. Made by `cargo xtask examples`.\n\n{}",
            self.name(),
            self.renamed(&text)
        )
    }

    fn secret(&self, source: &str) -> String {
        self.renamed(&without_comments(source).replace("envoy/tls", SOURCE_TLS))
    }

    /// The names of the source's regions, as words of their own, become the names of this view.
    fn renamed(&self, text: &str) -> String {
        let [RegionView(source), ..] = &VIEWS;
        text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric())
            .map(|word| {
                let bare = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
                let mut pairs = source.iter().zip(&self.0);
                match pairs.find(|((name, _), _)| *name == bare) {
                    Some((_, (name, _))) => word.replacen(bare, name, 1),
                    None => word.to_owned(),
                }
            })
            .collect()
    }
}

/// The text without comments. A value never holds ` #`, so ` #` begins a comment.
fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with('#') || (line.is_empty() && kept.ends_with("\n\n")) {
            continue;
        }
        kept.push_str(line.split(" # ").next().unwrap_or(line).trim_end());
        kept.push('\n');
    }
    kept.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_gets_its_own_name_and_ports_and_its_peers() {
        let source = "# about us\nid: isotherm-us # us\n\naddress: 0.0.0.0, port_value: 10443\nregion-eu: { address: eu.example, port_value: 10443 }\nsni: asia.isotherm\npath: envoy/tls/a\n";
        let [_, view, _] = VIEWS;
        assert_eq!(
            view.envoy(source).split_once("\n\n").unwrap().1,
            "id: isotherm-eu\n\naddress: 127.0.0.1, port_value: 12443\nregion-us: { address: 127.0.0.1, port_value: 11443 }\nsni: asia.isotherm\npath: examples/three-regions/eu/tls/a\n"
        );
    }

    #[test]
    fn the_checked_in_files_match_the_source() {
        check(&crate::cargo::root()).unwrap();
    }
}

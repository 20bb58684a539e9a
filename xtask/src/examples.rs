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
/// Regions in the order of the source: `us` itself, then its peers.
const NAMES: [&str; 3] = ["us", "eu", "asia"];
/// `11000`, `11443`, ...: the first digits of every port of a region.
const PORTS: [u16; 3] = [11, 12, 13];

/// Writes the files.
///
/// # Errors
/// When one cannot be written.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    for (path, text) in files(root)? {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Compares the files with the generated ones.
///
/// # Errors
/// When one differs.
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
///
/// # Errors
/// The mistakes that it reports.
pub(crate) fn check_services(root: &Path, isotherm: &Path) -> anyhow::Result<()> {
    let regions = NAMES.map(|region| format!("{FOLDER}/{region}/isotherm.yaml"));
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
    NAMES
        .iter()
        .map(|region| format!("{FOLDER}/{region}/envoy.yaml"))
}

fn files(root: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let read = |file: &str| {
        fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
    };
    let mut made = Vec::new();
    for region in 0..NAMES.len() {
        let Some(view) = RegionView::new(region) else {
            continue;
        };
        let folder = root.join(FOLDER).join(view.names[0]);
        made.push((folder.join("envoy.yaml"), view.envoy(&read(SOURCE)?)));
        for secret in ["certificate.yaml", "authority.yaml"] {
            let text = read(&format!("envoy/tls/{secret}"))?;
            made.push((folder.join("tls").join(secret), view.secret(&text)));
        }
    }
    Ok(made)
}

/// Names and ports as one region sees them: its own first, then those of its peers.
struct RegionView {
    names: [&'static str; 3],
    ports: [u16; 3],
}

impl RegionView {
    fn new(region: usize) -> Option<Self> {
        let mut order: Vec<usize> = (0..NAMES.len()).filter(|other| *other != region).collect();
        order.insert(0, region);
        let names: Option<Vec<_>> = order.iter().map(|at| NAMES.get(*at).copied()).collect();
        let ports: Option<Vec<_>> = order.iter().map(|at| PORTS.get(*at).copied()).collect();
        Some(Self {
            names: names?.try_into().ok()?,
            ports: ports?.try_into().ok()?,
        })
    }

    fn envoy(&self, source: &str) -> String {
        let [own, first, second] = self.ports;
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
            ("envoy/tls", format!("{FOLDER}/{}/tls", NAMES[0])),
        ];
        let mut text = without_comments(source);
        for (from, to) in &replaced {
            text = text.replace(from, to);
        }
        format!(
            "# Region `{}`: envoy/region.yaml, which explains it, with other names and ports. Made by `cargo xtask examples`.\n\n{}",
            self.names[0],
            self.renamed(&text)
        )
    }

    fn secret(&self, source: &str) -> String {
        let folder = format!("{FOLDER}/{}/tls", NAMES[0]);
        self.renamed(&without_comments(source).replace("envoy/tls", &folder))
    }

    /// The names of the source's regions, as words of their own, become those of this view.
    fn renamed(&self, text: &str) -> String {
        text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric())
            .map(|word| {
                let bare = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
                match NAMES.iter().position(|name| *name == bare) {
                    Some(at) => word.replacen(bare, self.names.get(at).unwrap_or(&bare), 1),
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
        let view = RegionView::new(1).unwrap();
        assert_eq!(
            view.envoy(source).split_once("\n\n").unwrap().1,
            "id: isotherm-eu\n\naddress: 127.0.0.1, port_value: 12443\nregion-us: { address: 127.0.0.1, port_value: 11443 }\nsni: asia.isotherm\npath: examples/three-regions/eu/tls/a\n"
        );
    }

    #[test]
    fn certificates_serve_both_ends_and_a_second_call_keeps_the_authority() {
        let root = crate::cargo::root();
        let folder =
            std::env::temp_dir().join(format!("isotherm-certificates-{}", std::process::id()));
        let script = root.join(FOLDER).join("certificates.sh");
        let make = || output(Command::new(&script).arg(&folder).args(["us", "eu-west"])).unwrap();
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        make();
        let first = ["authority/ca.pem", "us/tls/region.pem", "us/tls/region.key"].map(read);
        make();
        let second = ["authority/ca.pem", "us/tls/region.pem", "us/tls/region.key"].map(read);
        assert_eq!(first[0], second[0]);
        assert!(first[1] != second[1] && first[2] != second[2]);

        for purpose in ["sslserver", "sslclient"] {
            let verified = output(
                Command::new("openssl")
                    .current_dir(&folder)
                    .args(["verify", "-CAfile", "us/tls/ca.pem", "-purpose", purpose])
                    .args([
                        "-verify_hostname",
                        "eu-west.isotherm",
                        "eu-west/tls/region.pem",
                    ]),
            );
            assert_eq!(verified.unwrap().trim(), "eu-west/tls/region.pem: OK");
        }
        let bad_name = Command::new(&script).arg(&folder).arg("EU/..").output();
        assert!(!bad_name.unwrap().status.success());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_checked_in_files_match_the_source() {
        check(&crate::cargo::root()).unwrap();
    }
}

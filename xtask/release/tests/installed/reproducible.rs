//! Two runs over the same programs write the same bytes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::files::{successful, variable};

/// The times in archives have a resolution of two seconds.
const RESOLUTION: Duration = Duration::from_secs(2);

/// Writes a release of stand-ins, and returns its checksums.
fn write(programs: &Path, out: &Path) -> anyhow::Result<String> {
    let mut release = Command::new(env!("CARGO_BIN_EXE_isotherm-release"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    release.arg("--root").arg(root).arg("--out").arg(out);
    release.args(["--version", env!("CARGO_PKG_VERSION")]);
    release.args(["--revision", "0000", "--time", "1700000000"]);
    release.args(["--registry", "registry.example", "--envoy", "1.40.0"]);
    release.args(["--source", "https://source.example"]);
    release
        .arg("--filter")
        .arg(programs.join("isotherm_filter.wasm"));
    release.arg("--notes").arg(programs.join("NOTES.md"));
    release
        .arg("--python")
        .arg(variable("ISOTHERM_WHEEL_PYTHON")?);
    for machine in ["x86_64", "aarch64"] {
        let programs = format!("{machine}={}", programs.display());
        release.args(["--programs", &programs]);
    }
    successful(&mut release)?;
    Ok(fs::read_to_string(out.join("SHA256SUMS"))?)
}

#[test]
fn two_runs_write_the_same_bytes() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let programs = folder.path().join("programs");
    fs::create_dir(&programs)?;
    for name in [
        "isotherm",
        "isotherm-engine",
        "isotherm-demo",
        "isotherm_filter.wasm",
        "NOTES.md",
    ] {
        fs::write(programs.join(name), name)?;
    }
    let one = write(&programs, &folder.path().join("one"))?;
    thread::sleep(RESOLUTION);
    let other = write(&programs, &folder.path().join("other"))?;
    assert_eq!(one, other);
    assert_eq!(one.lines().count(), 14, "{one}");
    Ok(())
}

#[test]
fn a_folder_with_files_is_refused() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("isotherm"), "")?;
    let error = write(folder.path(), folder.path()).map_err(|error| error.to_string());
    let error = error.err().unwrap_or_default();
    assert!(error.contains("name a new folder"), "{error}");
    Ok(())
}

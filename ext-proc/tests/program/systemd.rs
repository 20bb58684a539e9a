//! The unit of systemd as shipped: systemd accepts it and confines it, and its command exists.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::deploy::root;

const UNIT: &str = "isotherm.service";
/// Tenths of systemd's measure of what a unit may do, from 0 to 100. Envoy compiles the filter, and both programs need the network.
const EXPOSURE_MAX: &str = "--threshold=20";
/// Units that the unit names or that systemd adds.
const OTHERS: [&str; 5] = [
    "basic",
    "multi-user",
    "network-online",
    "shutdown",
    "sysinit",
];

/// A root folder with the unit, a program in the place of `isotherm`, and the units that it needs.
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let [programs, units] =
        ["usr/bin", "usr/lib/systemd/system"].map(|path| folder.path().join(path));
    fs::create_dir_all(&programs).unwrap();
    fs::create_dir_all(&units).unwrap();
    fs::copy(root("deploy/systemd").join(UNIT), units.join(UNIT)).unwrap();
    for other in OTHERS {
        fs::write(units.join(format!("{other}.target")), "[Unit]\n").unwrap();
    }
    let program = programs.join("isotherm");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Runs `systemd-analyze`, if it is there.
fn analyse(root: &Path, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("systemd-analyze");
    command
        .arg(arguments[0])
        .arg(format!("--root={}", root.display()));
    match command.args(&arguments[1..]).arg(UNIT).output() {
        Ok(output) => Some(output),
        Err(_) => {
            eprintln!("skipped: no systemd-analyze");
            None
        }
    }
}

#[test]
fn systemd_accepts_the_unit_and_confines_it() {
    let folder = installed();
    for arguments in [
        &["verify"][..],
        &["security", "--offline=true", EXPOSURE_MAX],
    ] {
        let Some(output) = analyse(folder.path(), arguments) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn the_unit_starts_a_command_that_exists() {
    let unit = fs::read_to_string(root("deploy/systemd").join(UNIT)).unwrap();
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/isotherm "));
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| -> PathBuf { folder.path().join(name) };
    fs::copy(
        root("examples/quickstart/isotherm.yaml"),
        place("isotherm.yaml"),
    )
    .unwrap();
    fs::write(place("filter.wasm"), "").unwrap();
    let command = command
        .unwrap()
        .replace("/etc/isotherm", folder.path().to_str().unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .args(command.split(' '))
        .args(["--print-envoy", "--filter"])
        .arg(place("filter.wasm"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("filter.wasm"));
}

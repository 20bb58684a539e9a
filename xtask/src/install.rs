//! `install`: installs a release from its folder, on a root without Rust and without the repository, and uses it.
//!
//! The root is a bare Debian where debootstrap is there, made once and kept below `target`. Elsewhere the tests hide Rust
//! and the repository from this machine's own root. The step of the suite makes no root, and takes one that is there.
//! `xtask/release/tests/installed` holds the tests.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::cargo::{cargo, output_directory, root};
use crate::mesh::MeshPrograms;
use crate::process::{announce, output};
use crate::tools::WHEEL;
use crate::{envoy, release, test_output};

/// The suite of Debian where the machine's own is unknown.
const SUITE: &str = "bookworm";

/// `cargo xtask install --dir DIR`.
pub(crate) fn test(dir: &Path) -> anyhow::Result<()> {
    let root = root();
    let bare = bare_root(&root, suite().as_deref().unwrap_or(SUITE));
    test_in(&root, dir, bare, &["--package", "isotherm-release"])
}

/// Installs the release at `dir` in the root of a bare Debian, or in this machine's own.
fn test_in(
    root: &Path,
    dir: &Path,
    bare: Option<PathBuf>,
    packages: &[&str],
) -> anyhow::Result<()> {
    let dir = fs::canonicalize(dir).with_context(|| format!("no release at {}", dir.display()))?;
    let programs = MeshPrograms::find()?;
    let mut tests = cargo(root);
    tests.args(["test", "--locked"]).args(packages);
    tests.args(["--test", "installed", "--", "--show-output"]);
    tests.env("ISOTHERM_RELEASE", dir);
    tests.env("ISOTHERM_WHEELS", envoy::wheel(root)?);
    tests.env("ISOTHERM_WHEEL_PYTHON", WHEEL.obtain(root)?.join("python3"));
    tests.env("ISOTHERM_ENVOY", envoy::obtain(root)?);
    tests.env("ISOTHERM_XTASK", env::current_exe()?);
    tests.envs(programs.environment());
    if let Some(bare) = bare {
        tests.env("ISOTHERM_ROOT", bare);
    }
    test_output::run(&mut tests)
}

/// Writes a release of the suite's own programs, and installs it.
pub(crate) fn test_debug_programs(root: &Path) -> anyhow::Result<()> {
    if let Err(error) = check_isolation() {
        announce(&format!(
            "the tests of the installation are skipped: {error:#}"
        ));
        return Ok(());
    }
    let folder = output_directory(root).join("release-of-debug-programs");
    let _ = fs::remove_dir_all(&folder);
    release::write(&release::Arguments::for_tests(folder.clone()))?;
    // Debug programs need this machine's C library. To make a root would take longer than all of this.
    let bare = suite().map(|suite| bare_root_folder(root, &suite));
    let bare = bare.filter(|folder| is_root(folder));
    // The packages of the suite, whose build has built the tests, too.
    test_in(root, &folder, bare, &[])
}

/// Makes a root as the tests do: a layer in memory above this machine's.
const LAYER: &str = "mount -t tmpfs tmpfs /tmp && cd /tmp && mkdir upper work root && \
    mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root";

/// Fails where the system allows no root of its own.
fn check_isolation() -> anyhow::Result<()> {
    let probe = |options: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(options).args(["--mount", "--pid", "--fork"]);
        output(unshare.args(["sh", "-c", LAYER]))
    };
    let allowed = probe(&[]).or_else(|_| probe(&["--user", "--map-root-user"]));
    allowed
        .map(drop)
        .context("no root of its own here (`unshare --mount --pid`)")
}

/// The root of a bare Debian with Python, made if it is missing; `None` where this machine cannot make one.
fn bare_root(root: &Path, suite: &str) -> Option<PathBuf> {
    let folder = bare_root_folder(root, suite);
    if is_root(&folder) {
        return Some(folder);
    }
    let made = make_bare_root(suite, &folder);
    let made = made.inspect_err(|error| announce(&format!("no bare Debian: {error:#}")));
    made.ok().map(|()| folder)
}

fn bare_root_folder(root: &Path, suite: &str) -> PathBuf {
    output_directory(root).join("debian").join(suite)
}

/// Whether the folder holds a bare Debian.
fn is_root(folder: &Path) -> bool {
    folder.join("usr/bin/python3").exists()
}

/// Runs debootstrap into a folder of its own, then renames it: an interrupted run leaves nothing under its name.
fn make_bare_root(suite: &str, folder: &Path) -> anyhow::Result<()> {
    output(Command::new("debootstrap").arg("--version"))?;
    let scratch = folder.with_extension(format!("partial-{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    announce(&format!("making a bare Debian {suite}, once"));
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=python3-venv", suite]);
    let made = output(debootstrap.arg(&scratch)).and_then(|_| Ok(fs::rename(&scratch, folder)?));
    if made.is_err() {
        let _ = fs::remove_dir_all(&scratch);
    }
    made
}

/// The suite of this machine's Debian; `None` on another system.
fn suite() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let value = |name: &str| {
        let mut lines = release.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    (value("ID")? == "debian").then(|| value("VERSION_CODENAME"))?
}
